"""What a Flink query did in a span: windows that were due, when they came out, and whether they were right.

Measured as on Spark: a window that was due and did not come out counts with the time that it has been overdue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slackwater.bench.model import WindowCounts
from slackwater.workloads.ysb import YsbOracle

if TYPE_CHECKING:
    from slackwater.bench.flink_ysb import Emitted, Printed
    from slackwater.workloads.base import QuerySpec


@dataclass(frozen=True)
class FlinkQueryResult:
    """`latencies_s`: from a window's end until its last row reached the sink."""

    windows: WindowCounts
    latencies_s: list[float] = field(default_factory=list)


def measure_query(spec: QuerySpec, printed: Printed, from_ms: int, to_ms: int, ended_ms: int) -> FlinkQueryResult:
    """Windows with a deadline in [from_ms, to_ms), by what was printed until `ended_ms`."""
    if printed.created_ms is None:
        return FlinkQueryResult(WindowCounts(expected=0, emitted=0, wrong=0, wrong_outside=0))
    oracle = YsbOracle(spec, printed.created_ms)
    by_window: dict[int, list[Emitted]] = {}
    for row in printed.rows:
        by_window.setdefault(row.window_start_ms, []).append(row)
    due = oracle.windows_due(from_ms, to_ms)
    latencies, wrong = [], 0
    for window in due:
        rows = by_window.get(window.start_ms)
        out_ms = max(row.written_ms for row in rows) if rows else ended_ms
        latencies.append((out_ms - window.end_ms) / 1000.0)
        wrong += rows is not None and _payload(rows) != oracle.expected(window.start_ms)
    starts = {window.start_ms for window in due}
    outside = sum(
        _payload(rows) != oracle.expected(start)
        for start, rows in by_window.items()
        if start not in starts and start + spec.window_ms < to_ms
    )
    emitted = sum(start in by_window for start in starts)
    return FlinkQueryResult(
        WindowCounts(expected=len(due), emitted=emitted, wrong=wrong, wrong_outside=outside), latencies
    )


def _payload(rows: list[Emitted]) -> list[tuple[int, int]]:
    return sorted((row.campaign, row.count) for row in rows)
