"""What a query's sources offered, read off its batches: rows by time, and the largest event time of each input.

A batch that took all there was tells exactly what had come when it fixed its offsets; one that was held back by an
admission limit tells it through the backlog that it left. Between two batches rows are taken to have come evenly; where
an input's maxima show that rows come a second at a time, as from Spark's rate source, they come so here, too.

A query that hardly ran while it was recorded, as one does that plain Spark starves, tells little of its sources. What
is missing is taken from the query of the same shape that ran most often.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from slackwater.recording.reading import TracedQuery
    from slackwater.recording.records import Batch

    Floats = NDArray[np.float64]

_STEP_S = 1.0
_STEP_TOLERANCE_S = 0.025
_LEAST_MAXIMA = 3
_FUZZ_S = 1e-6
_TAIL = 20


@dataclass(frozen=True)
class _Steps:
    """Rows of an input come in clumps, one a second of event time, that end so long after a whole second."""

    phase_s: float
    lag_s: float

    def readable_s(self, now_s: float) -> float:
        return math.floor((now_s - self.lag_s - self.phase_s) / _STEP_S + _FUZZ_S) * _STEP_S + self.phase_s


def shape_of(query: TracedQuery) -> object:
    """Queries that look alike in their plans, as far as a trace tells."""
    about = query.about
    sizes = tuple((size, slide) for size, slide, _ in about.windows)
    return sizes, about.input_delays_s, about.stateful, about.emits_at_sweep


def recorded_streams(queries: Sequence[TracedQuery], start_wall_ts: float) -> list[RecordedStream]:
    """Of each query, in order; those that tell too little borrow from their likes."""
    best: dict[object, TracedQuery] = {}
    for query in queries:
        shape = shape_of(query)
        if shape not in best or _telling(query) > _telling(best[shape]):
            best[shape] = query
    lenders = {
        shape: RecordedStream(query, start_wall_ts) for shape, query in best.items() if _telling(query) >= _LEAST_MAXIMA
    }
    return [RecordedStream(query, start_wall_ts, lenders.get(shape_of(query))) for query in queries]


def _telling(query: TracedQuery) -> int:
    return sum(batch.rows > 0 for batch in query.batches)


class RecordedStream:
    """A `slackwater.testing.Stream`; times count from `start_wall_ts`. `like`: who lends what this one cannot tell."""

    def __init__(self, query: TracedQuery, start_wall_ts: float, like: RecordedStream | None = None) -> None:
        # One without rows tells that none had come.
        batches = [batch for batch in query.batches if batch.rows > 0 or not batch.limited]
        taken = np.cumsum([0, *(batch.rows for batch in batches)]).astype(np.float64)
        at_s = [batch.offsets_wall_ts - start_wall_ts for batch in batches]
        begins_s = min([query.about.wall_ts - start_wall_ts, *at_s])
        came = [done + (batch.backlog_rows or 0) for done, batch in zip(taken[1:], batches, strict=True)]
        self._came_s = np.array([begins_s, *at_s])
        self._came = np.maximum.accumulate(np.array([0.0, *came]))
        limited = any(batch.limited or batch.backlog_rows for batch in batches)
        self._inputs = [
            _Input.of(batches, place, at_s, taken, start_wall_ts, limited=limited)
            for place in range(len(query.about.input_delays_s))
        ]
        if like is not None and _telling(query) < _LEAST_MAXIMA:
            self._inputs = [
                own.borrowing(lent)
                for own, lent in zip(self._inputs, like._inputs, strict=True)  # noqa: SLF001
            ]
        steps = [one.steps for one in self._inputs if one.steps is not None]
        self._steps = steps if len(steps) == len(self._inputs) else []
        self._rate = self._tail_rate()
        if like is not None and self._came[-1] <= 0:
            self._rate = like._rate  # noqa: SLF001
            self._came_s, self._came = self._came_s[:1], self._came[:1]

    def _tail_rate(self) -> float:
        """Rows a second towards the end, for what comes after the last batch."""
        back = max(0, len(self._came) - _TAIL)
        seconds = self._came_s[-1] - self._came_s[back]
        return float((self._came[-1] - self._came[back]) / seconds) if seconds > 0 else 0.0

    @property
    def stepped(self) -> bool:
        """Rows come a second at a time."""
        return bool(self._steps)

    def rows_readable(self, now_s: float) -> int:
        at_s = now_s
        if self._steps:
            # The clump that is under way has not come; where inputs differ, the last that came decides.
            at_s = now_s - min(now_s - step.lag_s - step.readable_s(now_s) for step in self._steps)
        if at_s > self._came_s[-1]:
            return int(self._came[-1] + self._rate * (at_s - self._came_s[-1]))
        return int(np.interp(at_s, self._came_s, self._came) + _FUZZ_S)

    def maxima_s(self, now_s: float, rows: int) -> tuple[float | None, ...]:
        return tuple(one.maximum_s(now_s, rows, self._rate) for one in self._inputs)

    def rows_between(self, from_event_s: float, to_event_s: float) -> float:
        """A rough count: what matters is whether a window has any."""
        if not self._inputs or not len(self._inputs[0].maxima_s):
            return self._rate * (to_event_s - from_event_s)
        maxima_s, taken = self._inputs[0].maxima_s, self._inputs[0].taken
        if to_event_s >= maxima_s[-1]:
            return max(1.0, self._rate * (to_event_s - from_event_s))
        rows = float(np.interp(to_event_s, maxima_s, taken) - np.interp(from_event_s, maxima_s, taken, left=0.0))
        # A window before the first maximum ends within the first batch, which had rows.
        return max(1.0, rows) if rows > 0 or to_event_s > maxima_s[0] - (to_event_s - from_event_s) else 0.0


@dataclass(frozen=True)
class _Input:
    """After each batch that had rows of this input: its largest event time so far, and rows taken of all inputs."""

    maxima_s: Floats
    taken: Floats
    first_s: float  # while the first of these batches gathered its rows
    steps: _Steps | None

    @staticmethod
    def of(
        batches: Sequence[Batch],
        place: int,
        at_s: Sequence[float],
        taken: Floats,
        start_wall_ts: float,
        *,
        limited: bool,
    ) -> _Input:
        told = [
            (at, rows, batch.inputs[place].max_event_ts)
            for at, rows, batch in zip(at_s, taken[1:], batches, strict=True)
            if place < len(batch.inputs)
        ]
        known = [(at, rows, largest - start_wall_ts) for at, rows, largest in told if largest is not None]
        maxima_s = np.maximum.accumulate(np.array([largest for _, _, largest in known]))
        times = [at for at, _, _ in known]
        return _Input(
            maxima_s=maxima_s,
            taken=np.array([rows for _, rows, _ in known]),
            first_s=max(0.0, times[0]) if times else 0.0,
            steps=None if limited else _steps_of(maxima_s, times),
        )

    def borrowing(self, lent: _Input) -> _Input:
        """Where the other's rows come a second at a time, these do, at their own place of a second if that is known."""
        if self.steps is not None or lent.steps is None:
            return self
        phase_s = float(self.maxima_s[-1] % _STEP_S) if len(self.maxima_s) else lent.steps.phase_s
        return replace(self, steps=_Steps(phase_s, lent.steps.lag_s))

    def maximum_s(self, now_s: float, rows: int, rows_per_s: float) -> float | None:
        if self.steps is not None:
            return self.steps.readable_s(now_s)
        if not len(self.maxima_s):
            return None
        if rows > self.taken[-1]:
            more_s = (rows - self.taken[-1]) / rows_per_s if rows_per_s > 0 else 0.0
            return float(self.maxima_s[-1] + more_s)
        if rows < self.taken[0]:
            # Within the first batch: as fast as time went while it gathered.
            return float(self.maxima_s[0] - self.first_s * (1 - rows / self.taken[0]))
        return float(np.interp(rows, self.taken, self.maxima_s))


def _steps_of(maxima_s: Floats, at_s: Sequence[float]) -> _Steps | None:
    """Whether all maxima end at one place of a second; then how soon after it they were read at the soonest."""
    if len(maxima_s) < _LEAST_MAXIMA:
        return None
    off = (maxima_s - maxima_s[0] + _STEP_S / 2) % _STEP_S - _STEP_S / 2
    if float(np.quantile(np.abs(off), 0.9)) > _STEP_TOLERANCE_S:
        return None
    phase_s = float((maxima_s[0] + np.median(off)) % _STEP_S)
    return _Steps(phase_s, max(0.0, min(at - one for at, one in zip(at_s, maxima_s, strict=True))))
