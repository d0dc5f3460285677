"""Policies from functions, with periods, and combined."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from slackwater.core.engine import Engine, EngineSettings
from slackwater.core.model import Choice, Policy, QueryOptions, QueryView, Snapshot, Window
from slackwater.errors import ConfigurationError
from slackwater.metrics.catalogue import CATALOGUE, OFFERED
from slackwater.metrics.graph import MetricProvider
from slackwater.policies.assembly import engine_for
from slackwater.policies.combined import Combined
from slackwater.policies.fcfs import Fcfs
from slackwater.policies.functions import Features, by_functions, by_load, by_name, in_turn
from slackwater.policies.hr import Hr
from slackwater.policies.klink import Klink
from slackwater.policies.multi_class import MultiClass
from slackwater.policies.observe import Observe
from slackwater.policies.periodic import Periodic
from slackwater.policies.qs import Qs
from slackwater.policies.round_robin import RoundRobin
from slackwater.testing import ScriptedDriver, SimulatedQuery, run, steps
from tests.unit.views import NOW, calm, measured

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENT = EngineSettings(lanes=1, max_wait_s=1e6)


def _view(key: str, **changes: Any) -> QueryView:
    """A query without windows that waits at its gate, due now, a hundred rows a second."""
    due = {"window_end_event_ts": None, "swm_wall_ts": NOW, "swm_sigma_s": 0.0, "swm_sure_wall_ts": NOW}
    plain = {"sweep_cost_s": 0.0, "rows_per_s": 100.0, "backlog_rows": 100.0}
    return calm(key, **(due | plain | changes))


def _snapshot(*views: QueryView, lanes: int = 2, wall_ts: float = NOW) -> Snapshot:
    return measured(Snapshot(wall_ts, tuple(sorted(views, key=lambda view: view.key)), lanes, lanes, lanes))


def _order(choices: list[Choice]) -> list[str]:
    return [choice.key for choice in sorted(choices, key=lambda choice: (choice.urgency, choice.key))]


def _lanes(f: Callable[[Features], int], *views: QueryView, lanes: int = 2) -> dict[str, int | None]:
    policy = by_functions("lanes", lambda _: 0.0, f=f)
    return {choice.key: choice.lane for choice in policy.decide(_snapshot(*views, lanes=lanes))}


# g: the order.


def test_the_greatest_priority_goes_first():
    policy = by_functions("longest", lambda q: q["queue-rows"], needs=["queue-rows"])
    views = [_view("a", backlog_rows=1.0), _view("b", backlog_rows=9.0), _view("c", backlog_rows=4.0)]
    assert _order(policy.decide(_snapshot(*views))) == ["b", "c", "a"]


def test_vectors_are_compared_entry_by_entry():
    policy = by_functions("two", lambda q: (-q.query.priority_class, q["queue-rows"]), needs=("queue-rows",))
    views = [
        _view("a", priority_class=1, backlog_rows=900.0),
        _view("b", backlog_rows=1.0),
        _view("c", backlog_rows=4.0),
    ]
    assert _order(policy.decide(_snapshot(*views))) == ["c", "b", "a"]


def test_among_equals_the_one_whose_last_turn_is_longest_ago_goes_first():
    policy = by_functions("same", lambda _: 1)
    views = [_view("a"), _view("b", last_turn_wall_ts=NOW - 9)]
    assert _order(policy.decide(_snapshot(*views))) == ["b", "a"]


def test_equals_share_a_lane():
    queries = [SimulatedQuery(name, batch_cost_s=0.3) for name in "abc"]
    trace = run(engine_for(by_functions("same", lambda _: 0), PATIENT), ScriptedDriver(queries), 30)
    turns = Counter(turn.query for turn in trace.turns)
    assert max(turns.values()) - min(turns.values()) <= 2


def test_a_function_may_look_at_all_queries_and_shares_what_it_computes_of_them():
    calls = []

    def most(rows: Any) -> float:
        calls.append(len(rows))
        return float(max(row["queue-rows"] for row in rows))

    policy = by_functions("share", lambda q: q["queue-rows"] / q.once(most), needs=("queue-rows",))
    choices = policy.decide(_snapshot(_view("a", backlog_rows=50.0), _view("b")))
    assert calls == [2]
    assert {choice.key: choice.reason for choice in choices} == {"a": "priority 0.5", "b": "priority 1"}


def test_what_the_functions_declare_is_needed_too():
    policy = by_functions("mine", lambda q: q["selectivity"], f=by_load, needs=["selectivity"])
    assert getattr(policy, "needs", ()) == ("selectivity", "load")


# f: the lanes.


def test_in_turn_deals_the_queries_out():
    assert _lanes(in_turn, *(_view(key) for key in "abcde")) == {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}


def test_by_name_gives_a_query_the_same_lane_whoever_else_is_there():
    alone, crowd = _lanes(by_name, _view("m")), _lanes(by_name, *(_view(key) for key in "abmxyz"))
    assert alone["m"] == crowd["m"]


def test_by_load_puts_the_heavy_one_on_a_lane_of_its_own():
    light = [_view(key, row_cost_s=1e-4, rows_per_s=100.0) for key in "abc"]
    lanes = _lanes(by_load, *light, _view("heavy", row_cost_s=1e-3, rows_per_s=2000.0))
    assert [key for key, lane in lanes.items() if lane == lanes["heavy"]] == ["heavy"]


def test_without_f_any_lane_takes_any_query():
    choices = by_functions("g", lambda _: 0).decide(_snapshot(_view("a")))
    assert [choice.lane for choice in choices] == [None]


def test_a_query_runs_in_its_lane_only_and_a_lane_runs_one_turn_at_a_time():
    queries = [
        SimulatedQuery(f"q{i}", windows=(Window(5, 5),), delay_s=0.0, rows_per_s=1000 * (i + 1), row_cost_s=1e-5)
        for i in range(7)
    ]
    policy = by_functions("dealt", lambda q: q["head-age-s"], f=in_turn, needs=("head-age-s",))
    engine = engine_for(policy, EngineSettings(lanes=3, max_wait_s=1e6))
    driver = ScriptedDriver(queries, cores=3)
    ran: dict[str, set[int]] = {query.name: set() for query in queries}
    for _ in steps(engine, driver, 60):
        turns = {name: state.turn for name in ran if (state := engine.state(name)) is not None}
        taken = [turn.lane for turn in turns.values() if turn is not None]
        assert len(taken) == len(set(taken))
        for name, turn in turns.items():
            if turn is not None:
                ran[name].add(turn.lane)
    assert ran == {f"q{i}": {i % 3} for i in range(7)}
    lane_of = {f"q{i}": i % 3 for i in range(7)}
    for lane in range(3):
        spans = sorted((t.granted_wall_ts, t.ended_wall_ts) for t in driver.trace.turns if lane_of[t.query] == lane)
        assert len(spans) > 20
        assert all(ended <= begun + 1e-6 for (_, ended), (begun, _) in pairwise(spans))


# b, d and P.


@pytest.mark.parametrize("batches", [1, 3])
def test_a_turn_has_at_most_so_many_batches(batches: int):
    queries = [SimulatedQuery(name, rows_per_s=5000, max_rows=1000, batch_cost_s=0.2, stateful=False) for name in "ab"]
    policy = by_functions("b", lambda _: 0, batches=batches)
    trace = run(engine_for(policy, PATIENT), ScriptedDriver(queries), 30)
    lengths: list[int] = []
    last = ""
    for grant in trace.grants:
        if grant.reason.startswith("its turn goes on"):
            assert grant.query == last
            lengths[-1] += 1
        else:
            lengths.append(1)
        last = grant.query
    assert max(lengths) == batches
    assert Counter(lengths).most_common(1)[0][0] == batches


def test_nobody_waits_longer_than_d_whatever_g_prefers():
    queries = [SimulatedQuery(name, batch_cost_s=0.5) for name in ("pet", "other")]

    def pet(q: Features) -> float:
        return float(q.query.name == "pet")

    def longest_wait_s(max_wait_s: float | None) -> float:
        engine = engine_for(by_functions("pet", pet, max_wait_s=max_wait_s), PATIENT)
        granted = [turn.granted_wall_ts for turn in run(engine, ScriptedDriver(queries), 60).turns_of("other")]
        return max(b - a for a, b in pairwise([NOW, *granted, NOW + 60]))

    assert longest_wait_s(None) > 50
    assert longest_wait_s(4.0) < 4.0 + 0.5 + 0.1


@dataclass
class Counting:
    """Counts when it is asked, and shares its answers with round-robin."""

    name: str = "counting"
    enforces: bool = True
    needs: tuple[str, ...] = ()
    asked_wall_ts: list[float] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        self.asked_wall_ts.append(snapshot.wall_ts)
        self.keys |= {query.key for query in snapshot.queries}
        return RoundRobin().decide(snapshot)


def _few(names: str = "abc") -> ScriptedDriver:
    return ScriptedDriver([SimulatedQuery(name, batch_cost_s=0.2) for name in names])


def test_a_policy_with_a_period_is_asked_once_a_period_and_its_order_stands_meanwhile():
    counting = Counting()
    trace = run(engine_for(Periodic(counting, 5.0), PATIENT), _few(), 60)
    gaps = [b - a for a, b in pairwise(counting.asked_wall_ts)]
    assert 11 <= len(counting.asked_wall_ts) <= 13
    assert all(5.0 <= gap < 5.5 for gap in gaps[1:])
    assert len(trace.turns) > 200  # the lane is not left idle until the next period


def test_a_query_that_comes_does_not_wait_for_the_period():
    counting = Counting()
    late = SimulatedQuery("late", starts_at_s=10.0)
    run(engine_for(Periodic(counting, 60.0), PATIENT), ScriptedDriver([SimulatedQuery("a"), late]), 30)
    assert counting.asked_wall_ts == pytest.approx([NOW, NOW + 10.0], abs=0.1)


def test_a_query_that_waits_for_its_time_is_looked_at_when_the_period_is_over():
    query = SimulatedQuery("q", windows=(Window(10, 10),), delay_s=1.0, step_s=1.0, lag_s=0.05)

    def mean_latency_s(policy: Policy) -> float:
        seen = [e.latency_s for e in run(engine_for(policy), ScriptedDriver([query]), 200).emissions[5:]]
        return sum(seen) / len(seen)

    assert mean_latency_s(Periodic(Klink(), 0.2)) < mean_latency_s(Klink()) + 0.2


def test_metrics_are_computed_once_a_period():
    provider, measured = MetricProvider(CATALOGUE, OFFERED, driver="test"), []

    def metrics(snapshot, wanted):
        measured.append(snapshot.wall_ts)
        return provider(snapshot, wanted)

    counting = Counting(needs=("path-rate",))
    both = MultiClass({-1: Fcfs(), 0: Periodic(counting, 5.0)})
    run(Engine(both, RoundRobin(), PATIENT, metrics), _few(), 60)
    assert measured == counting.asked_wall_ts
    assert len(measured) <= 13


def test_functions_are_called_once_a_period():
    calls: Counter[float] = Counter()

    def g(q: Features) -> float:
        calls[q.wall_ts] += 1
        return q["queue-rows"]

    run(engine_for(by_functions("g", g, needs=("queue-rows",), period_s=2.0), PATIENT), _few(), 30)
    assert set(calls.values()) == {3}
    assert 13 <= len(calls) <= 17
    calls.clear()
    run(engine_for(by_functions("g", g, needs=("queue-rows",), period_s=None), PATIENT), _few(), 30)
    assert len(calls) > 100


# What a function can get wrong.


def moody(q: Features) -> Any:
    return {"a": (1.0, 2.0), "b": (1.0,)}[q.query.name]


@pytest.mark.parametrize(
    ("g", "message"),
    [
        (lambda _: math.nan, r"lambda.* query 'a' the priority nan; nan in it"),
        (lambda _: (1.0, math.nan), r"query 'a' the priority \(1.0, nan\)"),
        (lambda _: (1.0, "x"), r"'x' in it cannot be compared"),
        (lambda _: "high", r"the priority 'high'; a number is needed"),
        (lambda _: None, r"the priority None; a number is needed"),
        (lambda _: (), r"the priority \(\); a number is needed"),
        (moody, r"moody gave query 'b' a vector of 1 entries and 'a' one of 2"),
        (lambda q: q["path-rat"], r"query 'a': LookupError: the feature 'path-rat' is not there, only: .*needs"),
        (lambda q: 1 / 0, r"failed for query 'a': ZeroDivisionError"),
    ],
)
def test_a_wrong_priority_names_the_function_and_the_query(g: Any, message: str):
    with pytest.raises((TypeError, ValueError, RuntimeError), match=message):
        by_functions("wrong", g).decide(_snapshot(_view("a"), _view("b")))


@pytest.mark.parametrize("lane", [1.5, -1, None, "left"])
def test_a_wrong_lane_names_the_function_and_the_query(lane: Any):
    def astray(_: Features) -> Any:
        return lane

    with pytest.raises(ValueError, match=rf"astray gave query 'a' the lane {lane!r}; a whole number from 0 up"):
        by_functions("wrong", lambda _: 0, f=astray).decide(_snapshot(_view("a")))


def test_the_engine_tells_of_a_wrong_function_and_round_robin_takes_over(caplog):
    engine = engine_for(by_functions("wrong", lambda _: math.nan), PATIENT)
    trace = run(engine, _few(), 10)
    assert {turn.query for turn in trace.turns} == set("abc")
    assert "query 'a' the priority nan" in caplog.text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batches": 0}, "batches=0"),
        ({"max_wait_s": -1.0}, "max_wait_s=-1.0"),
        ({"period_s": 0.0}, "period_s=0.0"),
        ({"f": 3}, "f is 3; a function is needed"),
    ],
)
def test_wrong_parameters_are_refused(wrong: dict[str, Any], message: str):
    with pytest.raises(ConfigurationError, match=message):
        by_functions("wrong", lambda _: 0, **wrong)


def test_a_function_that_needs_an_unknown_metric_is_refused_before_anything_runs():
    with pytest.raises(ConfigurationError, match="moon-phase"):
        engine_for(by_functions("wishful", lambda q: q["moon-phase"], needs=("moon-phase",)))


# Combined.


def test_the_first_pattern_that_matches_decides():
    orders, rest = Counting("orders"), Counting("rest")
    policy = Combined({"orders-*": orders, "*": rest})
    policy.decide(_snapshot(_view("orders-eu"), _view("orders-us"), _view("clicks")))
    assert (orders.keys, rest.keys) == ({"orders-eu", "orders-us"}, {"clicks"})


def test_the_first_of_each_group_go_before_the_second_of_each():
    policy = Combined({"z*": Qs(), "*": Qs()})
    views = [_view(f"a{i}", backlog_rows=1000.0 + i) for i in range(4)]
    views += [_view(f"z{i}", backlog_rows=10.0 + i) for i in range(2)]
    assert _order(policy.decide(_snapshot(*views))) == ["z1", "a3", "z0", "a2", "a1", "a0"]


def test_groups_take_turns_however_many_queries_they_have():
    queries = [SimulatedQuery(name, batch_cost_s=0.3) for name in ("a1", "a2", "a3", "b")]
    trace = run(engine_for(Combined({"a*": Fcfs(), "b*": Fcfs()}), PATIENT), ScriptedDriver(queries), 60)
    turns = Counter(turn.query for turn in trace.turns)
    assert turns["b"] == pytest.approx(turns["a1"] + turns["a2"] + turns["a3"], abs=4)
    assert min(turns.values()) > 25


def test_queries_that_cannot_start_do_not_hold_their_group_back():
    policy = Combined({"a*": Qs(), "*": Qs()})
    views = [_view(f"a{i}", backlog_rows=100.0 + i, eligible=i < 1) for i in range(4)]
    choices = policy.decide(_snapshot(*views, _view("b1", backlog_rows=2.0), _view("b2", backlog_rows=1.0)))
    assert _order([choice for choice in choices if choice.start]) == ["a0", "b1", "b2"]


def test_what_no_pattern_matches_goes_by_round_robin():
    choices = Combined({"a*": Fcfs()}).decide(_snapshot(_view("a"), _view("b")))
    assert {choice.key: choice.reason.split(":")[0] for choice in choices} == {"a": "a*, fcfs", "b": "*, round-robin"}


def test_each_policy_keeps_its_own_period():
    fast, slow = Counting("fast"), Counting("slow")
    policy = Combined({"a*": Periodic(fast, 1.0), "*": Periodic(slow, 10.0)})
    trace = run(engine_for(policy, PATIENT), _few(), 60)
    assert 50 <= len(fast.asked_wall_ts) <= 61
    assert 6 <= len(slow.asked_wall_ts) <= 7
    assert {turn.query for turn in trace.turns} == set("abc")


def test_a_policy_that_declares_a_period_is_given_it():
    class Slow(Counting):
        period_s = 10.0

    slow = Slow("slow")
    run(engine_for(Combined({"*": slow}), PATIENT), _few(), 60)
    assert len(slow.asked_wall_ts) <= 7


def test_what_the_policies_need_is_needed_together_and_the_shortest_wait_holds():
    patient, eager = by_functions("p", lambda _: 0, max_wait_s=9.0), by_functions("e", lambda _: 0, max_wait_s=3.0)
    policy = Combined({"a*": Hr(), "b*": Qs(), "c*": patient, "*": eager})
    assert policy.needs == ("path-rate", "queue-rows")
    assert policy.max_wait_s == 3.0
    assert MultiClass({0: Hr(), 1: eager}).max_wait_s == 3.0
    assert MultiClass().max_wait_s is None


def test_policies_that_schedule_and_policies_that_watch_cannot_be_combined():
    with pytest.raises(ConfigurationError, match=r"'a\*' schedule, those for '\*' only watch"):
        Combined({"a*": Hr(), "*": Observe()})
    with pytest.raises(ConfigurationError, match="only watch"):
        MultiClass({0: Hr(), 1: Observe()})
    watching = Combined({"a*": Observe()})
    assert not watching.enforces
    assert watching.decide(_snapshot(_view("a"), _view("b"))) == []


def test_one_object_for_two_groups_is_refused():
    policy = Periodic(Hr(), 1.0)
    with pytest.raises(ConfigurationError, match="Give each its own"):
        Combined({"a*": policy, "*": policy})


def test_no_pattern_is_refused():
    with pytest.raises(ConfigurationError, match="at least one pattern"):
        Combined({})


@pytest.mark.parametrize("urgency", [math.nan, math.inf])
def test_nonsense_of_one_policy_is_not_hidden_by_its_rank(urgency: float):
    class Nonsense:
        name = "nonsense"
        enforces = True

        def decide(self, snapshot: Snapshot) -> list[Choice]:
            return [Choice(query.key, True, urgency, "") for query in snapshot.queries]

    for policy in (Combined({"*": Nonsense()}), MultiClass({0: Nonsense()})):
        with pytest.raises(ValueError, match=r"nonsense: urgency .* for query 'a'"):
            policy.decide(_snapshot(_view("a")))


def test_lanes_and_batches_of_a_policy_pass_through():
    inner = by_functions("g", lambda _: 0, f=lambda _: 1, batches=4)
    (choice,) = Combined({"*": inner}).decide(_snapshot(_view("a")))
    assert (choice.lane, choice.batches) == (1, 4)


def test_classes_go_before_the_turns_of_groups():
    queries = [SimulatedQuery(f"a{i}", batch_cost_s=0.3) for i in range(3)]
    queries += [SimulatedQuery("b", batch_cost_s=0.3, options=QueryOptions(priority_class=1))]
    trace = run(engine_for(Combined({"b": Fcfs(), "*": Fcfs()}), PATIENT), ScriptedDriver(queries), 30)
    assert len(trace.turns_of("b")) <= min(len(trace.turns_of(f"a{i}")) for i in range(3))
