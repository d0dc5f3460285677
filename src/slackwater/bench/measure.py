"""From progress reports, emitted rows and an oracle to figures. Pure: the same for every policy."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from slackwater.bench.model import Distribution, Interval, PolicySummary, WindowCounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slackwater.bench.model import Backlog, RunResult
    from slackwater.workloads.base import EmittedRow, Oracle, Payload, QuerySpec

# Differences below these are noise, however large they are in per cent.
DURATION_FLOOR_MS = 100.0
LAG_FLOOR_MS = 500.0
LAG_SAMPLES = 20

# Student's t, 97.5 %, for 1 to 30 degrees of freedom.
_T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True)
class Batch:
    """A micro-batch that ran; `watermark_ms` is the one that it evicted by."""

    started_ms: int
    committed_ms: int
    input_rows: int
    watermark_ms: int | None

    @property
    def duration_ms(self) -> int:
        return self.committed_ms - self.started_ms


@dataclass(frozen=True)
class Span:
    """The measured span [from_ms, to_ms) and the time `end_ms` until which results were waited for."""

    from_ms: int
    to_ms: int
    end_ms: int

    def holds(self, wall_ms: int) -> bool:
        return self.from_ms <= wall_ms < self.to_ms


@dataclass(frozen=True)
class QueryOutcome:
    latencies_s: list[float]
    propagations_s: list[float]
    windows: WindowCounts
    batches: list[Batch]  # those that committed within the span


def batches_of(progress: Iterable[Mapping[str, Any]]) -> list[Batch]:
    """The batches in a query's progress reports, oldest first; reports of idle triggers are left out."""
    found = []
    for report in progress:
        durations = report.get("durationMs", {})
        if "addBatch" not in durations:
            continue
        started_ms = iso_ms(report["timestamp"])
        watermark = report.get("eventTime", {}).get("watermark")
        found.append(
            Batch(
                started_ms=started_ms,
                committed_ms=started_ms + int(durations["triggerExecution"]),
                input_rows=sum(int(source["numInputRows"]) for source in report.get("sources", ())),
                watermark_ms=None if watermark is None else iso_ms(watermark),
            )
        )
    return sorted(found, key=lambda batch: batch.started_ms)


def measure_query(batches: Sequence[Batch], rows: Iterable[EmittedRow], oracle: Oracle, span: Span) -> QueryOutcome:
    """One latency for each window that was due in the span, whether or not it came out by the span's end."""
    emitted = _committed_windows(batches, rows, span.end_ms)
    latencies_s, propagations_s = [], []
    missing = wrong = 0
    due = oracle.windows_due(span.from_ms, span.to_ms)
    for window in due:
        out = emitted.get(window.start_ms)
        out_ms = span.end_ms if out is None else out[0]
        latencies_s.append((out_ms - window.end_ms) / 1000)
        propagations_s.append((out_ms - oracle.ingestible_ms(window.deadline_ms)) / 1000)
        if out is None:
            missing += 1
        elif sorted(out[1]) != oracle.expected(window.start_ms):
            wrong += 1
    outside = emitted.keys() - {window.start_ms for window in due}
    wrong_outside = sum(sorted(emitted[start][1]) != oracle.expected(start) for start in outside)
    return QueryOutcome(
        latencies_s=latencies_s,
        propagations_s=propagations_s,
        windows=WindowCounts(len(due), len(due) - missing, wrong, wrong_outside),
        batches=[batch for batch in batches if span.holds(batch.committed_ms)],
    )


def _committed_windows(
    batches: Sequence[Batch], rows: Iterable[EmittedRow], end_ms: int
) -> dict[int, tuple[int, list[Payload]]]:
    """Per window start: when its last row was committed, and its rows; without rows of unfinished batches."""
    starts = [batch.started_ms for batch in batches]
    committed: dict[int, int] = {}
    payloads: dict[int, list[Payload]] = defaultdict(list)
    for row in rows:
        place = bisect_right(starts, row.batch_ts_ms) - 1
        if place < 0 or not row.batch_ts_ms <= batches[place].committed_ms <= end_ms:
            continue
        start = row.window_start_ms
        committed[start] = max(committed.get(start, 0), batches[place].committed_ms)
        payloads[start].append(row.payload)
    return {start: (committed[start], payloads[start]) for start in committed}


