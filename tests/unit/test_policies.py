"""One contract for every policy that is installed, and what each one chooses in plain situations."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.core.engine import Engine, EngineSettings
from slackwater.core.model import Choice, Knob, Policy, QueryOptions, QueryView, Snapshot, Stage, Window
from slackwater.errors import ConfigurationError
from slackwater.policies.assembly import engine_for
from slackwater.policies.klink import Klink
from slackwater.policies.registry import create, describe, known_policies
from slackwater.policies.round_robin import RoundRobin
from slackwater.testing import ScriptedDriver, SimulatedQuery, run, steps
from tests.unit.views import NOW, calm, measured, overdue

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

every_policy = pytest.mark.parametrize("name", known_policies())
enforcing_policy = pytest.mark.parametrize("name", [n for n in known_policies() if create(n).enforces])


def _snapshot(*views: QueryView, lanes: int = 1) -> Snapshot:
    return measured(Snapshot(NOW, tuple(sorted(views, key=lambda view: view.key)), lanes, lanes, 2))


def _order(policy: Policy, *views: QueryView) -> list[str]:
    """Queries that the policy starts, most urgent first."""
    chosen = [choice for choice in policy.decide(_snapshot(*views)) if choice.start]
    return [choice.key for choice in sorted(chosen, key=lambda choice: choice.urgency)]


def _choice(policy: Policy, view: QueryView) -> Choice:
    (choice,) = policy.decide(_snapshot(view))
    return choice


@st.composite
def _views(draw: DrawFn) -> list[QueryView]:
    views = []
    for key in draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)):
        seconds = st.floats(-100, 100)
        swm = NOW + draw(seconds)
        sigma = draw(st.floats(0, 10))
        windowed = draw(st.booleans())
        views.append(
            calm(
                key,
                eligible=draw(st.booleans()),
                waiting_since_wall_ts=NOW - draw(st.floats(0, 100)),
                last_turn_wall_ts=NOW - draw(st.floats(0, 100)),
                window_end_event_ts=NOW + draw(seconds) if windowed else None,
                swm_wall_ts=swm,
                swm_sigma_s=sigma,
                swm_sure_wall_ts=swm + 1.645 * sigma,
                batch_cost_s=draw(st.floats(0, 10)),
                row_cost_s=draw(st.sampled_from([0.0, 1e-6, 1e-4, 1e-2])),
                sweep_cost_s=draw(st.floats(0, 10)),
                rows_per_s=draw(st.sampled_from([0.0, 10.0, 1e4, 1e6])),
                backlog_rows=draw(st.floats(0, 1e7)),
                offsets_wall_ts=NOW - draw(st.floats(0, 100)),
                sweep_pending=draw(st.booleans()),
                awaited=draw(st.booleans()),
                deadline_s=draw(st.none() | st.floats(0.1, 100)),
            )
        )
    return views


# The contract.


@every_policy
@settings(deadline=None, max_examples=40)
@given(views=_views(), seed=st.randoms(use_true_random=False))
def test_choices_do_not_depend_on_the_order_of_queries(name: str, views: list[QueryView], seed: Any):
    shuffled = list(views)
    seed.shuffle(shuffled)
    there = create(name).decide(measured(Snapshot(NOW, tuple(views), 2, 2, 2)))
    back = create(name).decide(measured(Snapshot(NOW, tuple(shuffled), 2, 2, 2)))
    assert {choice.key: choice for choice in there} == {choice.key: choice for choice in back}


@every_policy
@settings(deadline=None, max_examples=40)
@given(views=_views())
def test_choices_name_known_queries_once_with_finite_urgency_and_a_reason(name: str, views: list[QueryView]):
    choices = create(name).decide(_snapshot(*views))
    keys = [choice.key for choice in choices]
    assert len(keys) == len(set(keys))
    assert set(keys) <= {view.key for view in views}
    for choice in choices:
        assert math.isfinite(choice.urgency)
        assert choice.reason
        assert choice.wake_wall_ts is None or math.isfinite(choice.wake_wall_ts)


@every_policy
@settings(deadline=None, max_examples=40)
@given(views=_views())
def test_asking_twice_gives_the_same_answer(name: str, views: list[QueryView]):
    policy = create(name)
    assert policy.decide(_snapshot(*views)) == policy.decide(_snapshot(*views))


@every_policy
def test_no_queries_mean_no_choices(name: str):
    assert create(name).decide(_snapshot()) == []


@every_policy
def test_every_policy_says_in_one_line_what_it_does(name: str):
    assert create(name).name == name
    assert describe(name)


@st.composite
def _mixes(draw: DrawFn) -> list[SimulatedQuery]:
    """Queries of many kinds whose work fits two cores, so that waiting is the policy's doing and not overload."""
    queries = []
    for index in range(draw(st.integers(1, 6))):
        windowed = draw(st.booleans())
        size_s = draw(st.sampled_from([2.0, 5.0, 10.0, 60.0]))
        clumped = draw(st.booleans())
        queries.append(
            SimulatedQuery(
                f"q{index}",
                windows=(Window(size_s, size_s, draw(st.sampled_from([0.0, 1.3]))),) if windowed else (),
                delay_s=draw(st.sampled_from([0.0, 1.0, 5.0])) if windowed else None,
                rows_per_s=draw(st.sampled_from([10.0, 1000.0])),
                step_s=draw(st.sampled_from([0.5, 1.0, 7.0])) if clumped else None,
                lag_s=draw(st.sampled_from([0.0, 0.05, 2.0])),
                batch_cost_s=draw(st.sampled_from([0.05, 0.3, 1.0])),
                row_cost_s=draw(st.sampled_from([0.0, 1e-5])),
                stateful=windowed,
                emits_at_sweep=draw(st.booleans()),
                interval_s=draw(st.sampled_from([0.0, 3.0])),
                idle_s=((12.0, 31.0),) if draw(st.booleans()) else (),
                starts_at_s=draw(st.sampled_from([0.0, 5.0])),
                options=QueryOptions(priority_class=draw(st.sampled_from([0, 0, 1]))),
            )
        )
    return queries


