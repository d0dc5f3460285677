"""The stand-in for Spark does what Spark does."""

from __future__ import annotations

import math
from typing import Any

import pytest

from slackwater.core.engine import Engine, EngineSettings
from slackwater.core.model import Commands, Grant, Report, Stage, Window
from slackwater.policies.observe import Observe
from slackwater.policies.registry import create
from slackwater.policies.round_robin import RoundRobin
from slackwater.testing import START_WALL_TS as START
from slackwater.testing import FakeClock, Garbage, ScriptedDriver, SimulatedQuery, TaskOrder, cpu_speed, run


def _query(name: str = "q", **changes: Any) -> SimulatedQuery:
    settings: dict[str, Any] = {"windows": (Window(10, 10),), "delay_s": 1.0, "batch_cost_s": 0.5}
    return SimulatedQuery(name, **(settings | changes))


def _let(driver: ScriptedDriver, seconds: float) -> Report:
    """Nobody is granted anything for so long."""
    until = driver.clock.now() + seconds
    report = driver.exchange(Commands(wake_after_s=seconds))
    while driver.clock.now() < until:
        report = driver.exchange(Commands(wake_after_s=until - driver.clock.now()))
    return report


def _grant(driver: ScriptedDriver, report: Report, name: str = "q", stage: Stage = Stage.DATA) -> Report:
    (wait_no,) = [query.wait_no for query in report.queries if query.key == name]
    return driver.exchange(Commands((Grant(name, wait_no, stage, "test"),), wake_after_s=100.0))


def test_a_clock_moves_only_when_told_and_never_back():
    clock = FakeClock(5.0)
    clock.advance(2.5)
    assert clock.now() == 7.5
    clock.set(9.0)
    assert clock.now() == 9.0
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)


def test_a_query_waits_at_its_gate_until_it_is_granted():
    driver = ScriptedDriver([_query()])
    report = _let(driver, 30)
    assert report.queries[0].waiting
    assert report.queries[0].wait_no == 1
    assert driver.trace.batches == []


def test_facts_are_told_once():
    driver = ScriptedDriver([_query()])
    first, second = driver.exchange(Commands()), driver.exchange(Commands())
    assert first.queries[0].facts is not None
    assert second.queries[0].facts is None


def test_a_batch_takes_what_has_arrived_at_its_start_and_lasts_as_long_as_its_rows():
    driver = ScriptedDriver([_query(rows_per_s=100.0, row_cost_s=0.001)])
    report = _grant(driver, _let(driver, 20))
    (batch,) = report.queries[0].batches
    assert batch.rows == 2000
    assert batch.offsets_wall_ts == START + 20
    assert batch.duration_s == pytest.approx(0.5 + 2.0)
    assert batch.inputs[0].max_event_ts == pytest.approx(START + 19.99)


def test_the_watermark_is_applied_and_windows_leave_with_the_next_batch():
    driver = ScriptedDriver([_query(rows_per_s=100.0, idle_s=((20.0, math.inf),))])
    report = _grant(driver, _let(driver, 20))
    assert report.queries[0].batches[0].watermark_event_ts == 0
    assert report.queries[0].next_watermark_event_ts == pytest.approx(START + 18.99)
    assert driver.trace.emissions == []
    report = _grant(driver, report, stage=Stage.SWEEP)
    assert report.queries[0].batches[0].watermark_event_ts == pytest.approx(START + 18.99)
    (emission,) = driver.trace.emissions
    assert (emission.window_end_event_ts, emission.rows) == (START + 10, 1000)
    assert emission.latency_s == pytest.approx(11.0)


def test_a_trigger_without_rows_or_a_moved_watermark_is_no_batch():
    driver = ScriptedDriver([_query(idle_s=((0.0, math.inf),))])
    report = _grant(driver, _let(driver, 5))
    assert report.queries[0].batches == ()
    assert report.queries[0].wait_no == 2
    assert driver.clock.now() < START + 5.1


def test_rows_in_clumps_can_be_read_only_when_their_clump_is_over():
    driver = ScriptedDriver([_query(rows_per_s=100.0, step_s=5.0, lag_s=0.3)])
    assert _grant(driver, _let(driver, 10.2)).queries[0].batches[0].rows == 500
    driver = ScriptedDriver([_query(rows_per_s=100.0, step_s=5.0, lag_s=0.3)])
    assert _grant(driver, _let(driver, 10.4)).queries[0].batches[0].rows == 1000


