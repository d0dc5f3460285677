"""The simulated tuple-at-a-time engine: what must hold of any run, and small cases by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.core.engine import Engine, EngineSettings
from slackwater.core.model import Choice, QueryOptions, Window
from slackwater.errors import ConfigurationError
from slackwater.policies.assembly import engine_for
from slackwater.policies.round_robin import RoundRobin
from slackwater.sim.delays import Uniform, Zipf
from slackwater.sim.exact import mean_wait_s, waits_s
from slackwater.sim.flow import by_operator, crossings, evenly, in_order, sink_first
from slackwater.sim.pipelines import Bursts, DelayLaw, Operator, Pipeline, Scripted, Steady
from slackwater.sim.tuples import Machine, simulate

SMALL = Machine(cores=2, cycle_s=0.1, slices=4)


def _chain(name, *, cost_s=1e-3, selectivities=(1.0, 0.5, 1.0), source=None, window=None, **more):
    operators = tuple(Operator(f"op-{k}", cost_s, kept) for k, kept in enumerate(selectivities))
    return Pipeline(name, operators, source or Steady(100.0), window=window, **more)


def _queries(count, *, rate=100.0, **more):
    return [_chain(f"q-{query}", source=Steady(rate), window=Window(1.0, 1.0), **more) for query in range(count)]


class InOrderOfName:
    """First names first, whatever happens."""

    name = "by-name"
    enforces = True

    def decide(self, snapshot):
        return [Choice(query.key, False, float(place), "") for place, query in enumerate(snapshot.queries)]


class Freeing(InOrderOfName):
    """Everybody runs to free memory."""

    def decide(self, snapshot):
        return [Choice(query.key, False, 0.0, "", freeing=True) for query in snapshot.queries]


def _by_name(policy=None):
    return Engine(policy or InOrderOfName(), RoundRobin())


# ---- streams and delays ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clump_s", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("delays", [None, Uniform(1.0), Zipf()])
def test_everything_that_was_sent_arrives_and_nothing_leaves_again(clump_s, delays):
    times = np.linspace(0, 30, 3001)
    arrived = Steady(100.0, clump_s, starts_at_s=3.0, streams=2).arrived(times, DelayLaw(delays))
    assert arrived[0] == 0
    assert (np.diff(arrived) >= -1e-9).all()
    assert arrived[-1] == pytest.approx(2700, abs=100 * (clump_s + 1.0) + 1)


def test_delays_shift_a_steady_stream_by_their_mean():
    law = DelayLaw(Uniform(1.0))
    arrived = Steady(100.0).arrived(np.array([10.0]), law)
    assert arrived[0] == pytest.approx(100 * (10 - law.moments[0]), rel=1e-3)


def test_a_clump_arrives_as_its_delays_let_it():
    arrived = Steady(100.0, clump_s=2.0).arrived(np.array([1.99, 2.5, 3.01]), DelayLaw(Uniform(1.0)))
    assert arrived == pytest.approx([0.0, 100.0, 200.0], abs=2)


def test_bursts_are_silent_in_between():
    arrived = Bursts(100.0, on_s=5, off_s=15).arrived(np.array([5.0, 19.0, 22.0]), DelayLaw(None))
    assert arrived.tolist() == [500.0, 500.0, 700.0]


# ---- flow -----------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=8), st.floats(0.01, 30))
def test_even_shares_use_all_that_is_wanted_and_nobody_gets_less_than_another_but_by_choice(demand, total):
    wanted = np.array(demand)
    given_ = evenly(wanted, total)
    assert given_.sum() == pytest.approx(min(total, wanted.sum()))
    short = given_ < wanted - 1e-9
    if short.any():
        assert given_[short] == pytest.approx(given_.max())


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=8), st.floats(0.01, 30), st.randoms())
def test_the_first_in_order_get_what_they_want_before_the_next_get_anything(demand, total, chance):
    wanted, order = np.array(demand), np.arange(len(demand))
    chance.shuffle(order)
    given_ = in_order(wanted, order, total)
    assert given_.sum() == pytest.approx(min(total, wanted.sum()))
    short = np.flatnonzero(given_[order] < wanted[order] - 1e-9)
    if len(short):
        assert given_[order][short[0] + 1 :] == pytest.approx(0)


def test_events_nearest_to_the_sink_go_first():
    # 10 wait in front of the last operator, 10 in front of the first; there is time for 10 events at one operator.
    pointers = np.array([[20.0, 10.0, 10.0, 0.0]])
    moved = sink_first(pointers, np.full((1, 3), 0.1), slice_s=10.0, budget_s=np.array([1.0]))
    assert moved.tolist() == [[0.0, 0.0, 10.0]]


def test_an_operator_never_works_longer_than_the_slice():
    pointers = np.array([[100.0, 0.0, 0.0]])
    moved = sink_first(pointers, np.array([[0.1, 0.2]]), slice_s=1.0, budget_s=np.array([np.inf]))
    assert moved.tolist() == [[5.0, 5.0]]


def test_only_the_prefix_runs():
    pointers = np.array([[100.0, 0.0, 0.0, 0.0]])
    moved = sink_first(pointers, np.full((1, 3), 0.1), 1.0, np.array([np.inf]), np.array([1]))
    assert moved.tolist() == [[10.0, 10.0, 0.0]]


def test_operators_that_compete_pass_events_on_within_a_slice():
    pointers = np.array([[10.0, 0.0, 0.0]])
    moved = by_operator(pointers, np.full((1, 2), 0.01), 1.0, 1.0, evenly)
    assert moved.tolist() == [[10.0, 10.0]]


def test_a_curve_is_crossed_where_it_first_reaches_a_place():
    found = crossings(
        np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 10.0, 10.0, 20.0]), np.array([5.0, 10.0, 15.0, 99.0])
    )
    assert found.tolist() == [0.5, 1.0, 2.5, np.inf]


# ---- whole runs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [None, "fcfs", "klink", "round-robin", "hr"])
@pytest.mark.parametrize("held", ["broker", "generator"])
def test_what_went_in_has_come_out_or_waits(policy, held):
    machine = Machine(cores=1, cycle_s=0.1, memory_bytes=20_000.0, held=held, collector=0.1)
    engine = engine_for(policy) if policy else None
    run = simulate(_queries(3, rate=300.0, event_bytes=100.0), machine, 5.0, engine=engine, delays=Uniform(0.3))
    shares = run.pipelines[0].shares
    assert (np.diff(run.left, axis=0) >= -1e-9).all()
    assert (run.left <= run.entered + 1e-6).all()
    assert (run.entered <= run.offered + 1e-6).all()
    assert run.processed[0] == pytest.approx(run.taken[-1].sum())
    inside = run.entered[-1].sum() - run.processed[0]
    waits = run.processed[:-1] * np.array([1.0, 0.5]) - run.processed[1:]
    assert run.queued[-1] == pytest.approx(inside + waits.sum(), abs=1e-3)
    assert len(shares) == 3
    assert run.busy_cores.max() <= 1.0 + 1e-9


@pytest.mark.parametrize("entities", ["queries", "operators"])
def test_the_same_seed_gives_the_same_run_and_another_one_another(entities):
    machine = Machine(cores=1, cycle_s=0.1, entities=entities)

    def left(seed):
        run = simulate(_queries(3, rate=300.0), machine, 3.0, engine=engine_for("fcfs"), delays=Uniform(), seed=seed)
        return run.left, run.latencies_s()[0]

    assert np.array_equal(left(1)[0], left(1)[0])
    assert np.array_equal(left(1)[1], left(1)[1])
    assert not np.array_equal(left(1)[1], left(2)[1])


@pytest.mark.parametrize("policy", [None, "klink"])
def test_watermarks_leave_in_order_and_never_before_they_arrive(policy):
    engine = engine_for(policy) if policy else None
    run = simulate(_queries(4, rate=400.0), SMALL, 6.0, engine=engine, delays=Uniform())
    for query in range(4):
        exits = run.exits_s(query)
        assert (np.diff(exits[np.isfinite(exits)]) >= 0).all()
        assert (exits >= run.swept[query].arrives_s[: len(exits)]).all()


def test_an_idle_machine_adds_nothing_but_the_passage_of_one_event():
    run = simulate(_queries(1, rate=10.0), SMALL, 8.0, engine=engine_for("klink"), delays=Uniform())
    _, propagation = run.latencies_s()
    assert propagation[:-1] == pytest.approx(run.pipelines[0].passage_s, abs=1e-3)


def test_two_equal_queries_share_the_processor():
    # Each wants all of one core.
    run = simulate(_queries(2, rate=1000.0, selectivities=(1.0,)), Machine(cores=1, cycle_s=0.1), 4.0, engine=None)
    assert run.left[-1] == pytest.approx([2000.0, 2000.0])
    assert run.busy_cores.mean() == pytest.approx(1.0)


@pytest.mark.parametrize("entities", ["queries", "operators"])
def test_who_is_more_urgent_runs_first_and_the_rest_goes_to_the_next(entities):
    machine = Machine(cores=1, cycle_s=0.1, entities=entities)
    run = simulate(_queries(3, rate=700.0, selectivities=(1.0,)), machine, 4.0, engine=_by_name())
    assert run.left[-1] == pytest.approx([2800.0, 1200.0, 0.0])


def test_classes_go_before_what_a_policy_says():
    queries = _queries(2, rate=900.0, selectivities=(1.0,))
    late = _chain("z", source=Steady(900.0), selectivities=(1.0,), options=QueryOptions(priority_class=-1))
    run = simulate([*queries, late], Machine(cores=1, cycle_s=0.1), 4.0, engine=_by_name())
    assert run.left[-1] == pytest.approx([400.0, 0.0, 3600.0])


def test_round_robin_lets_everybody_run_alike():
    run = simulate(_queries(4, rate=900.0), Machine(cores=1, cycle_s=0.1), 8.0, engine=engine_for("round-robin"))
    assert run.left[-1].min() > 0.7 * run.left[-1].max()


def test_fcfs_keeps_ages_alike():
    engine = engine_for("fcfs")
    queries = [_chain(f"q-{rate}", source=Steady(rate), selectivities=(1.0,)) for rate in (300.0, 900.0)]
    run = simulate(queries, Machine(cores=1, cycle_s=0.1), 10.0, engine=engine)
    ages = [run.ages_s(query)[2][-5:].mean() for query in range(2)]
    assert ages[0] == pytest.approx(ages[1], abs=0.3)
    assert run.left[-1].sum() == pytest.approx(10_000, rel=0.01)


@pytest.mark.parametrize("held", ["broker", "generator"])
def test_back_pressure_holds_the_bound(held):
    machine = Machine(cores=1, cycle_s=0.1, memory_bytes=50_000.0, held=held)
    run = simulate(_queries(3, rate=2000.0, event_bytes=100.0), machine, 5.0, engine=engine_for("fcfs"))
    assert run.memory_bytes.max() <= 50_000.0 * 1.001
    assert run.memory_bytes[-10:].mean() > 0.9 * 50_000.0
    assert run.entered[-1].sum() < 0.5 * run.offered[-1].sum()


def test_what_waits_in_a_broker_counts_as_latency_and_what_is_never_sent_does_not():
    def mean_s(held):
        machine = Machine(cores=1, cycle_s=0.1, memory_bytes=50_000.0, held=held)
        queries = _queries(3, rate=2000.0, event_bytes=100.0)
        return simulate(queries, machine, 20.0, engine=engine_for("fcfs")).latencies_s()[0].mean()

    assert mean_s("broker") > 3 * mean_s("generator")


def test_freeing_queries_run_only_up_to_the_operator_that_frees_most():
    queries = _queries(2, rate=2000.0, selectivities=(1.0, 0.01, 2.0), event_bytes=100.0)
    run = simulate(queries, Machine(cores=1, cycle_s=0.1), 3.0, engine=_by_name(Freeing()))
    assert run.processed[1] > 0
    # In the first cycle nothing is queued yet, so nothing says where to stop.
    first_cycle = 2 * 2000.0 * 0.1
    assert run.left[-1].sum() <= first_cycle


def test_a_fuller_heap_makes_work_dearer_and_stays_finite():
    machine = Machine(memory_bytes=1e9, collector=0.05)
    slow = [machine.slowdown(share * 1e9) for share in (0.0, 0.5, 1.0, 5.0)]
    assert slow[0] == 1.0
    assert slow[0] < slow[1] < slow[2]
    assert slow[-2:] == pytest.approx([1 + 0.05 * 9] * 2)
    assert Machine(memory_bytes=1e9).slowdown(1e9) == 1.0


def test_the_engine_learns_cost_rate_and_delay_from_the_driver():
    engine = engine_for("klink", EngineSettings(max_wait_s=1e9))
    simulate(_queries(2, rate=1000.0, cost_s=1e-4), SMALL, 12.0, engine=engine, delays=Uniform(0.4))
    view = engine.views[0]
    assert view.row_cost_s == pytest.approx(2.5e-4, rel=0.05)
    assert view.batch_cost_s == 0
    assert view.window_end_event_ts is not None
    assert view.swm_wall_ts - view.window_end_event_ts == pytest.approx(0.2, abs=0.02)


def test_operators_are_chained_for_the_metrics():
    engine = engine_for("hr")
    simulate(_queries(1), Machine(cores=1, cycle_s=0.1, entities="operators"), 1.0, engine=engine)
    assert [view.downstream for view in engine.views] == [("q-0/01",), ("q-0/02",), ()]


def test_queries_of_different_lengths_are_refused():
    with pytest.raises(ConfigurationError, match="equally many"):
        simulate([_chain("a"), _chain("b", selectivities=(1.0,))], SMALL, 1.0, engine=None)


def test_a_machine_without_cores_is_refused():
    with pytest.raises(ConfigurationError, match="cores"):
        Machine(cores=0)


# ---- against queueing theory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cv2", "load"), [(1.0, 0.5), (1.0, 0.7), (0.0, 0.5), (0.0, 0.7)])
def test_mean_waits_are_those_of_queueing_theory(cv2, load):
    """M/M/1 and M/D/1; 400 000 events leave an error of a few per cent at these loads."""
    rng = np.random.default_rng(7)
    arrivals = np.cumsum(rng.exponential(1 / load, 400_000))
    services = rng.exponential(1.0, 400_000) if cv2 else np.ones(400_000)
    assert waits_s(arrivals, services).mean() == pytest.approx(mean_wait_s(load, 1.0, service_cv2=cv2), rel=0.05)


@pytest.mark.parametrize("cv2", [1.0, 0.0])
def test_the_fluid_engine_agrees_event_by_event_where_a_slice_is_short_against_a_service(cv2):
    """One event a cohort: its size is its service time, the operator's cost 1 s."""
    rng = np.random.default_rng(5)
    count, load = 150, 0.7
    arrivals = np.cumsum(rng.exponential(1 / load, count))
    services = rng.exponential(1.0, count) if cv2 else np.ones(count)
    source = Scripted(tuple(arrivals.tolist()), tuple(services.tolist()))
    one = Pipeline("one", (Operator("server", 1.0),), source)
    machine = Machine(cores=1, cycle_s=0.2, slices=10)
    run = simulate([one], machine, float(arrivals[-1]) + 60, engine=None)
    left = crossings(run.times_s, run.left[:, 0] + 1e-9, np.cumsum(services))
    exact = arrivals + waits_s(arrivals, services) + services
    assert np.abs(left - exact).max() <= 2 * machine.slice_s