MAX_WAIT_S = 6.0
LONGEST_BACK_OFF_S = 5.0
LONGEST_TICK_S = 0.5


@enforcing_policy
@pytest.mark.parametrize("lanes", [1, 2])
@settings(deadline=None, max_examples=8)
@given(queries=_mixes())
def test_nobody_starves(name: str, lanes: int, queries: list[SimulatedQuery]):
    engine = engine_for(name, EngineSettings(lanes=lanes, max_wait_s=MAX_WAIT_S))
    trace = run(engine, ScriptedDriver(queries), 60)
    longest_turn_s = max(turn.ended_wall_ts - turn.granted_wall_ts for turn in trace.turns[:-2] or trace.turns)
    # Those who have waited too long go in order of their waiting, so each may have all the others before it.
    queue_s = longest_turn_s * math.ceil(len(queries) / lanes)
    bound_s = max(MAX_WAIT_S, longest_turn_s + LONGEST_BACK_OFF_S) + queue_s + 2 * LONGEST_TICK_S
    for query in queries:
        seen = [NOW + query.starts_at_s, *(turn.granted_wall_ts for turn in trace.turns_of(query.name)), NOW + 60]
        assert max(b - a for a, b in pairwise(seen)) <= bound_s


@dataclass
class _Listening:
    """Passes a policy's choices on, and keeps the last ones."""

    policy: Policy
    enforces: bool = True
    snapshot: Snapshot | None = None
    choices: dict[str, Choice] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(getattr(self.policy, "needs", ()))

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        choices = self.policy.decide(snapshot)
        self.snapshot, self.choices = snapshot, {choice.key: choice for choice in choices}
        return choices


@enforcing_policy
@settings(deadline=None, max_examples=8)
@given(queries=_mixes())
def test_a_lane_is_idle_only_if_every_query_that_waits_says_why(name: str, queries: list[SimulatedQuery]):
    listening = _Listening(create(name))
    engine = engine_for(listening, EngineSettings(lanes=2))  # type: ignore[arg-type]
    for _, commands in steps(engine, ScriptedDriver(queries), 40):
        assert listening.snapshot is not None
        granted = {grant.key for grant in commands.grants}
        started = [grant for grant in commands.grants if grant.stage is Stage.DATA]
        if len(started) >= listening.snapshot.lanes_free:
            continue
        for view in listening.snapshot.queries:
            if view.eligible and view.key not in granted:
                assert not listening.choices[view.key].start
                assert listening.choices[view.key].reason
                assert listening.choices[view.key].wake_wall_ts is not None


@enforcing_policy
@settings(deadline=None, max_examples=8)
@given(queries=_mixes())
def test_windows_leave_in_order_and_once_each_and_watermarks_never_go_back(name: str, queries: list[SimulatedQuery]):
    trace = run(engine_for(name), ScriptedDriver(queries), 60)
    for query in queries:
        emissions = trace.emissions_of(query.name)
        ends = [emission.window_end_event_ts for emission in emissions]
        assert ends == sorted(set(ends))
        assert all(emission.latency_s > 0 for emission in emissions)
        watermarks = [batch.watermark_event_ts for batch in trace.batches_of(query.name)]
        assert watermarks == sorted(watermarks)


