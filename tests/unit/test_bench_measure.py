"""From reports and rows to figures, without Spark."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from slackwater.bench.cpu import collections_mb, heap_summary
from slackwater.bench.harness import Listener, check, run_bench
from slackwater.bench.measure import (
    Batch,
    Span,
    batches_of,
    best_of_sweep,
    distribution,
    interval,
    is_steady,
    kept_up,
    longest_stall_s,
    mean_lag_ms,
    measure_query,
    summarise,
    swept,
)
from slackwater.bench.model import (
    Backlog,
    BenchPlan,
    Distribution,
    Heap,
    RunResult,
    RunSpec,
    SchedulerCost,
    WindowCounts,
    WorkerResult,
    contender,
)
from slackwater.errors import ConfigurationError, SlackwaterError
from slackwater.workloads.base import EmittedRow, Window

SPAN = Span(from_ms=100_000, to_ms=120_000, end_ms=125_000)


class TenSecondWindows:
    """An oracle with one campaign of five views a window, ingestible half a second after the deadline."""

    def windows_due(self, from_ms, to_ms):
        starts = range(0, 200_000, 10_000)
        found = [Window(start, start + 10_000, start + 11_000) for start in starts]
        return [window for window in found if from_ms <= window.deadline_ms < to_ms]

    def expected(self, window_start_ms):
        return [(1, 5)]

    def ingestible_ms(self, deadline_ms):
        return deadline_ms + 500


def batch(started_ms, duration_ms=400, rows=100, watermark_ms=1):
    return Batch(started_ms, started_ms + duration_ms, rows, watermark_ms)


def row(window_start_ms, batch_ts_ms, payload=(1, 5)):
    return EmittedRow(window_start_ms, batch_ts_ms, payload)


def test_a_window_is_out_when_the_batch_that_emitted_it_commits():
    batches = [batch(102_000), batch(112_000, duration_ms=700)]
    rows = [row(90_000, 102_010), row(100_000, 112_050)]
    outcome = measure_query(batches, rows, TenSecondWindows(), SPAN)
    assert outcome.latencies_s == [2.4, 2.7]
    assert outcome.propagations_s == pytest.approx([0.9, 1.2])
    assert outcome.windows == WindowCounts(expected=2, emitted=2, wrong=0)
    assert outcome.batches == batches


def test_a_window_that_never_came_counts_with_the_time_it_is_overdue():
    outcome = measure_query([batch(102_000)], [row(90_000, 102_010)], TenSecondWindows(), SPAN)
    assert outcome.latencies_s == [2.4, 15.0]
    assert outcome.windows == WindowCounts(expected=2, emitted=1, wrong=0)


@pytest.mark.parametrize("batches", [[batch(124_900)], [batch(110_000)], [batch(126_000)], []])
def test_rows_of_a_batch_that_did_not_commit_in_time_are_not_out(batches):
    outcome = measure_query(batches, [row(100_000, 124_950)], TenSecondWindows(), SPAN)
    assert outcome.windows.emitted == 0


def test_a_window_is_wrong_when_a_count_differs_or_a_row_comes_twice():
    batches = [batch(102_000), batch(112_000)]
    rows = [row(90_000, 102_010, (1, 4)), row(100_000, 112_010), row(100_000, 112_010)]
    assert measure_query(batches, rows, TenSecondWindows(), SPAN).windows == WindowCounts(2, 2, 2)


def test_a_wrong_window_outside_the_span_is_counted_apart():
    batches = [batch(92_000), batch(102_000), batch(112_000)]
    rows = [row(80_000, 92_010, (1, 4)), row(90_000, 102_010), row(100_000, 112_010)]
    assert measure_query(batches, rows, TenSecondWindows(), SPAN).windows == WindowCounts(2, 2, 0, 1)


def test_reports_of_idle_triggers_are_no_batches():
    ran = {
        "timestamp": "2026-01-01T00:00:10.250Z",
        "durationMs": {"addBatch": 100, "triggerExecution": 320},
        "eventTime": {"watermark": "2026-01-01T00:00:08.000Z"},
        "sources": [{"numInputRows": 7}, {"numInputRows": 5}],
    }
    idle = {"timestamp": "2026-01-01T00:00:11.000Z", "durationMs": {"triggerExecution": 3}, "sources": []}
    [found] = batches_of([idle, ran])
    assert (found.duration_ms, found.input_rows) == (320, 12)
    assert found.watermark_ms is not None
    assert found.started_ms - found.watermark_ms == 2250
    assert swept([found], found.watermark_ms)
    assert not swept([found], found.watermark_ms + 1)


def rhythm(duration_ms, lag_ms, from_ms=0, to_ms=60_000):
    return [batch(at, duration_ms, watermark_ms=at - lag_ms) for at in range(from_ms + 1000, to_ms, 1000)]


def test_a_run_is_steady_when_batches_and_lag_stay_the_same():
    assert is_steady([rhythm(300, 900), rhythm(310, 900)], 60_000, 10_000, 0.15)


def test_a_run_whose_batches_get_shorter_is_not_steady_yet():
    batches = rhythm(900, 900, 20_000, 50_000) + rhythm(300, 900, 50_000, 60_000)
    assert not is_steady([batches], 60_000, 10_000, 0.15)


def test_a_run_that_falls_behind_is_not_steady():
    batches = [batch(at, 300, watermark_ms=at // 2) for at in range(10_000, 60_000, 1000)]
    assert not is_steady([batches], 60_000, 10_000, 0.15)


def test_a_span_in_which_the_lag_stays_was_kept_up_with():
    assert kept_up([rhythm(300, 900)], 20_000, 60_000, 0.2)


def test_a_span_in_which_queries_fall_behind_was_not_kept_up_with():
    behind = [batch(second * 1000, watermark_ms=second * 500) for second in range(1, 61)]
    assert not kept_up([behind], 20_000, 60_000, 0.2)


def test_a_run_in_which_one_query_had_no_watermark_yet_is_not_steady():
    assert not is_steady([rhythm(300, 900), [batch(1000, watermark_ms=0)]], 60_000, 10_000, 0.15)
    assert mean_lag_ms([[]], 0, 10) is None


def test_a_scheduler_that_stops_deciding_in_mid_span_is_seen_to_stall():
    alive = [(at_ms, at_ms // 500) for at_ms in range(0, 30_000, 1000)]
    dead = [(at_ms, min(at_ms, 14_000) // 500) for at_ms in range(0, 30_000, 1000)]
    assert longest_stall_s(alive, 10_000, 20_000) == 1.0
    assert longest_stall_s(dead, 10_000, 20_000) == 6.0
    assert longest_stall_s([(0, 4), (10_000, 4)], 10_000, 20_000) == 10.0
    assert longest_stall_s([], 10_000, 20_000) == 10.0


def test_percentiles_name_their_count_and_are_absent_without_samples():
    found = distribution([float(value) for value in range(101)])
    assert found == Distribution(count=101, mean=50.0, p50=50.0, p90=90.0, p99=99.0, max=100.0)
    assert distribution([]) == Distribution(count=0)


def test_an_interval_needs_two_seeds():
    one, two = interval([3.0, None]), interval([1.0, 3.0])
    assert one is not None
    assert two is not None
    assert (one.mean, one.half_width_95, one.count) == (3.0, None, 1)
    assert two.mean == 2.0
    assert two.half_width_95 == pytest.approx(12.706)
    assert interval([None]) is None


def test_only_real_collections_in_the_span_count_for_the_heap():
    log = (
        "[1000ms] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 90M->40M(512M) 3.1ms\n"
        "[2000ms] GC(1) Pause Remark 60M->60M(512M) 2.0ms\n"
        "[2500ms] GC(2) Pause Full (System.gc()) 80M->30M(512M) 20.0ms\n"
        "[9000ms] GC(3) Pause Young (Normal) (G1 Evacuation Pause) 99M->50M(512M) 3.1ms\n"
    )
    assert collections_mb(log, 1000, 9000) == [40.0, 30.0]
    assert heap_summary([], []) == Heap(None, None, None, None, None, 0)


def test_staggered_intervals_spread_six_per_cent_to_either_side():
    found = contender("spark-staggered-2.5s")
    assert [found.interval_ms(i, 3, 10.0) for i in range(3)] == [2350, 2500, 2650]
    assert found.interval_ms(0, 1, 10.0) == 2500
    assert {contender("spark-every-0.5s").interval_ms(i, 9, 10.0) for i in range(9)} == {500}
    assert contender("spark-fair").interval_ms(0, 2, 10.0) is None


def test_a_trigger_may_be_a_share_of_the_time_from_one_result_of_a_query_to_the_next():
    found = contender("spark-staggered-0.5x")
    assert [found.interval_ms(i, 3, every_s) for i, every_s in enumerate((10.0, 2.0, 1.0))] == [4700, 1000, 530]
    assert contender("spark-every-2x").interval_ms(0, 2, 3.0) == 6000


def result_of(spec: RunSpec, mean_s: float, *, steady: bool = True) -> RunResult:
    latency = distribution([mean_s])
    return RunResult(
        policy=spec.policy,
        seed=spec.seed,
        latency_s=latency,
        propagation_s=latency,
        windows=WindowCounts(1, 1, 0),
        events_per_s=1.0,
        offered_events_per_s=1.0,
        cpu_cores=1.0,
        batches=1,
        batch_s=latency,
        heap_mb=heap_summary([1.0], []),
        scheduler=SchedulerCost(),
        steady=steady,
        warmed_up=True,
        warmup_s=0.0,
        drain_s=0.0,
        seconds=1.0,
        backlog=Backlog(None, None),
        per_query=[],
        latencies_s=[mean_s],
    )


def plan(*policies: str, seeds: int = 1) -> BenchPlan:
    run = RunSpec("ysb", "", 0, 2, 100, 2.0, 1.0, 4.0, "spread", "columns")
    return BenchPlan(run, policies, tuple(range(seeds)), sweep_s=(2.0, 3.0), sweep_x=(0.5,))


def test_the_best_of_a_sweep_is_the_fastest_steady_run():
    spec = plan("x").run
    slow, fast = result_of(spec, 5.0), result_of(spec, 2.0, steady=False)
    assert best_of_sweep([slow, fast]) is slow
    assert best_of_sweep([fast]) is fast
    assert best_of_sweep([]) is None


def test_spark_tuned_sweeps_on_the_first_seed_and_keeps_its_choice_on_the_others(monkeypatch):
    means_s = {"spark-staggered-2s": 9.0, "spark-staggered-3s": 4.0, "spark-staggered-0.5x": 6.0}
    started = []

    def fake(spec, on_state):
        started.append((spec.policy, spec.seed))
        return WorkerResult(result_of(spec, means_s.get(spec.policy, 1.0)), "4.3.0", "17")

    monkeypatch.setattr("slackwater.bench.harness.run_in_subprocess", fake)
    result = run_bench(plan("spark-fair", "spark-tuned", seeds=2), Listener())
    assert started == [
        ("spark-fair", 0),
        *((name, 0) for name in means_s),
        ("spark-fair", 1),
        ("spark-staggered-3s", 1),
    ]
    tuned = [run for run in result.runs if run.policy == "spark-tuned"]
    assert [(run.seed, run.chosen, run.sweep_of) for run in tuned] == [
        (0, "spark-staggered-3s", None),
        (1, "spark-staggered-3s", None),
    ]
    assert [run.policy for run in result.runs if run.sweep_of == "spark-tuned"] == list(means_s)
    assert [(line.policy, line.runs) for line in result.summary] == [("spark-fair", 2), ("spark-tuned", 2)]
    assert result.complete
    assert summarise(result.runs) == result.summary


def test_a_failed_run_is_recorded_and_the_others_go_on(monkeypatch):
    def fake(spec, on_state):
        if spec.policy == "spark-fifo":
            raise SlackwaterError("no Java here")
        return WorkerResult(result_of(spec, 1.0), "4.3.0", "17")

    monkeypatch.setattr("slackwater.bench.harness.run_in_subprocess", fake)
    result = run_bench(plan("spark-fifo", "spark-fair"), Listener())
    assert [failure.error for failure in result.failures] == ["no Java here"]
    assert [run.policy for run in result.runs] == ["spark-fair"]


@pytest.mark.parametrize(
    "wrong",
    [
        plan("spark-every-0s"),
        plan("spark-staggered-0x"),
        plan(),
        plan("spark-fair", "spark-fair"),
        plan("spark-fair", seeds=0),
        replace(plan("spark-fair"), run=replace(plan().run, queries=0)),
        replace(plan("spark-fair"), run=replace(plan().run, rate=6000)),
        replace(plan("spark-tuned"), sweep_s=(), sweep_x=()),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused_before_anything_starts(wrong):
    with pytest.raises(ConfigurationError):
        check(wrong)


def test_a_run_spec_survives_the_way_to_the_worker():
    spec = plan("spark-fair").spec("spark-fair", 3)
    assert msgspec.json.decode(msgspec.json.encode(spec), type=RunSpec) == spec
