"""What people order for single queries holds whatever the policy says, and across restarts of the query."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.core.engine import Engine, EngineSettings
from slackwater.core.model import Choice, QueryFacts, QueryReport, Report, Snapshot, Stage, Window
from slackwater.errors import ConfigurationError
from slackwater.policies.observe import Observe
from slackwater.policies.registry import create
from slackwater.policies.round_robin import RoundRobin
from slackwater.testing import START_WALL_TS, ScriptedDriver, SimulatedQuery, steps

NOW = START_WALL_TS


@dataclass
class Eager:
    """Starts every query, whether it may start or not."""

    name: str = "eager"
    enforces: bool = True

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        return [Choice(query.key, True, 0.0, "eager") for query in snapshot.queries]


def engine_of(policy: Any = None, **changes: Any) -> Engine:
    return Engine(policy or Eager(), RoundRobin(), EngineSettings(**changes))


def windowed(name: str, **changes: Any) -> SimulatedQuery:
    return replace(SimulatedQuery(name, windows=(Window(10, 10),), delay_s=1.0, step_s=1.0), **changes)


def at_gate(key: str, wait_no: int = 1, *, query_id: str | None = None, **changes: Any) -> QueryReport:
    facts = QueryFacts(key, key, query_id or key, windows=(Window(10, 10),), input_delays_s=(1.0,))
    return replace(QueryReport(key, True, True, wait_no, NOW, 0.0, facts=facts), **changes)


def granted(engine: Engine, at_s: float, *queries: QueryReport) -> list[str]:
    return [grant.key for grant in engine.step(Report(NOW + at_s, 2, queries)).grants]


# ---- paused ---------------------------------------------------------------------------------------------------------


def test_a_paused_query_gets_no_turn_however_long_it_waits_and_one_when_it_is_resumed():
    engine = engine_of(max_wait_s=5.0)
    engine.step(Report(NOW - 1, 2, (at_gate("a", waiting=False), at_gate("b", waiting=False))))
    engine.pause("a", NOW)
    assert granted(engine, 0, at_gate("a"), at_gate("b")) == ["b"]
    assert granted(engine, 1000, at_gate("a"), at_gate("b", 2)) == [], "it found nothing and may try again soon"
    assert granted(engine, 1001, at_gate("a"), at_gate("b", 2)) == ["b"]
    assert engine.find("a").stage is Stage.PAUSED
    engine.resume("a", NOW + 1002)
    assert granted(engine, 1002, at_gate("a"), at_gate("b", 2, waiting=False)) == ["a"]


def test_a_paused_query_gets_no_turn_even_when_somebody_awaits_its_data():
    engine = engine_of()
    engine.step(Report(NOW - 1, 2, (at_gate("a", waiting=False),)))
    engine.pause("a", NOW)
    assert granted(engine, 0, at_gate("a", awaited=True)) == []
    engine.resume("a", NOW + 1)
    assert granted(engine, 1, at_gate("a", awaited=True)) == ["a"]


def test_a_turn_that_runs_is_finished_before_a_pause_takes_effect():
    engine = engine_of(create("klink"))
    driver = ScriptedDriver([windowed("a", batch_cost_s=1.0)])
    before = None
    for _ in steps(engine, driver, 120):
        state = engine.find("a")
        if before is None and state.stage is Stage.DATA and state.batches_seen > 4:
            engine.pause("a", driver.clock.now())
            before = state.batches_seen
            assert state.stage is Stage.DATA
    assert before is not None
    assert engine.find("a").stage is Stage.PAUSED
    assert before + 1 <= engine.find("a").batches_seen <= before + 2, "its data batch, and its sweep if there was one"


def test_a_query_that_is_started_again_stays_paused_and_in_its_class_until_ordered_otherwise():
    engine = engine_of()
    engine.step(Report(NOW, 2, (at_gate("run-1", query_id="q", waiting=False),)))
    engine.pause("q", NOW)
    engine.set_class("q", 7, NOW)
    engine.step(Report(NOW + 1, 2, (replace(at_gate("run-1", query_id="q"), alive=False),)))
    assert granted(engine, 2, at_gate("run-2", query_id="q"), at_gate("other")) == ["other"]
    again = engine.find("q")
    assert (again.facts.key, again.stage, again.facts.options.priority_class) == ("run-2", Stage.PAUSED, 7)
    engine.resume("run-2", NOW + 3)
    assert granted(engine, 3, at_gate("run-2", query_id="q"), at_gate("other", waiting=False)) == ["run-2"]
    engine.step(Report(NOW + 4, 2, ()))
    engine.step(Report(NOW + 5, 2, (at_gate("run-3", query_id="q"),)))
    assert engine.find("q").paused_wall_ts is None
    assert engine.find("q").facts.options.priority_class == 7


def test_pausing_or_resuming_twice_changes_nothing_more():
    engine = engine_of()
    engine.step(Report(NOW, 2, (at_gate("a", waiting=False),)))
    for order in (engine.pause, engine.pause, engine.resume, engine.resume):
        order("a", NOW + 1)
    assert [entry.what for entry in engine.story("a") if entry.kind == "ordered"] == ["paused", "resumed after 0 s"]


def test_what_no_gate_holds_cannot_be_paused():
    engine = engine_of()
    loose = at_gate("a")
    assert loose.facts is not None
    engine.step(Report(NOW, 2, (replace(loose, facts=replace(loose.facts, gated=False)),)))
    with pytest.raises(ConfigurationError, match="no gate holds"):
        engine.pause("a", NOW)
    watching = engine_of(Observe())
    watching.step(Report(NOW, 2, (at_gate("a"),)))
    with pytest.raises(ConfigurationError, match="only watches"):
        watching.pause("a", NOW)


def test_an_unknown_query_is_told_with_the_nearest_name():
    engine = engine_of()
    engine.step(Report(NOW, 2, (at_gate("clicks"),)))
    with pytest.raises(ConfigurationError, match="Did you mean 'clicks'"):
        engine.pause("click", NOW)


# ---- classes --------------------------------------------------------------------------------------------------------


def test_a_query_of_a_smaller_class_goes_first():
    engine = engine_of(lanes=1)
    engine.step(Report(NOW - 1, 2, (at_gate("a", waiting=False), at_gate("b", waiting=False))))
    engine.set_class("b", -1, NOW)
    assert granted(engine, 0, at_gate("a"), at_gate("b")) == ["b"]
    urgencies = engine.step(Report(NOW + 0.1, 2, (at_gate("a"), at_gate("b", waiting=False)))).urgencies
    assert urgencies["b"] < urgencies["a"]


@pytest.mark.parametrize("number", [-1001, 1001, 10**9])
def test_a_class_out_of_range_is_refused(number):
    engine = engine_of()
    engine.step(Report(NOW, 2, (at_gate("a"),)))
    with pytest.raises(ConfigurationError, match="from -1000 to 1000"):
        engine.set_class("a", number, NOW)
    assert engine.find("a").facts.options.priority_class == 0


# ---- whatever is ordered --------------------------------------------------------------------------------------------

ORDERS = st.lists(
    st.tuples(st.sampled_from(["pause", "resume", "class"]), st.sampled_from(["a", "b", "c"]), st.integers(1, 40)),
    max_size=12,
)


@settings(deadline=None, max_examples=15)
@given(ORDERS, st.sampled_from(["round-robin", "klink", "edf", "fcfs"]))
def test_whatever_is_ordered_no_paused_query_gets_a_turn_and_all_others_go_on(orders, policy):
    engine = engine_of(create(policy), max_wait_s=8.0, lanes=1)
    driver = ScriptedDriver([windowed(name, batch_cost_s=0.2, rows_per_s=50.0) for name in "abc"])
    paused: set[str] = set()
    pending = list(orders)
    counts: dict[str, int] = {}
    for number, (_, commands) in enumerate(steps(engine, driver, 120)):
        fresh = {grant.key for grant in commands.grants if grant.stage is Stage.DATA}
        assert not fresh & paused
        if number % 20 == 10 and pending:
            kind, query, value = pending.pop(0)
            now = driver.clock.now()
            if kind == "pause":
                engine.pause(query, now)
                paused.add(query)
            elif kind == "resume":
                engine.resume(query, now)
                paused.discard(query)
            else:
                engine.set_class(query, value - 20, now)
        if driver.clock.now() - NOW <= 60:
            counts = {state.name: state.batches for state in engine.views}
    if not pending:
        for name in set("abc") - paused:
            assert engine.find(name).batches_seen > counts.get(name, 0), "it was not starved"