def test_no_rows_come_in_idle_times_and_windows_without_rows_do_not_exist():
    query = _query(rows_per_s=100.0, idle_s=((10.0, 40.0),))
    assert query.rows_before(60.0) == 3000
    assert query.event_s(1000) == 40.0
    trace = run(Engine(Observe(), RoundRobin()), ScriptedDriver([query]), 65)
    assert [e.window_end_event_ts - START for e in trace.emissions] == [10.0, 50.0, 60.0]


def test_an_admission_limit_leaves_rows_behind():
    driver = ScriptedDriver([_query(rows_per_s=100.0, max_rows=300)])
    report = _grant(driver, _let(driver, 10))
    assert (report.queries[0].batches[0].rows, report.queries[0].batches[0].limited) == (300, True)


def test_batches_stretch_when_more_run_than_there_are_cores():
    def duration_s(cores: int) -> float:
        driver = ScriptedDriver([_query(name) for name in "abcd"], cores=cores)
        engine = Engine(create("round-robin"), RoundRobin(), EngineSettings(lanes=4))
        trace = run(engine, driver, 5)
        return trace.batches[0][1].duration_s

    assert duration_s(4) == pytest.approx(0.5)
    assert duration_s(2) == pytest.approx(1.0)
    assert duration_s(1) == pytest.approx(2.0)


def _durations_s(driver: ScriptedDriver, lanes: int = 4) -> list[float]:
    engine = Engine(create("round-robin"), RoundRobin(), EngineSettings(lanes=lanes))
    return [batch.duration_s for _, batch in run(engine, driver, 5).batches]


def test_the_part_of_a_batch_that_waits_is_not_stretched():
    driver = ScriptedDriver([_query(name, cpu_share=0.6) for name in "abcd"], cores=2)
    assert _durations_s(driver)[0] == pytest.approx(0.2 + 2 * 0.3)
    assert driver.cpu_s <= 2 * 5.1


def test_a_batch_that_keeps_more_than_one_core_busy_slows_others_sooner():
    driver = ScriptedDriver([_query(name, cpu_demand=1.5) for name in "ab"], cores=2)
    assert _durations_s(driver)[0] == pytest.approx(0.5 * 1.5)
    driver = ScriptedDriver([_query(name) for name in "ab"], cores=2, background_cores=1.0)
    assert _durations_s(driver)[0] == pytest.approx(0.5 * 1.5)


def test_crowded_cores_are_slower_than_a_lonely_one():
    assert _durations_s(ScriptedDriver([_query("a")], cores=2, crowding=0.2))[0] == pytest.approx(0.5)
    both = ScriptedDriver([_query(name) for name in "ab"], cores=2, crowding=0.2)
    assert _durations_s(both)[0] == pytest.approx(0.6)
    assert cpu_speed(1.0, 1.0, cores=1, crowding=0.2) == 1.0
    assert cpu_speed(0.0, 0.0, cores=2) == 1.0


def test_garbage_of_batches_that_run_at_once_slows_all_of_them():
    garbage = Garbage(always=0.2, each=0.1)
    assert _durations_s(ScriptedDriver([_query("a")], cores=2, garbage=garbage))[0] == pytest.approx(0.5)
    both = ScriptedDriver([_query(name) for name in "ab"], cores=2, garbage=garbage)
    assert _durations_s(both)[0] == pytest.approx(0.5 * 1.4 / 1.3)
    waiting = ScriptedDriver([_query(name, cpu_share=0.6) for name in "ab"], cores=2, garbage=garbage)
    assert _durations_s(waiting)[0] == pytest.approx(0.2 + 0.3 * 1.4 / 1.3), "what waits is not slowed"
    assert garbage.more(0) == garbage.more(1) == Garbage(always=0.3).more(5) == 1.0


def test_what_compilers_take_is_taken_first_and_counts():
    driver = ScriptedDriver([_query(name) for name in "ab"], cores=2, compiling=lambda _: 1.0)
    assert _durations_s(driver)[0] == pytest.approx(1.0)
    assert driver.cpu_s >= 5
    idle = ScriptedDriver([_query("a", starts_at_s=100)], cores=2, compiling=lambda wall_ts: float(wall_ts > 0))
    _durations_s(idle)
    assert idle.cpu_s == pytest.approx(5, rel=0.05)
    assert _durations_s(ScriptedDriver([_query("a")], cores=2, compiling=lambda _: 9.0))[0] == pytest.approx(0.5 / 0.2)


