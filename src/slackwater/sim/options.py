"""What `slackwater sim` may be told, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeVar

from slackwater.errors import ConfigurationError, unknown_name
from slackwater.policies.registry import known_policies
from slackwater.sim.delays import Uniform, Zipf

if TYPE_CHECKING:
    from slackwater.sim.delays import Delays

    PlanT = TypeVar("PlanT")

DEFAULT = "default"
DELAYS: dict[str, Delays] = {"uniform": Uniform(), "zipf": Zipf()}


@dataclass(frozen=True)
class Options:
    """Anything that is None stays as the experiment has it."""

    queries: tuple[int, ...] | None = None
    minutes: float | None = None
    policies: tuple[str, ...] | None = None
    delays: tuple[str, ...] | None = None

    def apply(self, experiment: str, plan: PlanT) -> PlanT:
        """The plan with what was told. A plan that has no such setting cannot be told it."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        known = {name: value for name, value in told.items() if value is not None}
        for name in known:
            if not hasattr(plan, name):
                raise ConfigurationError(f"--{name}: the experiment {experiment} has no such setting; leave it out.")
        return replace(plan, **known)  # type: ignore[type-var]


def parse(
    queries: str | None = None, minutes: float | None = None, policies: str | None = None, delays: str | None = None
) -> Options:
    """From the words of a command line. Raises ConfigurationError for what cannot be used."""
    if minutes is not None and not 0 < minutes < math.inf:
        raise ConfigurationError(f"--minutes {minutes!r}: a positive number is needed.")
    return Options(
        queries=None if queries is None else tuple(_count(word) for word in _words("queries", queries)),
        minutes=minutes,
        policies=None if policies is None else tuple(_known_policy(word) for word in _words("policies", policies)),
        delays=None if delays is None else tuple(_known_delays(word) for word in _words("delays", delays)),
    )


def _words(option: str, text: str) -> list[str]:
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found:
        raise ConfigurationError(f"--{option} {text!r}: one or more are needed, with commas between them.")
    return list(dict.fromkeys(found))


def _count(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise ConfigurationError(f"--queries {word!r}: whole numbers from 1 up are needed, like 1,20,80.")
    return int(word)


def _known_policy(word: str) -> str:
    # A policy that only watches gives no order to run in.
    known = sorted({DEFAULT, *known_policies()} - {"observe"})
    if word not in known:
        raise unknown_name("policy", word, known)
    return word


def _known_delays(word: str) -> str:
    if word not in DELAYS:
        raise unknown_name("kind of delays", word, DELAYS)
    return word