@enforcing_policy
def test_one_query_alone_emits_every_window_soon_after_its_watermark(name: str):
    query = SimulatedQuery("q", windows=(Window(10, 10),), delay_s=1.0, step_s=1.0, lag_s=0.05)
    trace = run(engine_for(name), ScriptedDriver([query]), 124)
    assert len(trace.emissions) == 12
    # The watermark can be read 2.05 s after the end; the two batches take 0.6 s; the rest is the scheduler's.
    assert max(emission.latency_s for emission in trace.emissions) < 2.65 + 1.0


@enforcing_policy
def test_a_smaller_priority_class_never_waits_for_a_greater_one(name: str):
    heavy = {"rows_per_s": 10_000.0, "row_cost_s": 3e-5, "windows": (Window(5, 5),), "delay_s": 0.0}
    crowd = [SimulatedQuery(f"q{i}", **heavy) for i in range(4)]  # type: ignore[arg-type]
    first = SimulatedQuery("vip", **heavy, options=QueryOptions(priority_class=-1))  # type: ignore[arg-type]
    trace = run(engine_for(name, EngineSettings(lanes=1)), ScriptedDriver([*crowd, first]), 60)
    vip = [emission.latency_s for emission in trace.emissions_of("vip")]
    rest = [emission.latency_s for query in crowd for emission in trace.emissions_of(query.name)]
    assert max(vip) < max(rest)
    assert sum(vip) / len(vip) < sum(rest) / len(rest)


# Round-robin, first come first served, earliest deadline.


def test_round_robin_goes_by_last_turn():
    views = [calm("a", last_turn_wall_ts=NOW - 3), calm("b", last_turn_wall_ts=NOW - 9), overdue("c")]
    assert _order(RoundRobin(), *views) == ["b", "a", "c"]


def test_round_robin_starts_everybody_who_may_start():
    assert set(_order(RoundRobin(), calm("a"), overdue("b"), calm("c", eligible=False))) == {"a", "b"}


def test_fcfs_goes_by_the_oldest_row():
    views = [
        calm("a", offsets_wall_ts=NOW - 2, last_turn_wall_ts=NOW - 50),
        calm("b", offsets_wall_ts=NOW - 7, last_turn_wall_ts=NOW - 1),
        calm("c", offsets_wall_ts=NOW - 4),
    ]
    assert _order(create("fcfs"), *views) == ["b", "c", "a"]


def test_edf_goes_by_the_end_of_the_window_whether_or_not_its_watermark_can_be_there():
    views = [
        calm("a", window_end_event_ts=NOW + 9, swm_wall_ts=NOW + 9.1),
        calm("b", window_end_event_ts=NOW + 2, swm_wall_ts=NOW + 60),
        calm("c", window_end_event_ts=NOW + 5, swm_wall_ts=NOW + 5.1),
    ]
    assert _order(create("edf"), *views) == ["b", "c", "a"]


def test_edf_takes_the_target_of_a_query_without_windows_for_its_deadline():
    stateless = calm("b", window_end_event_ts=None, swm_wall_ts=NOW + 3)
    assert _order(create("edf"), calm("a", window_end_event_ts=NOW + 4), stateless) == ["b", "a"]


def test_edf_runs_a_pending_sweep_before_windows_to_come():
    pending = calm("b", sweep_pending=True, swm_wall_ts=NOW - 0.5, window_end_event_ts=NOW + 60)
    assert _order(create("edf"), calm("a", window_end_event_ts=NOW + 1), pending) == ["b", "a"]


def test_observe_has_no_opinion():
    assert create("observe").decide(_snapshot(overdue("a"))) == []
    assert not create("observe").enforces


# Klink.


def test_query_past_its_sweep_runs_before_one_with_slack():
    assert _order(Klink(), calm("a"), overdue("b")) == ["b"]


def test_the_query_that_is_overdue_longest_runs_first():
    assert _order(Klink(), overdue("a", 0.5), overdue("b", 4.0), overdue("c", 2.0)) == ["b", "c", "a"]


def test_of_two_that_are_equally_due_the_dearer_runs_first():
    assert _order(Klink(), overdue("a"), overdue("b", batch_cost_s=2.0)) == ["b", "a"]