def test_tasks_wait_for_a_core_in_the_order_of_names_or_of_arrival():
    def first_ends(order: TaskOrder) -> list[str]:
        queries = [_query(name, task_share=1.0, starts_at_s=2 + place / 100) for place, name in enumerate("cba")]
        driver = ScriptedDriver(queries, cores=1, task_order=order)
        trace = run(Engine(Observe(), RoundRobin()), driver, 4.5)
        return [name for name, _ in trace.batches][:3]

    assert first_ends("arrival") == ["c", "b", "a"]
    assert first_ends("name") == ["a", "a", "a"]


def test_a_grant_takes_its_time_to_arrive_and_the_batch_takes_what_is_there_then():
    driver = ScriptedDriver([_query(rows_per_s=100.0)], grant_delay_s=0.25)
    report = _grant(driver, _let(driver, 20))
    (batch,) = report.queries[0].batches
    assert batch.offsets_wall_ts == pytest.approx(START + 20.25)
    assert batch.rows == 2025


def test_lengths_are_drawn_by_the_seed():
    def durations_s(seed: int) -> list[float]:
        return _durations_s(ScriptedDriver([_query(factors=(0.5, 1.0, 2.0))], seed=seed))

    assert durations_s(1) == durations_s(1)
    assert durations_s(1) != durations_s(2)
    assert {round(length, 6) for length in durations_s(1)} <= {0.25, 0.5, 1.0}


def test_a_batch_without_rows_has_a_cost_of_its_own():
    driver = ScriptedDriver([_query(rows_per_s=100.0, empty_cost_s=0.1, idle_s=((20.0, math.inf),))])
    report = _grant(driver, _let(driver, 20))
    assert report.queries[0].batches[0].duration_s == pytest.approx(0.5)
    assert _grant(driver, report, stage=Stage.SWEEP).queries[0].batches[0].duration_s == pytest.approx(0.1)


def test_clumps_may_end_between_whole_steps():
    query = _query(rows_per_s=100.0, step_s=1.0, step_phase_s=0.4)
    assert query.rows_readable(5.3) == 440
    assert query.rows_readable(5.4) == 540


def test_a_trigger_fires_once_at_a_multiple_that_no_float_can_hold():
    queries = [_query(f"q{place}", interval_s=2 * (0.94 + 0.03 * place), batch_cost_s=0.01) for place in range(5)]
    trace = run(Engine(Observe(), RoundRobin()), ScriptedDriver(queries), 100)
    for query in queries:
        assert len(trace.batches_of(query.name)) in (
            math.floor(100 / query.interval_s),
            math.ceil(100 / query.interval_s),
        )


def test_a_failed_query_is_told_dead_once_and_then_not_at_all():
    driver = ScriptedDriver([_query(fails_at_s=3.0)])
    driver.exchange(Commands())
    report = driver.exchange(Commands(wake_after_s=60.0))
    assert report.wall_ts == START + 3.0
    assert [query.alive for query in report.queries] == [False]
    assert driver.exchange(Commands()).queries == ()


def test_plain_spark_runs_as_soon_as_possible_or_at_multiples_of_the_interval():
    queries = [_query("asap", batch_cost_s=0.25), _query("every", interval_s=4.0, batch_cost_s=0.25)]
    trace = run(Engine(Observe(), RoundRobin()), ScriptedDriver(queries), 41)
    assert len(trace.batches_of("asap")) > 100
    starts = [batch.offsets_wall_ts - START for batch in trace.batches_of("every")]
    assert starts == pytest.approx([4.0 * i for i in range(1, 11)])
    assert trace.turns == []


def test_the_same_queries_and_policy_give_the_same_trace():
    def trace() -> Any:
        driver = ScriptedDriver([_query(f"q{i}", step_s=1.0, row_cost_s=1e-4) for i in range(5)])
        return run(Engine(create("klink"), RoundRobin()), driver, 60)

    assert trace() == trace()


def test_two_queries_of_one_name_are_refused():
    with pytest.raises(ValueError, match="different names"):
        ScriptedDriver([_query("a"), _query("a")])
