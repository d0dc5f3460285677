"""Benchmarks that test a claim: what they run, and what they make of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from slackwater.bench import experiments
from slackwater.bench.accuracy import Ranges
from slackwater.bench.cpu import live_mb, paused_pct
from slackwater.bench.harness import Listener
from slackwater.bench.measure import cause_of_end
from slackwater.bench.members import HIGH
from slackwater.bench.model import Heap, QueryResult, RunResult, RunSpec, WindowCounts, WorkerResult
from slackwater.bench.supervision import CALM, KILLED, supervision
from slackwater.drivers.spark.handle import Expectation
from slackwater.errors import SlackwaterError
from tests.unit.test_bench_measure import result_of

if TYPE_CHECKING:
    from collections.abc import Callable

BASE = RunSpec("ysb", "", 0, 5, 100, 2.0, 1.0, 4.0, "spread", "columns", high=2)


def query(name: str, group: int, latencies_s: list[float]) -> QueryResult:
    count = len(latencies_s)
    return QueryResult(name, 0, None, None, 1, WindowCounts(count, count, 0), group, latencies_s)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[RunSpec], RunResult]], list[RunSpec]]:
    """Runs that give what a function says, without Spark; returns what was run."""

    def install(result: Callable[[RunSpec], RunResult]) -> list[RunSpec]:
        ran: list[RunSpec] = []

        def run(spec: RunSpec, on_state: Any) -> WorkerResult:
            ran.append(spec)
            return WorkerResult(result(spec), "4.3.0", "17")

        monkeypatch.setattr(experiments, "run_in_subprocess", run)
        return ran

    return install


def test_high_runs_alone_and_then_beside_low_and_the_ratio_of_their_p99_is_the_claim(fake: Any) -> None:
    def result(spec: RunSpec) -> RunResult:
        slow = {"multi-class": 2.8 if spec.queries > 2 else 2.0, "spark-fair": 9.0}[spec.policy]
        queries = [query("a", HIGH, [slow, slow]), query("b", 0, [30.0])]
        return replace(result_of(spec, slow), per_query=queries[: 1 if spec.queries == 2 else 2])

    ran = fake(result)
    found = experiments.classes(BASE, 3, ("spark-fair", "multi-class"), (0,), Listener())
    assert [(spec.policy, spec.queries, spec.high) for spec in ran] == [
        ("multi-class", 2, 2),
        ("spark-fair", 5, 2),
        ("multi-class", 5, 2),
    ]
    assert [(row["policy"], row["class"]) for row in found.rows] == [
        (experiments.ALONE, "HIGH"),
        ("spark-fair", "HIGH"),
        ("spark-fair", "LOW"),
        ("multi-class", "HIGH"),
        ("multi-class", "LOW"),
    ]
    assert [(claim.measured, claim.holds) for claim in found.claims] == [
        (1.4, True),
        (pytest.approx(0.311111), True),
        (0, True),
    ]


def test_a_run_that_dies_of_memory_exceeds_every_bound(fake: Any) -> None:
    heaps = {"klink": 300.0, "klink-no-mm": 350.0}

    def result(spec: RunSpec) -> RunResult:
        if spec.policy == "spark-fair":
            raise SlackwaterError("query q ended during the run: java.lang.OutOfMemoryError: Java heap space")
        heap = Heap(None, None, None, 100.0, 500.0, 1, 100.0, heaps[spec.policy], 2.5)
        return replace(result_of(spec, 2.0), heap_mb=heap)

    fake(result)
    base = replace(BASE, memory_bound=0.75, settings=replace(BASE.settings, heap="512m"))
    found = experiments.memory(base, ("spark-fair", "klink-no-mm", "klink"), (0,), Listener())
    assert found.rows[0] == {"policy": "spark-fair", "seed": 0, "ended": "OutOfMemoryError"}
    assert [(claim.measured, claim.holds) for claim in found.claims] == [
        (300.0, True),
        (0, True),
        (math.inf, True),
        (50.0, True),
    ]


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("query q ended: Not enough memory to build and broadcast the table", "OutOfMemoryError"),
        ("File x.py, line 1\n  call()\nConnectionRefusedError: [Errno 111] Connection refused", "Spark's JVM ended"),
        (
            "SparkException: java.lang.OutOfMemoryError: GC overhead limit exceeded\n at x",
            "OutOfMemoryError: GC overhead limit exceeded",
        ),
        ("spark-memory: ended with -9. Its last lines: ", "killed"),
        ("first\nnot over after 340 s\n", "not over after 340 s"),
        ("", "unknown"),
    ],
)
def test_why_a_run_ended_is_told_in_a_line(error: str, cause: str) -> None:
    assert cause_of_end(error) == cause


@pytest.mark.parametrize(("text", "mb"), [("768m", 768), ("2g", 2048), ("1G", 1024)])
def test_a_heap_is_read_as_spark_reads_it(text: str, mb: float) -> None:
    assert experiments.heap_mb(text) == mb


def test_pauses_of_the_span_are_a_share_of_it() -> None:
    log = (
        "[900ms] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 90M->40M(512M) 30.0ms\n"
        "[1500ms] GC(1) Pause Remark 60M->60M(512M) 2.5ms\n"
        "[1900ms] GC(2) Pause Full (System.gc()) 80M->30M(512M) 20.0ms\n"
    )
    assert paused_pct(log, 1000, 2000) == 2.25


def test_what_lives_is_what_the_last_of_a_run_of_mixed_collections_or_a_full_one_leaves() -> None:
    log = (
        "[1000ms] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 90M->80M(512M) 30.0ms\n"
        "[1100ms] GC(1) Pause Young (Mixed) (G1 Evacuation Pause) 90M->70M(512M) 30.0ms\n"
        "[1200ms] GC(2) Pause Young (Mixed) (G1 Evacuation Pause) 80M->50M(512M) 30.0ms\n"
        "[1300ms] GC(3) Pause Young (Normal) (G1 Evacuation Pause) 90M->85M(512M) 30.0ms\n"
        "[1400ms] GC(4) Pause Full (G1 Compaction Pause) 99M->60M(512M) 30.0ms\n"
        "[1500ms] GC(5) Pause Full (G1 Compaction Pause) 99M->65M(512M) 30.0ms\n"
        "[9000ms] GC(6) Pause Full (G1 Compaction Pause) 99M->66M(512M) 30.0ms\n"
    )
    assert live_mb(log, 1000, 2000) == [50.0, 60.0, 65.0]
    assert live_mb(log, 1000, 1100) == []


class At:
    """An oracle whose input for every deadline is there half a second later."""

    def ingestible_ms(self, deadline_ms: int) -> int:
        return deadline_ms + 500


def test_the_last_range_that_was_named_before_the_watermark_came_is_what_counts() -> None:
    ranges = Ranges(0.95)
    ranges.add(8_000, [Expectation("q", 10.0, 0.0, 1.0)])
    ranges.add(11_000, [Expectation("q", 10.0, 11.4, 11.6)])  # it comes at 11.5: deadline 11, half a second later
    ranges.add(11_600, [Expectation("q", 10.0, 0.0, 0.1)])
    ranges.add(18_000, [Expectation("q", 20.0, 21.0, 21.2)])
    ranges.add(18_000, [Expectation("q", 90.0, 91.0, 92.0)])
    found = ranges.accuracy({"q": (At(), 1000)}, 0, 30_000)  # type: ignore[dict-item]
    assert (found.count, found.inside, found.range_s) == (2, 0.5, 0.2)


def test_without_any_range_nothing_is_claimed() -> None:
    found = Ranges(0.9).accuracy({}, 0, 1)
    assert (found.count, found.inside, found.range_s) == (0, None, None)


def test_the_others_latency_beside_a_query_that_dies_is_compared_with_that_beside_one_that_lives(fake: Any) -> None:
    def result(spec: RunSpec) -> RunResult:
        assert spec.doomed is not None
        kills = {"deaths": 2, "alarm_s": [0.5, 6.0], "started_again_s": [1.1, None], "batch_again_s": [2.0, None]}
        windows = {"windows": 4, "windows_wrong": 0, "windows_missing": 0}
        killed = spec.doomed.every_s is not None
        return replace(result_of(spec, 3.0 if killed else 2.0), doomed=(kills if killed else {"deaths": 0}) | windows)

    ran = fake(result)
    found = supervision(replace(BASE, policy="klink"), 5.0, (0, 1), Listener())
    orders = [(spec.seed, spec.doomed and spec.doomed.every_s) for spec in ran]
    assert orders == [(0, None), (0, 5.0), (1, None), (1, 5.0)]
    rows = [(row["run"], row["deaths"], row["alarm_s_max"]) for row in found.rows]
    assert rows[:2] == [(CALM, 0, None), (KILLED, 2, 6.0)]
    assert [(claim.claim.split()[0], claim.measured, claim.holds) for claim in found.claims] == [
        ("the", 1.5, False),
        ("the", 1.5, False),
        ("deaths", 4, True),
        ("deaths", 0, True),
        ("seconds", 6.0, False),
        ("deaths", 2, False),
        ("windows", 0, True),
        ("windows", 0, True),
    ]


def test_supervision_of_runs_that_failed_claims_nothing_about_latency(fake: Any) -> None:
    def result(spec: RunSpec) -> RunResult:
        raise SlackwaterError("query ysb_0 ended during the run")

    fake(result)
    found = supervision(replace(BASE, policy="klink"), 5.0, (0,), Listener())
    assert all("failed" in row for row in found.rows)
    assert [claim.holds for claim in found.claims if claim.claim == "deaths"] == [False]