def test_a_query_with_slack_waits_and_says_until_when():
    choice = _choice(Klink(), calm("a"))
    assert not choice.start
    assert choice.wake_wall_ts is not None
    assert NOW < choice.wake_wall_ts <= NOW + 11.2
    assert "waits" in choice.reason


def test_a_pending_sweep_starts_at_once():
    assert _choice(Klink(), calm("a", sweep_pending=True)).start


def test_slack_shrinks_as_cost_grows():
    cheap, dear = _choice(Klink(), calm("a")), _choice(Klink(), calm("a", batch_cost_s=3.0))
    assert dear.urgency < cheap.urgency


def test_a_deadline_of_the_users_tightens_the_slack():
    plain, tight = _choice(Klink(), calm("a")), _choice(Klink(), calm("a", deadline_s=0.2))
    assert tight.urgency < plain.urgency


def _swm_near(row_cost_s: float, **changes: Any) -> QueryView:
    """The last batch was ten seconds ago, the watermark is a moment away, and a row costs so much."""
    near = {"swm_wall_ts": NOW + 0.5, "swm_sure_wall_ts": NOW + 0.7, "window_end_event_ts": NOW}
    return calm("a", offsets_wall_ts=NOW - 10, row_cost_s=row_cost_s, backlog_rows=10_000.0, **(near | changes))


def test_preparing_pays_only_where_the_rows_outweigh_the_batch():
    # 10 500 rows by then: 0.0 s of work against 0.3 s a batch, or 10.5 s.
    assert not _choice(Klink(), _swm_near(1e-9)).start
    heavy = _choice(Klink(), _swm_near(1e-3))
    assert heavy.start
    assert "prepares" in heavy.reason


def test_preparing_waits_for_its_time():
    far = _swm_near(1e-3, swm_wall_ts=NOW + 500, swm_sure_wall_ts=NOW + 501, rows_per_s=100.0)
    choice = _choice(Klink(), far)
    assert not choice.start
    assert choice.wake_wall_ts is not None
    assert choice.wake_wall_ts < NOW + 500


def test_the_knob_orders_how_much_is_prepared():
    def prepares(knob: Any, row_cost_s: float) -> bool:
        return _choice(Klink(knob), _swm_near(row_cost_s)).start

    for row_cost_s in (1e-9, 1e-5, 3e-5, 1e-4, 1e-3, 1e-2):
        assert not prepares("cost", row_cost_s)
        assert prepares("latency", row_cost_s) or not prepares("balanced", row_cost_s)


def test_queries_without_windows_are_never_prepared():
    assert not _choice(Klink("latency"), _swm_near(1e-2, window_end_event_ts=None)).start


def test_an_unknown_knob_is_refused_with_those_there_are():
    with pytest.raises(ConfigurationError, match="cost, balanced, latency"):
        Klink("fast")  # type: ignore[arg-type]


def test_klink_needs_far_fewer_batches_than_round_robin_for_results_as_soon():
    def trace_of(policy: str) -> tuple[float, int]:
        queries = [
            SimulatedQuery(f"q{i}", windows=(Window(10, 10, 1.25 * i),), delay_s=1.0, step_s=1.0, lag_s=0.05)
            for i in range(8)
        ]
        trace = run(engine_for(policy), ScriptedDriver(queries), 120)
        settled = [emission.latency_s for emission in trace.emissions if emission.emitted_wall_ts > NOW + 30]
        return sum(settled) / len(settled), len(trace.batches)

    (klink_s, klink_batches), (turns_s, turns_batches) = trace_of("klink"), trace_of("round-robin")
    assert klink_s < turns_s
    assert klink_batches < turns_batches / 2


def test_klink_is_as_quick_after_an_idle_time_as_before():
    query = SimulatedQuery("q", windows=(Window(10, 10),), delay_s=1.0, step_s=1.0, lag_s=0.05, idle_s=((53.0, 90.0),))
    trace = run(Engine(Klink(), RoundRobin()), ScriptedDriver([query]), 300)
    before = [e.latency_s for e in trace.emissions if NOW + 30 < e.window_end_event_ts <= NOW + 50]
    after = [e.latency_s for e in trace.emissions if e.window_end_event_ts > NOW + 200]
    assert min(after) < max(before) + 0.2


def test_klink_learns_a_lag_that_is_longer_than_a_step():
    query = SimulatedQuery("q", windows=(Window(10, 10),), delay_s=1.0, step_s=0.2, lag_s=1.0)
    trace = run(Engine(Klink(), RoundRobin()), ScriptedDriver([query]), 200)
    late = [turn for turn in trace.turns if turn.granted_wall_ts > NOW + 100]
    assert len(late) <= 1.5 * 10


