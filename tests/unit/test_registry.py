"""Policies by name, by object, and what is said when that does not work."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

import pytest

from slackwater.errors import ConfigurationError
from slackwater.policies import registry
from slackwater.policies.klink import Klink

if TYPE_CHECKING:
    from collections.abc import Callable

    from slackwater.core.model import Choice, Policy, Snapshot


def _declare(monkeypatch: pytest.MonkeyPatch, *points: tuple[str, str]) -> None:
    declared = [EntryPoint(name, value, registry.GROUP) for name, value in points]
    found: Callable[..., list[EntryPoint]] = lambda group: [p for p in declared if p.group == group]  # noqa: E731
    monkeypatch.setattr(registry, "entry_points", found)


def test_our_policies_are_known_in_order():
    known = registry.known_policies()
    assert {"edf", "fcfs", "klink", "observe", "round-robin"} <= set(known)
    assert known == sorted(known)


def test_a_name_becomes_a_policy():
    policy = registry.create("klink")
    assert isinstance(policy, Klink)


def test_a_policy_gets_the_parameters_that_it_takes_and_no_others():
    policy = registry.create("klink", knob="latency", colour="blue")
    assert isinstance(policy, Klink)
    assert policy.knob == "latency"
    assert registry.create("round-robin", knob="latency").name == "round-robin"


def test_an_unknown_name_lists_the_known_ones_and_the_nearest():
    with pytest.raises(ConfigurationError) as caught:
        registry.create("round-robbin")
    for name in registry.known_policies():
        assert name in str(caught.value)
    assert "Did you mean 'round-robin'?" in str(caught.value)


def test_a_name_like_no_other_gets_no_guess():
    with pytest.raises(ConfigurationError) as caught:
        registry.create("xyzzy")
    assert "Did you mean" not in str(caught.value)
    assert "klink" in str(caught.value)


def test_an_object_that_decides_is_a_policy():
    class Mine:
        name = "mine"
        enforces = False

        def decide(self, snapshot: Snapshot) -> list[Choice]:
            return []

    mine = Mine()
    assert registry.create(mine) is mine
    assert not mine.enforces


@pytest.mark.parametrize("thing", [object(), 7, None])
def test_an_object_without_decide_is_refused_with_what_is_needed(thing: Policy):
    with pytest.raises(ConfigurationError, match=r"decide\(snapshot\).*klink"):
        registry.create(thing)


def test_a_class_in_place_of_its_object_is_refused():
    with pytest.raises(ConfigurationError):
        registry.create(Klink)  # type: ignore[arg-type]


def test_an_object_without_a_name_is_refused():
    class Nameless:
        enforces = True

        def decide(self, snapshot: Snapshot) -> list[Choice]:
            return []

    with pytest.raises(ConfigurationError, match="name"):
        registry.create(Nameless())  # type: ignore[arg-type]


def test_a_policy_that_does_not_say_whether_it_enforces_does():
    class Plain:
        name = "plain"

        def decide(self, snapshot: Snapshot) -> list[Choice]:
            return []

    assert registry.create(Plain()).enforces  # type: ignore[arg-type]


def test_another_packages_policy_is_found(monkeypatch: pytest.MonkeyPatch):
    _declare(monkeypatch, ("theirs", "slackwater.policies.edf:Edf"))
    assert registry.known_policies() == ["theirs"]
    assert registry.create("theirs").name == "edf"
    assert registry.describe("theirs")


def test_two_packages_with_one_name_are_both_named(monkeypatch: pytest.MonkeyPatch):
    _declare(monkeypatch, ("klink", "slackwater.policies.klink:Klink"), ("klink", "other.package:Klink"))
    with pytest.raises(ConfigurationError) as caught:
        registry.known_policies()
    assert "slackwater.policies.klink:Klink" in str(caught.value)
    assert "other.package:Klink" in str(caught.value)


def test_one_policy_that_is_installed_twice_is_no_clash(monkeypatch: pytest.MonkeyPatch):
    _declare(monkeypatch, *[("klink", "slackwater.policies.klink:Klink")] * 2)
    assert registry.known_policies() == ["klink"]
