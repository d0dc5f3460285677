"""When memory rules, and what Klink does then."""

from __future__ import annotations

from typing import Any

import pytest

from slackwater.core.memory import MemoryManager
from slackwater.core.model import Choice, Memory, Snapshot
from slackwater.errors import ConfigurationError
from slackwater.policies.assembly import engine_for
from slackwater.policies.klink import Klink, KlinkNoMm
from slackwater.policies.periodic import Periodic
from slackwater.policies.round_robin import RoundRobin
from slackwater.testing import ScriptedDriver, SimulatedQuery, run, steps
from tests.unit.views import NOW, calm, overdue

FULL, CALM = Memory(80, 100), Memory(60, 100)


def test_memory_rules_from_the_bound_until_half_is_free() -> None:
    manager = MemoryManager(bound=0.75)
    assert not manager.rules(0.0, CALM)
    assert manager.rules(1.0, FULL)
    assert manager.rules(2.0, Memory(41, 100))
    assert not manager.rules(2.5, Memory(40, 100))
    assert manager.cycles == 1


def test_a_cycle_ends_after_its_longest_time_and_leaves_least_slack_a_while() -> None:
    manager = MemoryManager(bound=0.75, longest_s=3.0, rest_s=1.0)
    ruled = [manager.rules(t / 2, FULL) for t in range(14)]
    assert ruled == [True] * 6 + [False] * 2 + [True] * 6
    assert manager.cycles == 2


@pytest.mark.parametrize("memory", [None, Memory(10, 0)])
def test_where_nothing_is_known_of_memory_it_never_rules(memory: Memory | None) -> None:
    assert not MemoryManager().rules(0.0, memory)


@pytest.mark.parametrize("wrong", [{"bound": 0.0}, {"bound": 1.5}, {"freed": 1.0}, {"longest_s": 0.0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="memory"):
        MemoryManager(**wrong)


def choices(policy: Klink, memory: Memory | None, *, lanes: int = 4, free: int = 4) -> dict[str, Choice]:
    queries = (
        overdue("big", 1.0, freeable_bytes=900.0),
        calm("calm", freeable_bytes=0.0),
        overdue("late", 9.0, freeable_bytes=0.0),
        overdue("small", 2.0, freeable_bytes=100.0),
        overdue("smaller", 1.0, freeable_bytes=50.0),
        overdue("tie", 3.0, freeable_bytes=900.0),
    )
    snapshot = Snapshot(NOW, queries, lanes, free, 2, memory=memory)
    return {choice.key: choice for choice in policy.decide(snapshot)}


def test_near_the_bound_whoever_frees_most_goes_first_ties_by_slack_on_half_of_the_lanes() -> None:
    found = choices(Klink(), FULL)
    assert [key for key, choice in found.items() if choice.start] == ["tie", "big"]
    assert found["tie"].urgency < found["big"].urgency < found["small"].urgency < found["late"].urgency
    assert {key for key, choice in found.items() if choice.freeing} == {"tie", "big", "small", "smaller"}
    assert "80 % full" in found["late"].reason


def test_turns_that_run_already_count_for_the_fewer_lanes() -> None:
    assert [key for key, choice in choices(Klink(), FULL, free=3).items() if choice.start] == ["tie"]
    assert not any(choice.start for choice in choices(Klink(), FULL, free=2).values())


@pytest.mark.parametrize(("policy", "memory"), [(Klink(), CALM), (KlinkNoMm(), FULL), (Klink(), None)])
def test_below_the_bound_or_without_a_manager_slack_decides(policy: Klink, memory: Memory | None) -> None:
    found = choices(policy, memory)
    started = sorted((choice.urgency, key) for key, choice in found.items() if choice.start)
    assert [key for _, key in started] == ["late", "tie", "small", "big", "smaller"]
    assert not any(choice.freeing for choice in found.values())


def test_a_policy_can_be_switched_while_queries_run_and_what_was_learnt_stays() -> None:
    engine = engine_for("round-robin")
    driver = ScriptedDriver([SimulatedQuery("q", delay_s=1.0), SimulatedQuery("r", delay_s=1.0)])
    run(engine, driver, seconds=10)
    state = engine.state("q")
    engine.switch(Klink(), driver.clock.now())
    run(engine, driver, seconds=10)
    assert engine.policy.name == "klink"
    assert engine.state("q") is state
    assert [entry.what for entry in engine.story(limit=1000) if entry.kind == "switched"] == [
        "from round-robin to klink"
    ]


def test_switching_to_a_policy_that_only_watches_opens_the_gates() -> None:
    engine = engine_for("klink")
    driver = ScriptedDriver([SimulatedQuery("q", delay_s=1.0)])
    assert all(commands.enforce for _, commands in steps(engine, driver, 5))
    engine.switch(engine_for("observe").policy, driver.clock.now())
    assert not any(commands.enforce for _, commands in steps(engine, driver, 5))


class Counting(RoundRobin):
    def __init__(self) -> None:
        self.asked: list[float] = []

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        self.asked.append(snapshot.wall_ts)
        return super().decide(snapshot)


def test_a_policy_with_a_period_is_asked_once_a_period_and_its_order_stands_meanwhile() -> None:
    policy = Counting()
    queries = [SimulatedQuery(f"q{i}", batch_cost_s=0.05) for i in range(3)]
    trace = run(engine_for(policy, period_s=2.0), ScriptedDriver(queries), seconds=20)
    assert len(policy.asked) <= 12
    assert all(later - sooner >= 2.0 for sooner, later in zip(policy.asked[1:], policy.asked[2:], strict=False))
    assert min(len(trace.turns_of(f"q{i}")) for i in range(3)) > 3


def test_a_query_that_comes_is_heard_before_the_period_is_over() -> None:
    policy = Counting()
    queries = [SimulatedQuery("a", batch_cost_s=0.05), SimulatedQuery("b", batch_cost_s=0.05, starts_at_s=3.0)]
    trace = run(engine_for(policy, period_s=1000.0), ScriptedDriver(queries), seconds=10)
    assert len(policy.asked) == 2
    assert trace.turns_of("b")


@pytest.mark.parametrize("period_s", [0, -1.0, float("inf"), "1"])
def test_a_period_that_makes_no_sense_is_refused(period_s: Any) -> None:
    with pytest.raises(ConfigurationError, match="period_s"):
        Periodic(RoundRobin(), period_s)
