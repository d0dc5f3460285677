"""From results, progress reports and an oracle to the figures of a run with late rows. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from slackwater.bench.cpu import live_mb, paused_pct
from slackwater.bench.late_model import BatchTimes, LateWindows, LiveHeap
from slackwater.bench.measure import iso_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from slackwater.workloads.base import Payload

BEHIND_TOLERANCE = 0.2
BEHIND_FLOOR_S = 2.0
BEHIND_MOST_TRIGGERS = 5


@dataclass(frozen=True)
class Emitted:
    """A result of a window, as it reached the driver; `through` is the last batch whose rows are in it."""

    window_ms: int
    wall_ms: int
    revision: int
    kind: str
    through: int
    rows: list[Payload]


@dataclass(frozen=True)
class LateBatch:
    """A micro-batch that ran; `end_offset` is the source's: seconds whose rows have been processed."""

    batch_id: int
    started_ms: int
    trigger_ms: int
    add_ms: int
    end_offset: int
    watermark_ms: int

    @property
    def committed_ms(self) -> int:
        return self.started_ms + self.trigger_ms


def late_batches(progress: Iterable[Mapping[str, Any]]) -> list[LateBatch]:
    """The batches in a query's progress reports, oldest first; reports of idle triggers are left out."""
    found = []
    for report in progress:
        durations = report.get("durationMs", {})
        if "addBatch" not in durations:
            continue
        watermark = report.get("eventTime", {}).get("watermark")
        found.append(
            LateBatch(
                batch_id=int(report["batchId"]),
                started_ms=iso_ms(report["timestamp"]),
                trigger_ms=int(durations["triggerExecution"]),
                add_ms=int(durations["addBatch"]),
                end_offset=int(report["sources"][0]["endOffset"]),
                watermark_ms=0 if watermark is None else iso_ms(watermark),
            )
        )
    return sorted(found, key=lambda batch: batch.batch_id)


def due_windows(starts_ms: Iterable[int], window_ms: int, delay_ms: int, from_ms: int, to_ms: int) -> list[int]:
    """Windows whose end plus the watermark's delay lies in [from_ms, to_ms)."""
    return sorted(start for start in starts_ms if from_ms <= start + window_ms + delay_ms < to_ms)


def first_latencies_s(
    results: Iterable[Emitted], due: Sequence[int], window_ms: int, end_ms: int
) -> tuple[list[float], int]:
    """For each due window, from its end to its first result, or to `end_ms`; and how many had none."""
    first: dict[int, int] = {}
    for result in results:
        first[result.window_ms] = min(result.wall_ms, first.get(result.window_ms, result.wall_ms))
    out = {start: first[start] for start in due if start in first and first[start] <= end_ms}
    latencies_s = [(out.get(start, end_ms) - start - window_ms) / 1000 for start in due]
    return latencies_s, len(due) - len(out)


def until_last_s(results: Iterable[Emitted], window_ms: int, closed_before_ms: int) -> list[float]:
    """From a window's end to its last result, for windows that end before `closed_before_ms`."""
    last: dict[int, int] = {}
    for result in results:
        if result.window_ms + window_ms <= closed_before_ms:
            last[result.window_ms] = max(result.wall_ms, last.get(result.window_ms, 0))
    return [(wall_ms - start - window_ms) / 1000 for start, wall_ms in sorted(last.items())]


def judged_once(
    results: Iterable[Emitted], expected: Mapping[int, list[Payload]], window_ms: int, watermark_ms: int
) -> LateWindows:
    """Plain Spark: a window comes out once, whole, when the watermark has passed its end."""
    found: dict[int, list[Emitted]] = {}
    for result in results:
        found.setdefault(result.window_ms, []).append(result)
    right = sum(len(each) == 1 and sorted(each[0].rows) == expected.get(start) for start, each in found.items())
    due = {start for start in expected if start + window_ms <= watermark_ms}
    return LateWindows(right=right, wrong=len(found) - right, missing=len(due - found.keys()))


def judged_last(
    results: Iterable[Emitted],
    expected: Callable[[int], Mapping[int, list[Payload]]],
    window_ms: int,
    settled: int,
    swept_ms: int,
) -> LateWindows:
    """Ours: of each window the last result counts.

    expected: by batch, what every window must be over the rows up to it.
    settled: a batch whose rows, and those of all before, every result must have. A result that took in later batches
        must have theirs.
    swept_ms: the watermark after that batch.
    """
    last: dict[int, Emitted] = {}
    for result in results:
        if result.window_ms not in last or result.revision > last[result.window_ms].revision:
            last[result.window_ms] = result
    right = sum(
        sorted(result.rows) == expected(max(settled, result.through)).get(start) for start, result in last.items()
    )
    due = {start for start in expected(settled) if start + window_ms <= swept_ms}
    return LateWindows(right=right, wrong=len(last) - right, missing=len(due - last.keys()))


def is_behind(behind_s: Sequence[float], trigger_s: float) -> bool:
    """Does the oldest row that waits get older from the first third of the span to the last, or is it old anyway?"""
    third = len(behind_s) // 3
    if not third:
        return False
    first, last = float(np.mean(behind_s[:third])), float(np.mean(behind_s[-third:]))
    return last > first * (1 + BEHIND_TOLERANCE) + BEHIND_FLOOR_S or last > BEHIND_MOST_TRIGGERS * trigger_s


def live_heap(gc_log: str, from_ms: int, to_ms: int) -> LiveHeap:
    """Of full collections alone: G1's mixed ones leave garbage that they had no time for."""
    full = "\n".join(line for line in gc_log.splitlines() if "Pause Full" in line)
    live = live_mb(full, from_ms, to_ms)
    return LiveHeap(
        median=round(float(np.median(live)), 1) if live else None,
        max=max(live) if live else None,
        count=len(live),
        paused_pct=paused_pct(gc_log, from_ms, to_ms),
    )


def batch_times(durations_ms: Sequence[int]) -> BatchTimes:
    if not durations_ms:
        return BatchTimes(count=0)
    median, p95 = np.percentile(durations_ms, [50, 95]) / 1000
    return BatchTimes(count=len(durations_ms), median=round(float(median), 3), p95=round(float(p95), 3))
