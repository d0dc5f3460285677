"""What a batch costs: a + b·rows, learnt online from the batches that ran.

The first batches of a query compile code and are slow, a collection or a noisy neighbour makes outliers, so the
line is a median one (Theil–Sen over the last batches) and young queries lean on what they have.
An engine that works event by event has no batches to pay for: there b is all that there is to learn.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_Sample = tuple[int, float]

_FIRST_COST_S = 0.5
_WARMUP_BATCHES = 2
_ROWS_MEMORY = 0.9
_NEIGHBOURS = 8


class CostModel:
    """Learns a (fixed cost of a batch), b (cost of a row) and the fixed cost of a batch without rows."""

    def __init__(self, history: int = 32) -> None:
        self._samples: deque[_Sample] = deque(maxlen=history)
        self._slopes: list[float] = []  # between batches and those soon after, sorted
        self._seen = 0
        self._fixed_s = _FIRST_COST_S
        self._row_s = 0.0
        self._sweep_s = _FIRST_COST_S

    def observe(self, rows: int, duration_s: float) -> None:
        self._seen += 1
        if self._seen == _WARMUP_BATCHES + 1:
            self._samples.clear()
            self._slopes.clear()
        if len(self._samples) == self._samples.maxlen:
            oldest = self._samples.popleft()
            for slope in _slopes((oldest, later) for later in islice(self._samples, _NEIGHBOURS)):
                del self._slopes[bisect_left(self._slopes, slope)]
        newest = (rows, duration_s)
        for slope in _slopes((earlier, newest) for earlier in islice(reversed(self._samples), _NEIGHBOURS)):
            insort(self._slopes, slope)
        self._samples.append(newest)
        self._fit()

    @property
    def fixed_s(self) -> float:
        return self._fixed_s

    @property
    def row_s(self) -> float:
        return self._row_s

    @property
    def sweep_s(self) -> float:
        return self._sweep_s

    def batch_s(self, rows: float) -> float:
        return self._fixed_s + self._row_s * rows

    def _fit(self) -> None:
        samples = list(self._samples)
        shortest_s = min([t for _, t in samples])
        row_s = self._row_s = max(0.0, median(self._slopes)) if self._slopes else 0.0
        self._fixed_s = max(shortest_s / 2, median([t - row_s * n for n, t in samples]))
        recent = samples[-9:]
        least_rows = min([n for n, _ in recent])
        self._sweep_s = median([t for n, t in recent if n <= 2 * least_rows + 1])


def _slopes(pairs: Iterable[tuple[_Sample, _Sample]]) -> list[float]:
    return [(t2 - t1) / (n2 - n1) for (n1, t1), (n2, t2) in pairs if n1 != n2]


class RowCost:
    """b alone, for an engine without a fixed cost: seconds over rows, of the last few reports that had any."""

    fixed_s = 0.0
    sweep_s = 0.0

    def __init__(self) -> None:
        self._rows = 0.0
        self._spent_s = 0.0

    def observe(self, rows: int, duration_s: float) -> None:
        if rows > 0:
            self._rows = _ROWS_MEMORY * self._rows + rows
            self._spent_s = _ROWS_MEMORY * self._spent_s + duration_s

    @property
    def row_s(self) -> float:
        return self._spent_s / self._rows if self._rows else 0.0

    def batch_s(self, rows: float) -> float:
        return self.row_s * rows
