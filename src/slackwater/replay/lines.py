"""What a batch costs alone, a + b·rows, fitted to batches that were seen. Pure arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from slackwater.replay.company import median_slope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

TASK_SHARE = 0.4  # where a trace does not tell how long addBatch took
_TASKS_OF_ADD_BATCH = 0.6  # what is left of it is planning and committing, in the driver
_FACTORS = 50


@dataclass(frozen=True)
class QueryCost:
    """a + b·rows for a batch with rows, one figure for one without; alone on the cores."""

    batch_s: float
    row_s: float
    empty_s: float

    def alone_s(self, rows: Floats) -> Floats:
        found: Floats = np.where(rows > 0, self.batch_s + self.row_s * rows, self.empty_s)
        return found

    def scaled(self, times: float) -> QueryCost:
        return QueryCost(self.batch_s * times, self.row_s * times, self.empty_s * times)


def median_line(
    rows: Floats, alone_s: Floats, usual: QueryCost | None = None, most_row_s: float = math.inf
) -> QueryCost:
    """A median line through the batches with rows (Theil and Sen), and the median of those without.

    usual: what is taken for batches with rows where there are none. most_row_s: b is no greater.
    """
    with_rows = rows > 0
    n, t = rows[with_rows], alone_s[with_rows]
    empty_s = float(np.median(alone_s[~with_rows])) if (~with_rows).any() else None
    if not len(n):
        if usual is not None:
            return QueryCost(usual.batch_s, usual.row_s, usual.empty_s if empty_s is None else empty_s)
        return QueryCost(empty_s or 0.1, 0.0, empty_s or 0.1)
    if np.ptp(n) >= np.median(n) / 10:
        row_s = max(0.0, median_slope(n, t))
    else:
        # All alike: where the line starts is known from the empty ones alone.
        row_s = max(0.0, float((np.median(t) - empty_s) / np.median(n))) if empty_s is not None else 0.0
    row_s = min(row_s, most_row_s)
    batch_s = max(float(np.min(t)) / 2, float(np.median(t - row_s * n)))
    return QueryCost(batch_s, row_s, batch_s if empty_s is None else empty_s)


def factors_of(ratios: Floats) -> tuple[float, ...]:
    """How far batches are from their line, as quantiles from which to draw."""
    places = (np.arange(_FACTORS) + 0.5) / _FACTORS
    return tuple(round(float(factor), 4) for factor in np.quantile(ratios, places))


def task_share(add_batch_shares: Sequence[float]) -> float:
    """How much of a batch its tasks are, from the shares that `addBatch` had of batches that tell it."""
    if not add_batch_shares:
        return TASK_SHARE
    return _TASKS_OF_ADD_BATCH * min(1.0, float(np.median(add_batch_shares)))