def swept(batches: Sequence[Batch], window_end_ms: int) -> bool:
    """Whether some batch already evicted by a watermark at or after the window's end."""
    return any(batch.watermark_ms is not None and batch.watermark_ms >= window_end_ms for batch in batches)


def last_end_ms(spec: QuerySpec, to_ms: int) -> int:
    """The end of the last window whose deadline lies before `to_ms`."""
    first_ms = spec.phase_ms + spec.window_ms
    return first_ms + (to_ms - 1 - spec.delay_ms - first_ms) // spec.slide_ms * spec.slide_ms


def next_end_ms(spec: QuerySpec, watermark_ms: int) -> int:
    """The first window end after a watermark."""
    first_ms = spec.phase_ms + spec.window_ms
    return first_ms + ((watermark_ms - first_ms) // spec.slide_ms + 1) * spec.slide_ms


def is_steady(queries: Sequence[Sequence[Batch]], now_ms: int, span_ms: int, tolerance: float) -> bool:
    """Whether batch durations and the watermarks' lag are about the same in the last two spans.

    A span without any batch, or a query that has had none at all, is never steady.
    """
    mid_ms = now_ms - span_ms
    durations = [
        _median_duration_ms(queries, mid_ms - span_ms, mid_ms),
        _median_duration_ms(queries, mid_ms, now_ms),
    ]
    lags = [mean_lag_ms(queries, mid_ms - span_ms, mid_ms), mean_lag_ms(queries, mid_ms, now_ms)]
    return _close(durations, tolerance, DURATION_FLOOR_MS) and _close(lags, tolerance, LAG_FLOOR_MS)


def kept_up(queries: Sequence[Sequence[Batch]], from_ms: int, to_ms: int, tolerance: float) -> bool:
    """Whether the watermarks' lag in the last third of the measured span is about that of the first."""
    return _close(thirds_lag_ms(queries, from_ms, to_ms), tolerance, LAG_FLOOR_MS)


def thirds_lag_ms(queries: Sequence[Sequence[Batch]], from_ms: int, to_ms: int) -> tuple[float | None, float | None]:
    """The watermarks' lag in the first and in the last third of a span."""
    third_ms = (to_ms - from_ms) // 3
    return mean_lag_ms(queries, from_ms, from_ms + third_ms), mean_lag_ms(queries, to_ms - third_ms, to_ms)


def backlog_grew(backlog: Backlog, tolerance: float) -> bool:
    """Whether the queries lagged more in the last third of the span than in the first; unknown is no growth."""
    first_s, last_s = backlog.first_third_s, backlog.last_third_s
    if first_s is None or last_s is None:
        return False
    return last_s - first_s > tolerance * max(first_s, LAG_FLOOR_MS / 1000)


def _close(pair: Sequence[float | None], tolerance: float, floor: float) -> bool:
    before, after = pair
    if before is None or after is None:
        return False
    return abs(after - before) <= tolerance * max(before, floor)


def _median_duration_ms(queries: Sequence[Sequence[Batch]], from_ms: int, to_ms: int) -> float | None:
    found = [b.duration_ms for b in chain.from_iterable(queries) if from_ms <= b.committed_ms < to_ms]
    return float(np.median(found)) if found else None


def mean_lag_ms(queries: Sequence[Sequence[Batch]], from_ms: int, to_ms: int) -> float | None:
    """The age of the newest watermark, over queries and time; None while a query has no watermark yet."""
    lags = []
    for at_ms in np.linspace(from_ms, to_ms, LAG_SAMPLES, endpoint=False):
        for batches in queries:
            # Spark starts with the watermark 0, which is none.
            known = [b.watermark_ms for b in batches if b.committed_ms <= at_ms and b.watermark_ms]
            if not known:
                return None
            lags.append(at_ms - known[-1])
    return float(np.mean(lags)) if lags else None


def longest_stall_s(samples: Sequence[tuple[int, int]], from_ms: int, to_ms: int) -> float:
    """The longest time in [from_ms, to_ms) in which a counter, sampled as (wall ms, value), stood still."""
    changed = [at_ms for (_, before), (at_ms, now) in pairwise(samples) if now != before]
    marks = [from_ms, *(at_ms for at_ms in changed if from_ms < at_ms < to_ms), to_ms]
    return max(after - before for before, after in pairwise(marks)) / 1000


def distribution(values: Sequence[float]) -> Distribution:
    if not values:
        return Distribution(count=0)
    p50, p90, p99 = np.percentile(values, [50, 90, 99])
    return Distribution(
        count=len(values),
        mean=_figure(np.mean(values)),
        p50=_figure(p50),
        p90=_figure(p90),
        p99=_figure(p99),
        max=_figure(max(values)),
    )


def total(counts: Iterable[WindowCounts]) -> WindowCounts:
    found = list(counts)
    return WindowCounts(
        expected=sum(c.expected for c in found),
        emitted=sum(c.emitted for c in found),
        wrong=sum(c.wrong for c in found),
        wrong_outside=sum(c.wrong_outside for c in found),
    )


def interval(values: Iterable[float | None]) -> Interval | None:
    """Mean and Student's 95 % interval; values that are None are left out."""
    found = [value for value in values if value is not None]
    if not found:
        return None
    half = None
    if len(found) > 1:
        t = _T_975[min(len(found) - 1, len(_T_975)) - 1]
        half = _figure(t * np.std(found, ddof=1) / np.sqrt(len(found)))
    return Interval(mean=_figure(np.mean(found)), half_width_95=half, count=len(found))


def summarise(runs: Iterable[RunResult]) -> list[PolicySummary]:
    """One line for each policy, over its seeds, in the order of their first runs; sweeps are left out."""
    by_policy: dict[str, list[RunResult]] = defaultdict(list)
    for run in runs:
        if run.sweep_of is None:
            by_policy[run.policy].append(run)
    return [_summary(policy, found) for policy, found in by_policy.items()]


def _summary(policy: str, runs: Sequence[RunResult]) -> PolicySummary:
    cpu_cores = interval(run.cpu_cores for run in runs)
    assert cpu_cores is not None  # noqa: S101  # every run has CPU time
    return PolicySummary(
        policy=policy,
        steady_runs=sum(run.steady for run in runs),
        runs=len(runs),
        latency_mean_s=interval(run.latency_s.mean for run in runs),
        latency_p50_s=interval(run.latency_s.p50 for run in runs),
        latency_p90_s=interval(run.latency_s.p90 for run in runs),
        latency_p99_s=interval(run.latency_s.p99 for run in runs),
        propagation_mean_s=interval(run.propagation_s.mean for run in runs),
        cpu_cores=cpu_cores,
        slowdown_mean=interval(run.slowdown.mean for run in runs if run.slowdown),
        slowdown_p99=interval(run.slowdown.p99 for run in runs if run.slowdown),
    )


def best_of_sweep(runs: Sequence[RunResult]) -> RunResult | None:
    """The run with the least mean latency, of a mix slowdown, among the steady ones; of all where none was steady."""
    measured = [run for run in runs if run.latency_s.mean is not None]
    steady = [run for run in measured if run.steady]
    return min(steady or measured, key=lambda run: (run.slowdown or run.latency_s).mean or 0.0, default=None)


def cause_of_end(error: str) -> str:
    """Why a run ended, in one line, without the paths of a traceback."""
    if "GC overhead limit" in error:
        return "OutOfMemoryError: GC overhead limit exceeded"
    if any(sign in error for sign in ("OutOfMemory", "Java heap space", "Not enough memory")):
        return "OutOfMemoryError"
    if "ended with -9" in error:
        return "killed"
    last = error.strip().splitlines()[-1].strip() if error.strip() else "unknown"
    lost = ("ConnectionRefusedError", "ConnectionResetError", "py4j.protocol.Py4JNetworkError")
    return "Spark's JVM ended" if last.startswith(lost) else last[:200]


def _figure(value: float | np.floating[Any]) -> float:
    return round(float(value), 4)


def iso_ms(timestamp: str) -> int:
    return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
