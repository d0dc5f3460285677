"""How much state a query holds, and how many of its rows come too late, at other batch boundaries than the recorded.

State grows with the span of event time that is open: from the watermark by which the last batch evicted to the largest
event time seen. Rows are late by Spark's rule: behind the watermark that the batch which reads them works with. A trace
tells how many each recorded batch dropped, and its least event time; in between, rows are taken to lie evenly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slackwater.core.model import BatchReport
    from slackwater.recording.reading import TracedQuery
    from slackwater.recording.records import Batch
    from slackwater.replay.measure import Span

_LEAST_BATCHES = 5


class StateModel:
    def __init__(self, query: TracedQuery) -> None:
        self._batches = [batch for batch in query.batches if batch.rows > 0]
        self._offsets = np.array([batch.offsets_wall_ts for batch in self._batches])
        self._fixed, self._per_s = _line(query.batches)

    def bytes_after(self, batch: BatchReport) -> float:
        span = _open_s(batch)
        return self._fixed + self._per_s * (span or 0.0)

    def late_rows(self, batches: Sequence[BatchReport], span: Span) -> float:
        """Of replayed batches: the rows that came between a batch and the one before, against the watermark."""
        late, before_ts = 0.0, -np.inf
        for batch in batches:
            if span.from_wall_ts <= batch.ended_wall_ts < span.to_wall_ts and batch.rows > 0:
                first, last = np.searchsorted(self._offsets, [before_ts, batch.offsets_wall_ts], side="right")
                late += sum(_late(came, batch.watermark_event_ts) for came in self._batches[first:last])
            if batch.rows > 0:
                before_ts = batch.offsets_wall_ts
        return late


def _late(came: Batch, watermark_event_ts: float) -> float:
    """How many of a recorded batch's rows a watermark would have passed."""
    least = min((seen.min_event_ts for seen in came.inputs if seen.min_event_ts is not None), default=None)
    if least is None or watermark_event_ts <= least:
        # Nobody told, or none is that old.
        return float(came.dropped_rows) if least is None else 0.0
    if watermark_event_ts >= came.watermark_event_ts:
        return float(max(came.dropped_rows, 1))
    reach = came.watermark_event_ts - least
    return came.dropped_rows * (watermark_event_ts - least) / reach if reach > 0 else 0.0


def _open_s(batch: Batch | BatchReport) -> float | None:
    largest = max((seen.max_event_ts for seen in batch.inputs if seen.max_event_ts is not None), default=None)
    evicted = batch.watermark_event_ts if batch.evicts_event_ts is None else batch.evicts_event_ts
    return None if largest is None or evicted <= 0 else max(0.0, largest - evicted)


def _line(batches: Sequence[Batch]) -> tuple[float, float]:
    """Bytes at rest and for each second that is open, least squares, neither below 0."""
    told = [(span, float(batch.state_bytes)) for batch in batches if (span := _open_s(batch)) is not None]
    if len(told) < _LEAST_BATCHES:
        return float(max((batch.state_bytes for batch in batches), default=0)), 0.0
    spans, held = np.array(told).T
    if np.ptp(spans) <= 0:
        return float(np.max(held)), 0.0
    slope = max(0.0, float(np.polyfit(spans, held, 1)[0]))
    return max(0.0, float(np.mean(held) - slope * np.mean(spans))), slope
