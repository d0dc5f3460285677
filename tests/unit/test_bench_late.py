"""`slackwater bench late` without Spark: what is run, how windows are judged, and what a run comes to."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from rich.console import Console

from slackwater.bench import late_harness
from slackwater.bench.harness import _Stderr
from slackwater.bench.late_commands import bench_late, print_late, write_late
from slackwater.bench.late_harness import LateListener, died, run_late
from slackwater.bench.late_measure import (
    Emitted,
    batch_times,
    due_windows,
    first_latencies_s,
    is_behind,
    judged_last,
    judged_once,
    late_batches,
    live_heap,
    until_last_s,
)
from slackwater.bench.late_model import (
    LatePlan,
    LateResult,
    LateRun,
    LateRunSpec,
    LateWindows,
    LateWorkerResult,
    LiveHeap,
    check,
    default_rate,
    span_s,
)
from slackwater.bench.measure import cause_of_end
from slackwater.errors import ConfigurationError, SlackwaterError
from slackwater.workloads.average import KEYS, expected_aggregates
from slackwater.workloads.late_events import LateSpec
from slackwater.workloads.late_workloads import LATE_WORKLOADS

if TYPE_CHECKING:
    from pathlib import Path

SPEC = LateRunSpec("average", "ours", "rows", 3, 100, 10.0, 64, 0, 30.0)
PLAN = LatePlan(SPEC, ("ours", "spark-memory"), (1, 3))


def emitted(window_s: int, wall_s: float, revision: int = 1, through: int = 0, rows: Any = ((1,),)) -> Emitted:
    return Emitted(window_s * 1000, round(wall_s * 1000), revision, "late", through, list(rows))


def test_every_contender_runs_with_every_number_of_past_windows():
    assert [(spec.contender, spec.past_windows) for spec in PLAN.specs()] == [
        ("ours", 1),
        ("spark-memory", 1),
        ("ours", 3),
        ("spark-memory", 3),
    ]


def test_plain_spark_waits_for_all_past_windows_and_we_for_the_watermark():
    assert SPEC.delay_s == 1.0
    assert SPEC.allowed_lateness_s == 32.0
    assert replace(SPEC, contender="spark-rocksdb").delay_s == 31.0


def test_salted_windows_are_many_rows_of_state_and_aggregates_need_none():
    assert [replace(SPEC, contender=name).salts for name in ("ours", "spark-rocksdb", "spark-rocksdb-salted")] == [
        0,
        0,
        64,
    ]
    with pytest.raises(ConfigurationError, match="nothing to salt"):
        check(replace(PLAN, contenders=("spark-memory-salted",), run=replace(SPEC, kind="aggregates")))


def test_why_a_jvm_ended_is_told_however_much_is_said_after_it():
    lines = ["java.lang.OutOfMemoryError: Java heap space\n", *(f"\tat line {n}\n" for n in range(100))]
    said = _Stderr(io.StringIO("".join(lines)), lambda _: None)
    said.join()
    assert cause_of_end(f"ended with 1. {said.story()}") == "OutOfMemoryError"


def test_a_run_is_long_enough_for_plain_spark_to_emit():
    spec = replace(SPEC, contender="spark-memory", seconds=span_s(10.0))
    assert spec.warming_s + spec.seconds >= (spec.past_windows + 3) * spec.window_s + 10
    assert spec.timeout_s > spec.usual_s
    assert (span_s(4.0), span_s(20.0), span_s(60.0)) == (32.0, 60.0, 180.0)
    assert default_rate("bigrams") < default_rate("average")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (replace(PLAN, contenders=("ours", "flink")), "flink"),
        (replace(PLAN, contenders=()), "no contender"),
        (replace(PLAN, contenders=("ours", "ours")), "named twice"),
        (replace(PLAN, past_windows=()), "past windows"),
        (replace(PLAN, past_windows=(1, 11)), "1 to 10 windows"),
        (replace(PLAN, run=replace(SPEC, workload="nexmark")), "nexmark"),
        (replace(PLAN, run=replace(SPEC, workload="bigrams", kind="aggregates")), "average alone"),
        (replace(PLAN, run=replace(SPEC, seconds=0.0)), "seconds"),
        (replace(PLAN, run=replace(SPEC, trigger_s=0.0)), "trigger"),
        (replace(PLAN, run=replace(SPEC, watermark_s=-1.0)), "watermark"),
        (replace(PLAN, run=replace(SPEC, rate=0)), "rate"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(plan: LatePlan, message: str):
    with pytest.raises(ConfigurationError, match=message):
        check(plan)


def test_past_windows_must_be_numbers_and_the_file_must_have_a_folder(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="whole numbers"):
        bench_late(past_windows="1,many")
    with pytest.raises(ConfigurationError, match="does not exist"):
        bench_late(json_file=tmp_path / "no" / "x.json")
    with pytest.raises(ConfigurationError, match="nexmark"):
        bench_late(workload="nexmark")


def test_the_first_result_counts_and_a_window_without_one_has_waited_until_the_end():
    results = [emitted(10, 25.0), emitted(10, 22.0), emitted(20, 99.0)]
    assert due_windows([0, 10_000, 20_000, 30_000], 10_000, 1000, 21_000, 41_000) == [10_000, 20_000]
    assert first_latencies_s(results, [10_000, 20_000], 10_000, 60_000) == ([2.0, 30.0], 1)


def test_until_the_last_result_is_for_windows_that_take_no_more_rows():
    results = [emitted(0, 12.0), emitted(0, 31.0, 2), emitted(10, 22.0)]
    assert until_last_s(results, 10_000, 15_000) == [21.0]


def test_a_window_of_plain_spark_comes_out_once_and_whole():
    expected: dict[int, Any] = {0: [(1,)], 10_000: [(2,)], 20_000: [(3,)], 30_000: [(4,)]}
    results = [emitted(0, 1), emitted(10, 1, rows=[(9,)]), emitted(40, 1)]
    assert judged_once(results, expected, 10_000, 30_000) == LateWindows(right=1, wrong=2, missing=1)
    twice = [emitted(0, 1), emitted(0, 2)]
    assert judged_once(twice, {0: [(1,)]}, 10_000, 10_000) == LateWindows(right=0, wrong=1, missing=0)


def test_of_our_results_the_last_one_must_have_all_rows_up_to_the_batch_that_is_settled():
    by_batch: dict[int, dict[int, Any]] = {
        5: {0: [(3,)], 10_000: [(2,)], 20_000: [(1,)]},
        6: {0: [(4,)], 10_000: [(2,)], 20_000: [(8,)]},
    }
    rows = {0: [(4,)], 10_000: [(2,)]}
    results = [emitted(0, 1, 1, 2, [(1,)]), emitted(0, 2, 2, 6, rows[0]), emitted(10, 1, 1, 3, rows[10_000])]

    def judged(results: list[Emitted], swept_s: int = 20) -> LateWindows:
        return judged_last(results, lambda batch: by_batch[batch], 10_000, 5, swept_s * 1000)

    assert judged(results) == LateWindows(right=2, wrong=0, missing=0)
    assert judged(results, swept_s=30) == LateWindows(right=2, wrong=0, missing=1)
    stale = [emitted(0, 1, 1, 2, [(1,)]), results[2]]
    assert judged(stale) == LateWindows(right=1, wrong=1, missing=0)


def test_batches_come_from_progress_reports_in_order():
    report = {
        "batchId": 4,
        "timestamp": "1970-01-01T00:00:02.000Z",
        "durationMs": {"addBatch": 300, "triggerExecution": 500},
        "sources": [{"endOffset": 7}],
        "eventTime": {"watermark": "1970-01-01T00:00:01.000Z"},
    }
    idle = {"batchId": 5, "timestamp": "1970-01-01T00:00:03.000Z", "durationMs": {"triggerExecution": 1}}
    first, second = late_batches([{**report, "batchId": 6, "eventTime": {}}, idle, report])
    assert (first.batch_id, first.committed_ms, first.add_ms, first.end_offset, first.watermark_ms) == (
        *(4, 2500, 300, 7),
        1000,
    )
    assert (second.batch_id, second.watermark_ms) == (6, 0)
    assert batch_times([100, 300, 200]).median == 0.2
    assert batch_times([]).median is None


@pytest.mark.parametrize(
    ("behind_s", "falls"),
    [
        ([2, 1, 3, 2, 1, 3], False),
        ([1, 1, 5, 6, 9, 9], True),
        ([9, 9, 5, 5, 1, 1], False),
        ([5], False),
        ([30, 20, 40] * 3, True),
    ],
)
def test_a_query_falls_behind_when_its_oldest_row_gets_older(behind_s: list[float], falls: bool):
    assert is_behind(behind_s, 2.0) == falls


def test_what_lives_is_what_full_collections_leave():
    log = "\n".join(
        f"[{at}ms] GC(1) Pause {kind} 900M->{left}M(1024M) 10.0ms"
        for at, kind, left in [
            (1000, "Full (System.gc())", 50),
            (2000, "Young (Allocation Failure)", 500),
            (2500, "Young (Mixed) (G1 Evacuation Pause)", 700),
            (3000, "Full (Ergonomics)", 150),
            (4000, "Full (System.gc())", 100),
            (9000, "Full (System.gc())", 10),
        ]
    )
    assert live_heap(log, 1000, 5000) == LiveHeap(median=100.0, max=150.0, count=3, paused_pct=1.25)
    assert live_heap("", 1000, 5000).median is None


def test_the_oracle_of_aggregates_agrees_with_that_of_the_whole_window():
    spec = LateSpec("average", 1000, 2.0, 2, 10, 7)
    numbers = range(6000)
    whole = LATE_WORKLOADS["average"].expected(spec, 0, numbers)
    by_key = expected_aggregates(spec, 0, numbers)
    assert by_key.keys() == whole.keys()
    for start, rows in by_key.items():
        assert (sum(row[1] for row in rows), sum(row[2] for row in rows)) == whole[start][0][1:]
        assert [row[0] for row in rows] == sorted({row[0] for row in rows})
        assert all(row[4] <= row[3] <= row[5] and row[4] % KEYS == row[0] for row in rows)


def test_a_run_that_dies_is_a_result_and_stops_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def fake(spec: LateRunSpec, on_state: Any) -> LateWorkerResult:
        on_state({"state": "warming up", "lived_s": 41})
        if spec.contender == "spark-memory":
            raise SlackwaterError("ended with 52. java.lang.OutOfMemoryError: Java heap space")
        good = replace(died(spec, "", {}), outcome="ok", reason="", windows=LateWindows(3, 0, 0))
        return LateWorkerResult(good, "4.3.0", "17")

    class ToFile(LateListener):
        def __init__(self) -> None:
            self.ended: list[LateRun] = []

        def finished(self, run: LateRun, error: str) -> None:
            self.ended.append(run)

        def result(self, result: LateResult) -> None:
            write_late(result, tmp_path / "late.json")

    monkeypatch.setattr(late_harness, "run_late_in_subprocess", fake)
    listener = ToFile()
    run_late(PLAN, listener)
    result = msgspec.json.decode((tmp_path / "late.json").read_bytes(), type=LateResult)
    assert result.complete
    assert result.runs == listener.ended
    assert [(run.outcome, run.reason, run.lived_s) for run in result.runs] == [
        ("ok", "", 0.0),
        ("died", "OutOfMemoryError", 41.0),
    ] * 2
    console = Console(width=160, record=True)
    print_late(result, console)
    assert "died after 41 s: OutOfMemoryError" in console.export_text()


def test_pictures_are_drawn_also_of_runs_that_died(tmp_path: Path):
    from slackwater.bench.late_plots import draw  # noqa: PLC0415

    def run(contender: str, past: int, heap: float | None) -> LateRun:
        spec = replace(SPEC, contender=contender, past_windows=past)
        gone = died(spec, "OutOfMemoryError", {})
        if heap is None:
            return gone
        latency = replace(gone.latency_s, count=1, mean=heap / 10)
        return replace(gone, outcome="ok", live_heap_mb=LiveHeap(heap, heap, 3, 0.1), latency_s=latency)

    runs = [run("ours", 1, 90.0), run("ours", 3, 95.0), run("spark-memory", 1, 400.0), run("spark-memory", 3, None)]
    result = msgspec.convert(
        {
            "workload": "average",
            "kind": "rows",
            "rate": 1,
            "window_s": 1.0,
            "payload_bytes": 1,
            "seed": 0,
            "watermark_s": 1.0,
            "staleness": 0.1,
            "trigger_s": 1.0,
            "bursts": False,
            "seconds": 1.0,
            "commit": None,
            "spark": None,
            "settings": {},
            "runs": msgspec.to_builtins(runs),
            "machine": {"cores": 2, "cpu": "", "memory_gb": 1.0, "os": "", "python": "", "java": None},
        },
        LateResult,
    )
    files = draw(result, tmp_path / "pictures")
    assert [file.name for file in files] == ["late-heap.png", "late-latency.png"]
    assert all(file.stat().st_size > 10_000 for file in files)
