"""Latencies of a span, in the same way for what was recorded and for what was replayed.

A window has left when a batch whose watermark had passed its end is over; its latency counts from the window's end. A
window that was due in the span and did not leave by the end of the trace counts with how overdue it is then. A query
without windows counts, for each batch with rows, from when the batch before fixed its offsets: what its oldest row may
have waited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from slackwater.core.model import QueryFacts

_MOST_WINDOWS = 200_000


class Ran(Protocol):
    """A batch, recorded or replayed."""

    @property
    def offsets_wall_ts(self) -> float: ...

    @property
    def ended_wall_ts(self) -> float: ...

    @property
    def duration_s(self) -> float: ...

    @property
    def rows(self) -> int: ...

    @property
    def watermark_event_ts(self) -> float: ...

    @property
    def evicts_event_ts(self) -> float | None: ...


@dataclass(frozen=True)
class Span:
    """Windows with a deadline in [from, to) are due; they may leave until `end`."""

    from_wall_ts: float
    to_wall_ts: float
    end_wall_ts: float

    @property
    def seconds(self) -> float:
        return self.to_wall_ts - self.from_wall_ts


@dataclass(frozen=True)
class QueryLatency:
    """`latencies_s` has one figure for each window that was due, or each batch of a query without windows."""

    latencies_s: tuple[float, ...]
    due: int
    left: int
    batches: int
    rows: int
    busy_s: float


def measured(facts: QueryFacts, batches: Sequence[Ran], span: Span, after_event_ts: float) -> QueryLatency:
    """`after_event_ts`: windows that end by then are not counted: who emitted them is not known."""
    inside = [batch for batch in batches if span.from_wall_ts <= batch.ended_wall_ts < span.to_wall_ts]
    if facts.windows and facts.emits_at_sweep:
        latencies_s, due, left = _windows(facts, batches, span, after_event_ts)
    else:
        latencies_s = list(_batches(batches, span))
        due = left = len(latencies_s)
    return QueryLatency(
        latencies_s=tuple(latencies_s),
        due=due,
        left=left,
        batches=len(inside),
        rows=sum(batch.rows for batch in inside),
        busy_s=float(sum(batch.duration_s for batch in inside)),
    )


def _windows(
    facts: QueryFacts, batches: Sequence[Ran], span: Span, after_event_ts: float
) -> tuple[list[float], int, int]:
    passed = np.maximum.accumulate([passed_by(batch) for batch in batches]) if batches else np.empty(0)
    ended = np.array([batch.ended_wall_ts for batch in batches])
    latencies_s, left = [], 0
    ends = [end for end in _due(facts, span) if end > after_event_ts]
    for end in ends:
        place = int(np.searchsorted(passed, end))
        out = ended[place] if place < len(ended) else np.inf
        left += bool(out <= span.end_wall_ts)
        latencies_s.append(float(min(out, span.end_wall_ts) - end))
    return latencies_s, len(ends), left


def passed_by(batch: Ran) -> float:
    """The watermark by which a batch emitted windows."""
    return batch.watermark_event_ts if batch.evicts_event_ts is None else batch.evicts_event_ts


def _due(facts: QueryFacts, span: Span) -> Iterator[float]:
    delay_s = facts.delay_s
    end = facts.next_window_end(span.from_wall_ts - delay_s - 1e-6)
    for _ in range(_MOST_WINDOWS):
        if end is None or end + delay_s >= span.to_wall_ts:
            return
        yield end
        end = facts.next_window_end(end)


def _batches(batches: Sequence[Ran], span: Span) -> Iterator[float]:
    before: Ran | None = None
    for batch in batches:
        if before is not None and batch.rows > 0 and span.from_wall_ts <= batch.ended_wall_ts < span.to_wall_ts:
            yield batch.ended_wall_ts - before.offsets_wall_ts
        before = batch
