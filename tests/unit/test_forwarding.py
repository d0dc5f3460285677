"""Chained queries in virtual time: what they tell each other, when it helps, and what silence or nonsense does."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.core.downstream import Downstream, Expects
from slackwater.core.engine import Engine, EngineSettings
from slackwater.core.model import BatchReport, Commands, QueryOptions, Window
from slackwater.core.places import normalised
from slackwater.core.swm import Arrival
from slackwater.core.words import (
    MOST_HOPS,
    Demand,
    Heard,
    Ready,
    Sight,
    Supply,
    Words,
    heeded,
    nonsense,
)
from slackwater.errors import ConfigurationError
from slackwater.policies.assembly import engine_for
from slackwater.testing import START_WALL_TS, ScriptedDriver, SimulatedQuery, Trace, run

NOW = START_WALL_TS
TUMBLING = Window(10.0, 10.0)
DEMAND = Demand("file:/lake", (TUMBLING,), 1.0, NOW, 0.5, ("reader",))


def scheduler(policy: str = "klink") -> Engine:
    return engine_for(
        policy, EngineSettings(lanes=1, hold_for_readers=True), knob="balanced", memory_bound=0.75, period_s=None
    )


def pipeline(name: str = "", offset_s: float = 0.0, **enriching) -> list[SimulatedQuery]:
    return [
        SimulatedQuery(f"a{name}", stateful=False, lag_s=0.05, batch_cost_s=0.4, row_cost_s=1e-5, **enriching),
        SimulatedQuery(
            f"b{name}", (Window(10, 10, offset_s),), delay_s=1, reads_from=f"a{name}", batch_cost_s=0.3, row_cost_s=1e-5
        ),
    ]


def pipelines(count: int) -> list[SimulatedQuery]:
    return [query for i in range(count) for query in pipeline(str(i), 10 * i / count)]


def two_applications(queries, *, seconds: float, forwards=lambda now: True, policy: str = "klink"):
    """Names that begin with a in one scheduler, with b in another; they hear each other while `forwards` says so."""
    driver = ScriptedDriver(queries)
    engines = {"a": scheduler(policy), "b": scheduler(policy)}
    until, commands = driver.clock.now() + seconds, Commands(wake_after_s=0.01)
    heard: dict[str, tuple[Heard, ...]] = {"a": (), "b": ()}
    while driver.clock.now() < until:
        report = driver.exchange(commands)
        answers = {}
        for name, engine in engines.items():
            other = "b" if name == "a" else "a"
            if forwards(report.wall_ts - NOW):
                words = engines[other].words()
                heard[name] = (Heard(words.to(engine.words().reads, engine.words().writes), report.wall_ts + 3.0),)
            engine.hear(heard[name])
            mine = tuple(query for query in report.queries if query.key.startswith(name))
            answers[name] = engine.step(replace(report, queries=mine))
        commands = Commands(
            grants=answers["a"].grants + answers["b"].grants,
            wake_after_s=min(answer.wake_after_s for answer in answers.values()),
        )
    return driver.trace, engines


def mean_latency_s(trace: Trace, after_s: float = 40.0) -> float:
    found = [emission.latency_s for emission in trace.emissions if emission.window_end_event_ts > NOW + after_s]
    return sum(found) / len(found)


def starts_s(trace: Trace, query: str, after_s: float, before_s: float = math.inf) -> list[float]:
    found = [batch.offsets_wall_ts - NOW for batch in trace.batches_of(query)]
    return [start for start in found if after_s < start < before_s]


# ---- places ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["/data/a", "/data/a/", "file:/data/a", "file:///data/a", "/data//a", " /data/a"])
def test_a_folder_is_one_place_however_it_is_spelt(spelling):
    assert normalised(spelling) == "file:/data/a"


def test_other_places_keep_their_names():
    assert normalised("hdfs://node:9000/a//b/") == "hdfs://node:9000/a/b"
    assert normalised("topic:clicks@broker:9092") == "topic:clicks@broker:9092"


def test_places_can_be_declared_and_are_brought_to_one_spelling():
    options = QueryOptions(reads=("/in/",), writes="file:///out")
    assert (options.reads, options.writes) == (("file:/in",), "file:/out")
    with pytest.raises(ConfigurationError, match="a tuple of places"):
        QueryOptions(reads="/in")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="name of a place"):
        QueryOptions(writes="")


# ---- where turns are placed ----------------------------------------------------------------------------------------


def test_alone_a_query_without_windows_runs_on_a_rhythm_of_its_own():
    trace, _ = two_applications(pipeline(), seconds=60, forwards=lambda now: False)
    starts = starts_s(trace, "a", 30)
    assert len(starts) >= 12
    assert all(later - sooner < 2.6 for sooner, later in pairwise(starts))


def test_with_forwarding_it_runs_when_the_row_that_sweeps_its_readers_window_has_come():
    trace, _ = two_applications(pipeline(), seconds=80)
    # A window's end, a second of watermark delay, and 50 ms until the row can be read.
    starts = starts_s(trace, "a", 40)
    assert len(starts) == 4
    assert all(1.05 <= start % 10 < 1.3 for start in starts)


def test_a_reader_starts_when_its_writer_has_written_and_not_before():
    trace, _ = two_applications(pipeline(), seconds=80)
    written = [batch.ended_wall_ts - NOW for batch in trace.batches_of("a") if batch.offsets_wall_ts > NOW + 40]
    read = [
        batch.offsets_wall_ts - NOW
        for batch in trace.batches_of("b")
        if batch.rows and batch.offsets_wall_ts > NOW + 40
    ]
    assert [pytest.approx(wall_s, abs=0.02) for wall_s in written] == read


@pytest.mark.parametrize("policy", ["klink", "intermittent"])
def test_a_chain_within_one_application_needs_no_network(policy):
    together = run(scheduler(policy), ScriptedDriver(pipelines(2)), 60)
    apart, _ = two_applications(pipelines(2), seconds=60, forwards=lambda now: False, policy=policy)
    assert len(starts_s(together, "a0", 30)) < len(starts_s(apart, "a0", 30))
    assert mean_latency_s(together, 30) < mean_latency_s(apart, 30)


@pytest.mark.parametrize("count", [4, 8])
def test_results_of_chained_applications_leave_a_fifth_sooner_with_forwarding(count):
    without, _ = two_applications(pipelines(count), seconds=80, forwards=lambda now: False)
    with_it, _ = two_applications(pipelines(count), seconds=80)
    assert mean_latency_s(with_it) <= 0.8 * mean_latency_s(without)
    assert len(with_it.batches) < len(without.batches)


def test_a_source_that_gives_rows_by_the_second_is_met_at_its_seconds():
    trace, _ = two_applications(pipeline(step_s=1.0), seconds=120)
    # 11 s: the row past the end and the delay is in the second that ends at 12 s.
    # Now and then one comes a little too early, to learn how long a second's rows take, and comes again.
    met = [start for start in starts_s(trace, "a", 70) if 2.0 < start % 10 < 2.4]
    assert len(met) == 5
    assert len(starts_s(trace, "a", 70)) <= 7


def test_a_latency_that_the_user_asked_for_holds_whatever_readers_wait_for():
    trace, _ = two_applications(pipeline(options=QueryOptions(target_latency_s=3.0)), seconds=80)
    starts = starts_s(trace, "a", 40)
    assert all(later - sooner < 3.6 for sooner, later in pairwise(starts))


def test_within_an_application_the_target_latency_holds_beside_what_readers_wait_for():
    settings = EngineSettings(lanes=1)
    alone = engine_for("klink", settings, knob="balanced", memory_bound=0.75, period_s=None)
    trace = run(alone, ScriptedDriver(pipeline()), 80)
    starts = starts_s(trace, "a", 40)
    assert all(later - sooner < 2.6 for sooner, later in pairwise(starts))
    assert sum(1.0 <= start % 10 < 1.6 for start in starts) >= 3, "and turns come where a window waits for them"


def test_words_go_hop_by_hop_and_each_adds_what_it_costs():
    chain = [
        SimulatedQuery("a1", stateful=False, batch_cost_s=0.4),
        SimulatedQuery("a2", stateful=False, batch_cost_s=0.2, reads_from="a1"),
        SimulatedQuery("b", (TUMBLING,), delay_s=1, batch_cost_s=0.3, reads_from="a2"),
    ]
    trace, engines = two_applications(chain, seconds=80)
    (at_a1,) = [demand for demand in engines["a"].words().demands if demand.place == "a1"]
    (at_a2,) = [demand for demand in engines["b"].words().demands if demand.place == "a2"]
    assert at_a1.path == ("a2", "b")
    assert at_a2.path == ("b",)
    assert at_a1.windows == at_a2.windows == (TUMBLING,)
    assert at_a2.cost_s == pytest.approx(0.6, abs=0.05)
    assert at_a1.cost_s == pytest.approx(0.8, abs=0.05)
    assert all(1.0 <= start % 10 < 1.3 for start in starts_s(trace, "a1", 40))


def test_of_several_readers_the_first_that_waits_decides():
    readers = [
        SimulatedQuery("b1", (Window(10, 10, 0),), delay_s=1, reads_from="a", batch_cost_s=0.1),
        SimulatedQuery("b2", (Window(10, 10, 5),), delay_s=1, reads_from="a", batch_cost_s=0.1),
    ]
    trace, _ = two_applications([pipeline()[0], *readers], seconds=80)
    starts = starts_s(trace, "a", 40)
    assert len(starts) == 8
    assert all(1.05 <= start % 5 < 1.3 for start in starts)


def test_a_cycle_of_queries_does_not_blow_up():
    demand = replace(DEMAND, path=("a", "b"))
    assert heeded([demand, DEMAND], "a") == (DEMAND,)
    queries = [
        SimulatedQuery("a", stateful=False, options=QueryOptions(reads=("x",), writes="y")),
        SimulatedQuery("b", stateful=False, options=QueryOptions(reads=("y",), writes="x")),
        SimulatedQuery("c", (TUMBLING,), delay_s=1, options=QueryOptions(reads=("y",))),
    ]
    engine = scheduler()
    run(engine, ScriptedDriver(queries), 60)
    demands = engine.words().demands
    assert 1 <= len(demands) <= 4
    assert all(len(demand.path) == len(set(demand.path)) for demand in demands)
    assert all(demand.cost_s < 5 for demand in demands)


# ---- silence -------------------------------------------------------------------------------------------------------


def test_a_neighbour_that_falls_silent_leaves_local_knowledge_and_is_heeded_again_when_it_is_back():
    lost_s, back_s = 60.0, 100.0
    trace, _ = two_applications(pipeline(), seconds=160, forwards=lambda now: not lost_s < now < back_s)
    alone = starts_s(trace, "a", lost_s + 6, back_s)
    assert all(later - sooner < 2.6 for sooner, later in pairwise(alone))
    assert len(alone) >= 12
    assert len(starts_s(trace, "a", 40, lost_s)) == 2
    assert len(starts_s(trace, "a", 120, 160)) == 4
    # Every window came out, before, meanwhile and after.
    ends = [emission.window_end_event_ts - NOW for emission in trace.emissions_of("b")]
    assert ends == [pytest.approx(10.0 * i) for i in range(1, len(ends) + 1)]
    assert len(ends) >= 15


def test_a_reader_whose_writer_falls_silent_goes_by_its_own_estimate():
    trace, engines = two_applications(pipeline(), seconds=90, forwards=lambda now: now < 60)
    late = [emission for emission in trace.emissions_of("b") if emission.window_end_event_ts > NOW + 60]
    assert len(late) >= 2
    state = engines["b"].state("b")
    assert state is not None
    assert state.view(NOW + 90).swm_sure_wall_ts < NOW + 110


def test_a_reader_that_is_gone_gives_its_writer_its_own_rhythm_back():
    first, reader = pipeline()
    trace = run(scheduler(), ScriptedDriver([first, replace(reader, fails_at_s=50.0)]), 90)
    assert len(starts_s(trace, "a", 30, 50)) == 2
    assert len(starts_s(trace, "a", 55, 90)) >= 12


# ---- learning from what readers saw ----------------------------------------------------------------------------------


def batch(offsets_s: float, ended_s: float) -> BatchReport:
    return BatchReport(0, NOW + offsets_s, NOW + ended_s, ended_s - offsets_s, 100, 0.0)


def test_a_readers_maximum_tells_the_lag_of_the_batch_that_wrote_it():
    known = Downstream()
    known.observe(batch(10.0, 10.5))
    known.observe(batch(20.0, 20.5))
    known.hear((replace(DEMAND, sight=Sight(NOW + 15.0, NOW + 9.7)),))
    assert known.sight == Sight(NOW + 10.0, NOW + 9.7)
    assert known.arrival(NOW + 100.0).wall_ts == pytest.approx(NOW + 100.3)


def test_a_reader_that_looked_while_a_batch_was_writing_tells_nothing():
    known = Downstream()
    known.observe(batch(10.0, 10.5))
    known.observe(batch(20.0, 20.5))
    known.hear((replace(DEMAND, sight=Sight(NOW + 20.2, NOW + 19.9)),))
    assert known.sight is None


def test_an_event_that_the_reader_did_not_find_is_looked_for_again():
    known = Downstream()
    known.observe(batch(11.2, 11.6))
    expects = Expects(lambda event_ts: Arrival(event_ts, 0.0), 0.0, 1.6)
    known.hear((DEMAND,))
    need = known.need(expects)
    assert need is not None
    assert need.end_event_ts == NOW + 20.0
    known.hear((replace(DEMAND, sight=Sight(NOW + 12.0, NOW + 10.5)),))
    again = known.need(expects)
    assert again is not None
    assert again.end_event_ts == NOW + 10.0
    assert again.arrival.wall_ts > NOW + 11.6


# ---- nonsense ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        replace(DEMAND, cost_s=math.nan),
        replace(DEMAND, cost_s=-1.0),
        replace(DEMAND, cost_s=1e9),
        replace(DEMAND, delay_s=-1.0),
        replace(DEMAND, delay_s=math.inf),
        replace(DEMAND, after_event_ts=NOW + 1e9),
        replace(DEMAND, after_event_ts=math.nan),
        replace(DEMAND, windows=()),
        replace(DEMAND, windows=(Window(10.0, 0.0),)),
        replace(DEMAND, windows=(Window(math.nan, 1.0),)),
        replace(DEMAND, windows=(Window(10.0, 10.0, math.inf),)),
        replace(DEMAND, windows=(TUMBLING,) * 17),
        replace(DEMAND, path=()),
        replace(DEMAND, path=("q",) * (MOST_HOPS + 1)),
        replace(DEMAND, sight=Sight(math.nan, NOW)),
        replace(DEMAND, sight=Sight(NOW, NOW + 1e9)),
    ],
)
def test_a_demand_that_nobody_can_mean_is_found(wrong):
    assert nonsense(Words(demands=(DEMAND,)), NOW) is None
    assert nonsense(Words(demands=(DEMAND, wrong)), NOW) is not None


@pytest.mark.parametrize(
    "wrong",
    [
        Ready(math.nan, NOW, 0.0, done=True),
        Ready(NOW, NOW + 1e9, 0.0, done=True),
        Ready(NOW, NOW, -1.0, done=True),
    ],
)
def test_a_supply_that_nobody_can_mean_is_found(wrong):
    right = Supply("file:/lake", NOW, (Ready(NOW, NOW, 0.0, done=True),), ("writer",))
    assert nonsense(Words(supplies=(right,)), NOW) is None
    assert nonsense(Words(supplies=(replace(right, ready=(wrong,)),)), NOW) is not None


def test_too_many_words_are_refused():
    assert nonsense(Words(demands=(DEMAND,) * 513), NOW) is not None


times = st.floats(-20.0, 400.0)


@settings(deadline=None)
@given(
    ends=st.lists(st.tuples(st.floats(0.0, 300.0), st.floats(0.01, 5.0)), max_size=8),
    after_s=times,
    delay_s=st.floats(0.0, 30.0),
    slide_s=st.floats(0.1, 60.0),
    sights=st.lists(st.tuples(times, times), max_size=5),
)
def test_whatever_neighbours_say_a_need_is_finite_and_a_window_end_they_still_wait_for(
    ends, after_s, delay_s, slide_s, sights
):
    known = Downstream()
    for offsets_s, took_s in sorted(ends):
        known.observe(batch(offsets_s, offsets_s + took_s))
    demand = Demand("p", (Window(slide_s, slide_s),), delay_s, NOW + after_s, 0.5, ("r",))
    known.hear((demand,))
    for wall_s, event_s in sights:
        known.hear((replace(demand, sight=Sight(NOW + wall_s, NOW + event_s)),))
    expects = Expects(known.arrival, known.lag_s(), 1.6)
    need = known.need(expects)
    assert need is not None
    assert math.isfinite(need.arrival.wall_ts)
    assert need.arrival.sigma_s >= 0
    assert need.end_event_ts > NOW + after_s - 1e-6
    supply = known.supplies("p", "w", 0.1, expects)
    assert nonsense(Words(supplies=(supply,)), NOW + 400) is None