def test_under_the_cost_knob_every_other_sweep_rides_with_the_next_windows_data():
    def batches_and_emissions(knob: Knob) -> tuple[int, int]:
        query = SimulatedQuery("q", windows=(Window(10, 10),), delay_s=1.0, step_s=1.0)
        trace = run(Engine(Klink(knob), RoundRobin()), ScriptedDriver([query]), 300)
        late = [turn for turn in trace.turns if turn.granted_wall_ts > NOW + 100]
        return sum(turn.batches for turn in late), len([e for e in trace.emissions if e.emitted_wall_ts > NOW + 100])

    balanced, cost = batches_and_emissions("balanced"), batches_and_emissions("cost")
    assert balanced[1] - 1 <= cost[1] <= balanced[1]
    assert cost[0] <= 0.8 * balanced[0]


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("qs", {"backlog_rows": 900.0}, {"backlog_rows": 100.0}),
        ("hr", {"selectivity": 0.9}, {"selectivity": 0.1}),
        ("chain", {"row_cost_s": 1e-5}, {"row_cost_s": 1e-3}),
        ("chain", {"offsets_wall_ts": NOW - 9}, {"offsets_wall_ts": NOW - 1}),
        ("min-cost", {"row_cost_s": 1e-6}, {"row_cost_s": 1e-3}),
        ("min-cost", {"backlog_rows": 1e6}, {"backlog_rows": 10.0}),
        ("min-latency", {"batch_cost_s": 0.1}, {"batch_cost_s": 2.0}),
        ("min-memory", {"state_bytes": 10**9}, {"state_bytes": 10**3}),
        ("min-memory", {"sweep_pending": True}, {"state_bytes": 10**9}),
        ("lsf", {"batch_cost_s": 5.0}, {"batch_cost_s": 0.1}),
        ("sbox", {"window_end_event_ts": NOW + 1}, {"window_end_event_ts": NOW + 5}),
        ("multi-class", {"priority_class": -1, "selectivity": 0.0}, {"priority_class": 0, "selectivity": 1.0}),
        ("multi-class", {"selectivity": 0.9}, {"selectivity": 0.1}),
    ],
)
def test_what_goes_first(name: str, first: dict[str, Any], second: dict[str, Any]):
    common = {"backlog_rows": 100.0, "row_cost_s": 1e-4, "window_end_event_ts": NOW + 3}
    views = [calm("b-first", **{**common, **first}), calm("a-second", **{**common, **second})]
    assert _order(create(name), *views) == ["b-first", "a-second"]


def test_highest_rate_looks_through_the_pipeline():
    """A query whose reader throws everything away brings nothing out, however productive it is itself."""
    views = [
        calm("a", selectivity=1.0, downstream=("z",), backlog_rows=10.0),
        calm("b", selectivity=0.5, backlog_rows=10.0),
        calm("z", selectivity=0.01, backlog_rows=10.0),
    ]
    assert _order(create("hr"), *views)[0] == "b"


def test_the_one_that_sbox_chose_stays_first_until_its_window_is_out():
    policy = create("sbox")
    chosen, later = calm("b", window_end_event_ts=NOW + 2), calm("a", window_end_event_ts=NOW + 3)
    assert _order(policy, chosen, later) == ["b", "a"]
    sooner = replace(later, window_end_event_ts=NOW + 1)
    assert _order(policy, chosen, sooner) == ["b", "a"]
    assert _order(policy, replace(chosen, window_end_event_ts=NOW + 12), sooner) == ["a", "b"]


def test_intermittent_waits_as_long_as_the_deadline_allows():
    view = overdue("q")
    assert _choice(create("intermittent"), view).start
    patient = replace(view, window_end_event_ts=NOW, deadline_s=60.0)
    choice = _choice(create("intermittent"), patient)
    assert not choice.start
    assert choice.wake_wall_ts == pytest.approx(NOW + 60.0 - patient.turn_cost_s)


def test_random_draws_anew_every_period_and_repeats_for_the_same_seed():
    views = [calm(key) for key in "abcdefgh"]
    snapshot = _snapshot(*views)
    orders = {
        tuple(c.key for c in create("random", seed=1).decide(replace(snapshot, wall_ts=NOW + i))) for i in range(10)
    }
    assert len(orders) > 5
    assert create("random", seed=1).decide(snapshot) == create("random", seed=1).decide(snapshot)
    assert create("random", seed=1).decide(snapshot) != create("random", seed=2).decide(snapshot)
