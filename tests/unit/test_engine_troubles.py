"""What nobody spares an engine: clocks that are set, lanes and bounds that are no numbers, many orders."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from slackwater.chaos.clock import ClockStep
from slackwater.core.engine import Engine, EngineSettings
from slackwater.core.model import Choice, Commands, Snapshot, Window
from slackwater.policies.assembly import engine_for
from slackwater.policies.round_robin import RoundRobin
from slackwater.testing import START_WALL_TS, ScriptedDriver, SimulatedQuery, run

if TYPE_CHECKING:
    from slackwater.testing import Trace

HOUR_S = 3600.0
STEP_AT_S = 60.0


def clicks(name: str, **changes: Any) -> SimulatedQuery:
    query = SimulatedQuery(name, windows=(Window(10, 10),), delay_s=1.0, step_s=1.0, lag_s=0.05)
    return replace(query, **changes)


def through_a_step(engine: Engine, queries: list[SimulatedQuery], by_s: float, seconds: float = 120) -> Trace:
    """Time passes as ever; only the clock that reports show is set once, and the engine hears of a steady one."""
    driver = ScriptedDriver(queries)
    step = ClockStep(START_WALL_TS + STEP_AT_S, by_s)
    commands = Commands(enforce=True, wake_after_s=0.01)
    while driver.clock.now() < START_WALL_TS + seconds:
        report = driver.exchange(commands)
        commands = engine.step(replace(step.applied(report), steady_s=report.wall_ts - START_WALL_TS))
        if report.gates_open:
            driver.resync()
    return driver.trace


@pytest.mark.parametrize("by_s", [-HOUR_S, HOUR_S, -2.0, 2.0])
@pytest.mark.parametrize("policy", ["klink", "round-robin", "fcfs"])
def test_nobody_waits_longer_because_the_clock_was_set(policy: str, by_s: float) -> None:
    queries = [clicks("a"), clicks("b"), SimulatedQuery("plain"), clicks("spaced", interval_s=2.0)]
    engine = engine_for(policy, EngineSettings(lanes=2, max_wait_s=15, history=20_000))
    trace = through_a_step(engine, queries, by_s)
    for name in ("a", "b", "spaced"):
        windows = [emission for emission in trace.emissions if emission.query == name]
        assert len(windows) >= 9, name
    assert any("the clock was set" in entry.what for entry in engine.story(limit=20_000))


@pytest.mark.parametrize("by_s", [-HOUR_S, HOUR_S])
def test_lags_against_the_old_clock_are_forgotten_and_learnt_anew(by_s: float) -> None:
    """Though event times are an hour off from now on; nobody is helped by the bound on waiting."""
    engine = engine_for("klink", EngineSettings(lanes=2, max_wait_s=600))
    trace = through_a_step(engine, [clicks("a")], by_s, seconds=200)
    late = [emission.latency_s for emission in trace.emissions if emission.emitted_wall_ts > START_WALL_TS + 100]
    assert len(late) >= 9
    assert max(late) < 5


def test_time_that_passed_without_a_report_is_no_step() -> None:
    engine = engine_for("klink", EngineSettings(lanes=1))
    driver = ScriptedDriver([clicks("a")])
    for second in (1, 2, 900):
        driver.clock.set(START_WALL_TS + second)
        report = driver.exchange(Commands(enforce=True, wake_after_s=0.01))
        engine.step(replace(report, steady_s=report.wall_ts - START_WALL_TS))
    assert [entry for entry in engine.story(limit=1000) if "the clock was set" in entry.what] == []


@dataclass
class Odd:
    """Wants all queries in one lane, and says strange things about it."""

    lane: Any = None
    batches: Any = 1
    max_wait_s: Any = None
    start: bool = True
    name: str = "odd"
    enforces: bool = True

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        return [
            Choice(q.key, self.start and q.eligible, 0.0, "odd", lane=self.lane, batches=self.batches)
            for q in snapshot.queries
        ]


def odd_run(policy: Odd, **settings: Any) -> Trace:
    engine = Engine(policy, RoundRobin(), EngineSettings(lanes=2, **settings))
    return run(engine, ScriptedDriver([clicks("a"), clicks("b")]), 60)


@pytest.mark.parametrize("lane", [math.nan, 0.5, "first", -1])
def test_a_lane_that_is_none_starves_nobody(lane: Any) -> None:
    reference = run(
        Engine(RoundRobin(), RoundRobin(), EngineSettings(lanes=2)), ScriptedDriver([clicks("a"), clicks("b")]), 60
    )
    assert odd_run(Odd(lane=lane)).emissions == reference.emissions != []


@pytest.mark.parametrize("batches", [math.nan, math.inf, 1.5, None])
def test_a_turn_of_a_number_of_batches_that_is_none_is_the_policys_fault(batches: Any) -> None:
    engine = Engine(Odd(batches=batches), RoundRobin(), EngineSettings(lanes=2))
    run(engine, ScriptedDriver([clicks("a")]), 10)
    assert any(entry.kind == "trouble" for entry in engine.story(limit=1000))


@pytest.mark.parametrize("max_wait_s", [math.nan, math.inf, -1.0, "long"])
def test_a_bound_that_is_no_number_does_not_take_the_engines_own_away(max_wait_s: Any) -> None:
    trace = odd_run(Odd(start=False, max_wait_s=max_wait_s), max_wait_s=5)
    assert {emission.query for emission in trace.emissions} == {"a", "b"}


def test_whoever_waited_too_long_takes_any_lane_that_is_free() -> None:
    """The policy wants both in lane 0, where one runs for ever."""
    engine = Engine(Odd(lane=0), RoundRobin(), EngineSettings(lanes=2, max_wait_s=5, lease_s=1000, idle_lease_s=1000))
    slow, quick = clicks("slow", batch_cost_s=500.0), clicks("quick", starts_at_s=1.0)
    trace = run(engine, ScriptedDriver([slow, quick]), 60)
    assert len([emission for emission in trace.emissions if emission.query == "quick"]) >= 4


def test_orders_for_queries_that_never_come_back_are_forgotten() -> None:
    engine = Engine(RoundRobin(), RoundRobin())
    for number in range(1200):
        name = f"q{number}"
        driver = ScriptedDriver([SimulatedQuery(name)])
        engine.step(driver.exchange(Commands(enforce=True, wake_after_s=0.01)))
        engine.pause(name, START_WALL_TS)
        engine.set_class(name, 1, START_WALL_TS)
    assert len(engine.orders) <= 2000
