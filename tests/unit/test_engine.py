"""The engine: turns, lanes, leases, and that it survives any policy."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from slackwater.core.engine import Engine, EngineSettings
from slackwater.core.history import History
from slackwater.core.model import (
    BatchReport,
    Capacity,
    Choice,
    Commands,
    InputMaximum,
    QueryFacts,
    QueryOptions,
    QueryReport,
    Report,
    Snapshot,
    Stage,
    Window,
)
from slackwater.errors import ConfigurationError
from slackwater.policies.assembly import engine_for
from slackwater.policies.observe import Observe
from slackwater.policies.registry import create
from slackwater.policies.round_robin import RoundRobin
from slackwater.testing import ScriptedDriver, SimulatedQuery, run, steps

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = 1_200_000.0


@dataclass
class Eager:
    """Starts every query that may start; the smallest key first."""

    name: str = "eager"
    enforces: bool = True
    sweep: bool = True
    seen: list[Snapshot] = field(default_factory=list)

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        self.seen.append(snapshot)
        return [Choice(q.key, q.eligible, 0.0, "eager", sweep=self.sweep) for q in snapshot.queries]


class Never:
    """Starts nothing."""

    name = "never"
    enforces = True

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        return [Choice(q.key, False, 0.0, "never") for q in snapshot.queries]


def _engine(policy: Any = None, **settings: Any) -> Engine:
    return Engine(policy or Eager(), RoundRobin(), EngineSettings(**settings))


def _facts(key: str, **changes: Any) -> QueryFacts:
    facts = QueryFacts(key, key, key, windows=(Window(10, 10),), input_delays_s=(1.0,))
    return replace(facts, **changes)


def _at_gate(key: str, wait_no: int = 1, *, watermark: float = 0.0, **changes: Any) -> QueryReport:
    return replace(QueryReport(key, True, True, wait_no, NOW, watermark, facts=_facts(key)), **changes)


def _running(key: str, wait_no: int = 1, *, tasks: int = 1, watermark: float = 0.0) -> QueryReport:
    return QueryReport(key, True, False, wait_no, NOW, watermark, running_tasks=tasks)


def _starting(key: str) -> QueryReport:
    return replace(_running(key, 0), facts=_facts(key))


def _batch(batch_id: int, at_s: float, *, rows: int = 100, watermark: float = 0.0) -> BatchReport:
    maximum = InputMaximum(1.0, rows, NOW + at_s - 0.1 if rows else None)
    return BatchReport(batch_id, NOW + at_s, NOW + at_s + 0.3, 0.3, rows, watermark, (maximum,))


def _report(at_s: float, *queries: QueryReport, cores: int = 2, gates_open: bool = False) -> Report:
    return Report(NOW + at_s, cores, queries, gates_open=gates_open)


def _granted(commands: Commands) -> list[tuple[str, int, Stage]]:
    return [(grant.key, grant.wait_no, grant.stage) for grant in commands.grants]


def _windowed(name: str, **changes: Any) -> SimulatedQuery:
    query = SimulatedQuery(name, windows=(Window(10, 10),), delay_s=1.0, step_s=1.0, lag_s=0.05)
    return replace(query, **changes)


# What a turn is.


def test_a_turn_is_a_data_batch_and_the_sweep_that_emits():
    engine = _engine(RoundRobin(), lanes=1)
    engine.step(_report(-1, _starting("a"), _starting("b")))
    assert _granted(engine.step(_report(0, _at_gate("a"), _at_gate("b")))) == [("a", 1, Stage.DATA)]
    assert _granted(engine.step(_report(0.1, _running("a"), _at_gate("b")))) == []
    back = _at_gate("a", 2, watermark=NOW - 1, batches=(_batch(0, 0),))
    assert _granted(engine.step(_report(0.3, back, _at_gate("b")))) == [("a", 2, Stage.SWEEP)]
    assert _granted(engine.step(_report(0.4, _running("a", 2, watermark=NOW - 1), _at_gate("b")))) == []
    over = _at_gate("a", 3, watermark=NOW - 1, batches=(_batch(1, 0.3, rows=0, watermark=NOW - 1),))
    assert _granted(engine.step(_report(0.6, over, _at_gate("b")))) == [("b", 1, Stage.DATA)]


def test_a_turn_that_moved_no_watermark_past_a_window_is_over_after_its_data_batch():
    engine = _engine(RoundRobin(), lanes=1)
    engine.step(_report(-1, _starting("a"), _starting("b")))
    begun = _at_gate("a", watermark=NOW + 2, batches=(_batch(0, -1, watermark=NOW + 2),))
    engine.step(_report(0, begun, _at_gate("b")))
    back = _at_gate("a", 2, watermark=NOW + 3, batches=(_batch(1, 0, watermark=NOW + 2),))
    commands = engine.step(_report(0.3, back, _at_gate("b")))
    assert _granted(commands) == [("b", 1, Stage.DATA)]


def test_a_policy_may_let_the_sweep_ride_with_a_later_batch():
    engine = _engine(Eager(sweep=False), lanes=1)
    engine.step(_report(0, _at_gate("a")))
    back = _at_gate("a", 2, watermark=NOW - 1, batches=(_batch(0, 0),))
    assert Stage.SWEEP not in [stage for _, _, stage in _granted(engine.step(_report(0.3, back)))]


def test_a_sweep_is_granted_at_once_even_when_no_lane_is_free():
    engine = _engine(lanes=1, lease_s=1.0, idle_lease_s=1.0)
    engine.step(_report(0, _at_gate("a"), _at_gate("b")))
    # a's lease runs out, so b gets the lane; then a comes back and needs its sweep.
    assert _granted(engine.step(_report(6, _running("a", tasks=0), _at_gate("b")))) == [("b", 1, Stage.DATA)]
    back = _at_gate("a", 2, watermark=NOW - 1, batches=(_batch(0, 0),))
    assert ("a", 2, Stage.SWEEP) in _granted(engine.step(_report(6.1, back, _running("b"))))


def test_tasks_of_a_sweep_go_before_all_others():
    engine = _engine(lanes=1)
    engine.step(_report(0, _at_gate("a"), _at_gate("b")))
    back = _at_gate("a", 2, watermark=NOW - 1, batches=(_batch(0, 0),))
    urgencies = engine.step(_report(0.3, back, _at_gate("b"))).urgencies
    assert urgencies["a"] < urgencies["b"]


# Lanes and leases.


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_no_more_turns_run_than_there_are_lanes(lanes: int):
    driver = ScriptedDriver([_windowed(f"q{i}", row_cost_s=1e-4) for i in range(6)])
    trace = run(_engine(lanes=lanes), driver, 60)
    assert trace.most_turns_at_once() == lanes


def test_auto_lanes_follow_the_cores():
    engine = _engine(lanes="auto")
    queries = [_at_gate(f"q{i}") for i in range(5)]
    assert len(engine.step(_report(0, *queries, cores=3)).grants) == 3


def test_a_turn_without_running_tasks_frees_its_lane_after_the_idle_lease():
    engine = _engine(lanes=1, idle_lease_s=2.0)
    engine.step(_report(0, _at_gate("a"), _at_gate("b")))
    assert _granted(engine.step(_report(1.9, _running("a", tasks=0), _at_gate("b")))) == []
    assert _granted(engine.step(_report(2.1, _running("a", tasks=0), _at_gate("b")))) == [("b", 1, Stage.DATA)]


def test_a_turn_keeps_its_lane_while_there_is_no_core_for_its_tasks():
    engine = _engine(idle_lease_s=2.0)
    engine.step(_report(0, _at_gate("a"), _at_gate("b"), cores=1))
    for at_s in range(1, 20):
        waiting = engine.step(_report(at_s, _running("a", tasks=0), _at_gate("b"), cores=0))
        assert _granted(waiting) == []
    assert engine.capacity == Capacity(cores=0, lanes=1)


def test_lanes_shrink_and_grow_with_the_cores():
    engine = _engine()
    queries = [_at_gate(f"q{i}") for i in range(4)]
    assert len(engine.step(_report(0, *queries, cores=1)).grants) == 1
    busy = [_running("q0"), *queries[1:]]
    assert len(engine.step(_report(0.2, *busy, cores=3)).grants) == 2
    busy = [_running("q0"), _running("q1"), _running("q2"), queries[3]]
    assert engine.step(_report(0.4, *busy, cores=1)).grants == ()
    assert engine.capacity.lanes == 1


def test_a_turn_that_shows_tasks_keeps_its_lane():
    engine = _engine(lanes=1, idle_lease_s=2.0)
    engine.step(_report(0, _at_gate("a"), _at_gate("b")))
    for at_s in range(1, 10):
        assert _granted(engine.step(_report(at_s, _running("a"), _at_gate("b")))) == []


def test_a_turn_that_runs_far_too_long_frees_its_lane():
    engine = _engine(lanes=1, lease_s=10.0)
    engine.step(_report(0, _at_gate("a"), _at_gate("b")))
    for at_s in (5.0, 9.9):
        assert _granted(engine.step(_report(at_s, _running("a"), _at_gate("b")))) == []
    assert _granted(engine.step(_report(10.1, _running("a"), _at_gate("b")))) == [("b", 1, Stage.DATA)]


def test_a_query_that_waits_in_user_code_does_not_hold_up_the_others():
    blocked = _windowed("blocked", batch_cost_s=40.0, shows_tasks=False)
    trace = run(_engine(lanes=1), ScriptedDriver([blocked, _windowed("other")]), 60)
    assert len(trace.emissions_of("other")) >= 4


# What bounds the policy.


def test_the_users_interval_is_the_least_spacing_between_turns():
    trace = run(_engine(), ScriptedDriver([_windowed("q", interval_s=3.0)]), 60)
    starts = [turn.granted_wall_ts for turn in trace.turns_of("q")]
    assert len(starts) > 5
    assert min(b - a for a, b in pairwise(starts[1:])) >= 3.0 - 1e-6


def test_the_first_turn_does_not_wait_for_the_interval():
    trace = run(_engine(), ScriptedDriver([_windowed("q", interval_s=30.0)]), 5)
    assert trace.turns_of("q")[0].granted_wall_ts < NOW + 1


def test_nobody_waits_longer_than_the_bound_even_under_a_policy_that_starts_nothing():
    engine = _engine(Never(), max_wait_s=5.0)
    trace = run(engine, ScriptedDriver([_windowed("a"), _windowed("b")]), 60)
    for name in ("a", "b"):
        starts = [NOW, *(turn.granted_wall_ts for turn in trace.turns_of(name))]
        assert max(b - a for a, b in pairwise(starts)) < 5.0 + 1.5
        assert len(starts) > 8
    assert "longest allowed" in trace.grants[0].reason


def test_an_awaited_query_runs_until_a_trigger_finds_nothing():
    engine, driver = _engine(Never()), ScriptedDriver([_windowed("q", idle_s=((3.0, math.inf),))])
    run(engine, driver, 5)
    assert driver.trace.turns == []
    driver.await_all_available("q")
    run(engine, driver, 5)
    assert sum(turn.rows for turn in driver.trace.turns_of("q")) == 3000
    assert not driver.awaited("q")


def test_awaited_goes_before_what_the_policy_wants():
    engine = _engine(lanes=1)
    waits = _at_gate("z", awaited=True)
    assert _granted(engine.step(_report(0, _at_gate("a"), waits))) == [("z", 1, Stage.DATA)]


def test_a_smaller_priority_class_goes_first():
    engine = _engine(lanes=1)
    first = _at_gate("z", facts=_facts("z", options=QueryOptions(priority_class=-1)))
    assert _granted(engine.step(_report(0, _at_gate("a"), first))) == [("z", 1, Stage.DATA)]


def test_a_query_that_cannot_be_gated_is_never_granted():
    engine = _engine(max_wait_s=1.0)
    free = _at_gate("a", facts=_facts("a", gated=False), awaited=True)
    assert _granted(engine.step(_report(0, free))) == []
    assert _granted(engine.step(_report(100, replace(free, facts=None)))) == []
    assert engine.views[0].stage is Stage.UNGATED


def test_an_old_wait_number_does_not_end_a_turn():
    engine = _engine(lanes=1)
    engine.step(_report(0, _at_gate("a", 7), _at_gate("b")))
    # The driver's report was made before the grant took effect: the same wait again.
    assert _granted(engine.step(_report(0.1, _at_gate("a", 7), _at_gate("b")))) == []
    state = engine.state("a")
    assert state is not None
    assert state.stage is Stage.DATA


def test_a_stale_grant_is_ignored_by_the_driver_and_harmless():
    driver = ScriptedDriver([_windowed("q")])
    engine = _engine()
    commands = engine.step(driver.exchange(Commands(wake_after_s=0.01)))
    assert len(commands.grants) == 1
    old = replace(commands, grants=(replace(commands.grants[0], wait_no=99),))
    driver.exchange(old)
    assert [grant.stale for grant in driver.trace.grants] == [True]
    assert driver.trace.turns == []


# Queries that come and go.


def test_a_dead_query_is_forgotten_and_the_others_go_on():
    driver = ScriptedDriver([_windowed("dies", fails_at_s=20.4), _windowed("lives")])
    engine = _engine(lanes=1)
    trace = run(engine, driver, 60)
    assert engine.state("dies") is None
    assert engine.reason("dies") == ""
    assert [view.key for view in engine.views] == ["lives"]
    assert len(trace.emissions_of("lives")) == len({e.window_end_event_ts for e in trace.emissions_of("lives")}) >= 4


def test_a_query_that_dies_in_its_turn_gives_its_lane_back():
    engine = _engine(lanes=1)
    engine.step(_report(0, _at_gate("a"), _at_gate("b")))
    dead = QueryReport("a", alive=False, waiting=False, wait_no=1, since_wall_ts=NOW, next_watermark_event_ts=0.0)
    assert _granted(engine.step(_report(0.2, dead, _at_gate("b")))) == [("b", 1, Stage.DATA)]


def test_a_query_that_died_before_it_was_ever_seen_is_no_trouble():
    engine = _engine()
    assert _granted(engine.step(_report(0, _at_gate("a", alive=False, waiting=False)))) == []
    assert engine.views == ()


def test_a_query_that_was_never_described_is_left_alone():
    engine = _engine()
    assert _granted(engine.step(_report(0, _at_gate("a", facts=None)))) == []


def test_a_query_that_starts_later_is_scheduled():
    trace = run(_engine(), ScriptedDriver([_windowed("a"), _windowed("late", starts_at_s=15.0)]), 60)
    assert trace.turns_of("late")[0].granted_wall_ts == pytest.approx(NOW + 15.0, abs=0.1)
    assert trace.emissions_of("late")


# Policies that misbehave.


def _raises(snapshot: Snapshot) -> Any:
    raise RuntimeError("no idea")


MISBEHAVIOURS: dict[str, Callable[[Snapshot], Any]] = {
    "raises": _raises,
    "unknown query": lambda snapshot: [Choice("nobody", True, 0.0, "?")],
    "the same query twice": lambda snapshot: [Choice(q.key, True, 0.0, "?") for q in snapshot.queries * 2],
    "not a number": lambda snapshot: [Choice(q.key, True, math.nan, "?") for q in snapshot.queries],
    "infinite": lambda snapshot: [Choice(q.key, True, -math.inf, "?") for q in snapshot.queries],
    "no urgency": lambda snapshot: [Choice(q.key, True, None, "?") for q in snapshot.queries],  # type: ignore[arg-type]
    "nothing": lambda snapshot: None,
    "a number": lambda snapshot: 42,
    "names instead of choices": lambda snapshot: [q.key for q in snapshot.queries],
    "a generator that breaks": lambda snapshot: (Choice(q.key, 1 / 0 > 0, 0.0, "?") for q in snapshot.queries),
}


@dataclass
class Misbehaving:
    answer: Callable[[Snapshot], Any]
    name: str = "misbehaving"
    enforces: bool = True

    def decide(self, snapshot: Snapshot) -> Any:
        return self.answer(snapshot)


@pytest.mark.parametrize("how", sorted(MISBEHAVIOURS))
def test_queries_go_on_by_round_robin_under_a_policy_that_misbehaves(how: str, caplog: pytest.LogCaptureFixture):
    engine = _engine(Misbehaving(MISBEHAVIOURS[how]), lanes=1)
    with caplog.at_level(logging.WARNING, logger="slackwater"):
        trace = run(engine, ScriptedDriver([_windowed("a"), _windowed("b")]), 30)
    reference = run(_engine(RoundRobin(), lanes=1), ScriptedDriver([_windowed("a"), _windowed("b")]), 30)
    assert trace.emissions == reference.emissions != []
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert "misbehaving" in told[0]
    assert "round-robin" in told[0]
    assert sum(entry.kind == "trouble" for entry in engine.story(limit=10_000)) == 1


def test_a_policy_that_recovers_decides_again_and_its_next_failure_is_told():
    broken = True
    policy = Misbehaving(lambda s: _raises(s) if broken else [Choice(q.key, False, 0.0, "fine") for q in s.queries])
    engine = _engine(policy)
    assert _granted(engine.step(_report(0, _at_gate("a")))) == [("a", 1, Stage.DATA)]
    broken = False
    assert _granted(engine.step(_report(1, _running("a"), _at_gate("b")))) == []
    assert engine.reason("b") == "fine"
    broken = True
    assert _granted(engine.step(_report(2, _running("a"), _at_gate("b")))) == [("b", 1, Stage.DATA)]
    assert sum(entry.kind == "trouble" for entry in engine.story()) == 2


def test_queries_that_a_policy_does_not_mention_only_wait():
    engine = _engine(Misbehaving(lambda snapshot: []), max_wait_s=5.0)
    assert _granted(engine.step(_report(0, _at_gate("a")))) == []
    assert _granted(engine.step(_report(5.1, _at_gate("a")))) == [("a", 1, Stage.DATA)]


# Watching, and gates that opened by themselves.


def test_observe_grants_nothing_and_asks_for_no_enforcement():
    engine = _engine(Observe(), max_wait_s=1.0)
    driver = ScriptedDriver([_windowed("a"), _windowed("b", interval_s=5.0)])
    for _, commands in steps(engine, driver, 60):
        assert commands.grants == ()
        assert not commands.enforce
    assert driver.trace.emissions_of("a")
    starts = [batch.offsets_wall_ts for batch in driver.trace.batches_of("b") if batch.rows]
    assert all(start % 5 == pytest.approx(0, abs=1e-6) for start in starts[1:])
    assert any(entry.kind == "observed" for entry in engine.story())


def test_open_gates_end_turns_and_grant_no_sweep():
    engine = _engine(Never(), lanes=1)
    engine.step(_report(0, _at_gate("a", awaited=True)))
    back = _at_gate("a", 4, watermark=NOW - 1, batches=(_batch(0, 0), _batch(1, 0.3)))
    commands = engine.step(_report(1, back, gates_open=True))
    assert Stage.SWEEP not in [stage for _, _, stage in _granted(commands)]
    state = engine.state("a")
    assert state is not None
    assert state.turn is None


def test_scheduling_goes_on_after_gates_had_opened():
    driver, engine = ScriptedDriver([_windowed("a"), _windowed("b")]), _engine(lanes=1)
    run(engine, driver, 15)
    driver.open_gates()
    driver.exchange(Commands(wake_after_s=3.0))
    driver.open_gates()
    trace = run(engine, driver, 45)
    assert not driver.gates_open
    for name in ("a", "b"):
        ends = [emission.window_end_event_ts for emission in trace.emissions_of(name)]
        assert ends == [NOW + 10 * i for i in range(1, len(ends) + 1)]
        assert len(ends) >= 5


# What it tells and when it wants to be asked.


def test_history_is_bounded_and_keeps_what_was_requested_and_observed_apart():
    engine = _engine(history=50)
    run(engine, ScriptedDriver([_windowed("a"), _windowed("b")]), 60)
    assert len(engine.history) == 50
    entries = engine.story(limit=1000)
    assert {entry.kind for entry in entries} >= {"requested", "observed"}
    assert [entry.wall_ts for entry in entries] == sorted(entry.wall_ts for entry in entries)


def test_the_story_of_one_query_names_no_other():
    engine = _engine()
    run(engine, ScriptedDriver([_windowed("a"), _windowed("b")]), 20)
    assert {entry.key for entry in engine.story("a")} == {"a"}
    assert len(engine.story("a", limit=3)) == 3


def test_entries_that_concern_everybody_are_in_every_story():
    history = History(10)
    history.add(NOW, "trouble", "", "a policy failed")
    history.add(NOW, "requested", "b", "data batch")
    assert [entry.what for entry in history.recent("a")] == ["a policy failed"]


def test_the_engine_asks_to_be_woken_when_the_policy_wants():
    soon = Misbehaving(lambda s: [Choice(q.key, False, 0.0, "later", NOW + 0.2) for q in s.queries])
    assert _engine(soon).step(_report(0, _at_gate("a"))).wake_after_s == pytest.approx(0.2)


@pytest.mark.parametrize("wake_s", [-5.0, 0.0, 1e-9, 1e9, math.inf, math.nan])
def test_wake_times_stay_between_a_moment_and_half_a_second(wake_s: float):
    policy = Misbehaving(lambda s: [Choice(q.key, False, 0.0, "later", NOW + wake_s) for q in s.queries])
    assert 0.01 <= _engine(policy).step(_report(0, _at_gate("a"))).wake_after_s <= 0.5


def test_policies_see_queries_in_the_order_of_their_keys():
    policy = Eager()
    _engine(policy).step(_report(0, _at_gate("c"), _at_gate("a"), _at_gate("b")))
    assert [view.key for view in policy.seen[0].queries] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("lanes", 0),
        ("lanes", 1.5),
        ("lanes", "many"),
        ("confidence", 0.2),
        ("confidence", 1.0),
        ("max_wait_s", 0),
        ("max_wait_s", math.inf),
        ("max_wait_s", math.nan),
        ("idle_lease_s", "2"),
        ("target_latency_s", -1),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(setting: str, value: Any):
    with pytest.raises(ConfigurationError, match=setting):
        EngineSettings(**{setting: value})


def test_awaiting_a_stream_that_goes_on_ends_at_the_first_empty_trigger():
    engine, driver = _engine(Never()), ScriptedDriver([_windowed("q")])
    run(engine, driver, 3)
    driver.await_all_available("q")
    run(engine, driver, 5)
    # The data batch, the one for the moved watermark, an empty trigger: 0.61 s, well before the next clump.
    assert not driver.awaited("q")


def test_a_grant_that_got_lost_is_given_again():
    engine = _engine(max_wait_s=5.0)
    assert _granted(engine.step(_report(0, _at_gate("a"))))
    # The exchange that carried the grant failed: the query still waits with the same number.
    granted = [_granted(engine.step(_report(at_s, _at_gate("a")))) for at_s in range(1, 120)]
    assert any(granted)


def test_the_users_interval_holds_after_an_empty_first_trigger():
    trace = run(_engine(), ScriptedDriver([_windowed("q", interval_s=3.0)]), 10)
    first, second = trace.turns_of("q")[:2]
    assert second.granted_wall_ts - first.granted_wall_ts >= 3.0


def test_the_sweep_of_a_daily_window_goes_before_other_tasks():
    tomorrow = Misbehaving(lambda s: [Choice(q.key, q.eligible, 86_400.0 * (q.key == "a"), "?") for q in s.queries])
    engine = _engine(tomorrow, lanes=2)
    engine.step(_report(0, _at_gate("a"), _at_gate("b")))
    back = _at_gate("a", 2, watermark=NOW - 1, batches=(_batch(0, 0),))
    commands = engine.step(_report(0.3, back, _running("b")))
    assert _granted(commands) == [("a", 2, Stage.SWEEP)]
    assert commands.urgencies["a"] < commands.urgencies["b"]


def test_a_wake_time_that_is_no_number_is_a_policys_fault():
    policy = Misbehaving(lambda s: [Choice(q.key, True, 0.0, "?", "soon") for q in s.queries])  # type: ignore[arg-type]
    assert _granted(_engine(policy).step(_report(0, _at_gate("a")))) == [("a", 1, Stage.DATA)]


def test_the_rate_of_a_clumped_stream_is_learnt():
    engine = Engine(create("klink"), RoundRobin())
    run(engine, ScriptedDriver([_windowed("q", rows_per_s=1000.0)]), 120)
    assert engine.views[0].rows_per_s == pytest.approx(1000.0, rel=0.2)


def test_everybody_has_a_first_turn_before_anybody_has_a_second():
    queries = [_windowed(name, starts_at_s=3.0) for name in "abc"]
    trace = run(_engine(RoundRobin(), lanes=1), ScriptedDriver(queries), 10)
    assert [turn.query for turn in trace.turns[:3]] == ["a", "b", "c"]


def test_a_lane_that_no_turn_will_need_can_serve_other_work():
    driver = ScriptedDriver(
        [SimulatedQuery(f"q{i}", windows=(Window(10, 10, 5 * i),), delay_s=1.0, batch_cost_s=0.2) for i in range(2)]
    )
    engine = engine_for("klink", EngineSettings(lanes=2))
    commands = Commands(enforce=True, wake_after_s=0.01)
    seen = set()
    for _ in range(400):
        report = driver.exchange(commands)
        commands = engine.step(report)
        now = driver.clock.now()
        seen.add((engine.room_for(0.1, now), engine.room_for(60.0, now)))
    assert (True, False) in seen  # now, but not for a minute: both have a window by then
    assert all(not long for _, long in seen)
