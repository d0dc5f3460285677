"""Metrics of operators of any engine, for the middleware: what a driver may offer, and what follows from it.

A driver offers the primitives that its engine measures, in whatever granularity; the same policy then runs on all
(Lachesis 5.2, Table 1). What a driver offers itself goes before what could be derived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from slackwater.metrics.catalogue import CATALOGUE
from slackwater.metrics.graph import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slackwater.metrics.graph import PathMetric
    from slackwater.metrics.periods import Column

PRIMITIVES: dict[str, str] = {
    "queue-rows": "rows that wait",
    "head-age-s": "how long the oldest of them has waited",
    "rows-per-s": "rows taken a second",
    "rows-out-per-s": "rows written a second",
    "busy-share": "seconds of work a second",
    "row-cost-s": "work for a row",
    "batch-cost-s": "work for a batch, however many rows it has; 0 where there are none",
    "sweep-cost-s": "work for bringing out windows",
    "selectivity": "rows written for a row taken",
    "state-bytes": "memory that it holds",
}

_LEAST_RATE = 1e-9


def _row_cost(columns: Sequence[Column]) -> Column:
    busy, rows = columns
    return np.divide(busy, rows, out=np.zeros_like(busy), where=rows > _LEAST_RATE)


def _selectivity(columns: Sequence[Column]) -> Column:
    rows_out, rows = columns
    return np.divide(rows_out, rows, out=np.ones_like(rows), where=rows > _LEAST_RATE)


def _head_age(columns: Sequence[Column]) -> Column:
    """Little's law: what waits, at the pace at which it is taken; a second for each row where none is."""
    queue, rows = columns
    return queue / np.maximum(rows, 1.0)


def _no_cost(columns: Sequence[Column]) -> Column:
    return np.zeros_like(columns[0])


HOST_CATALOGUE: tuple[Metric | PathMetric, ...] = (
    *CATALOGUE,
    Metric("row-cost-s", "work a second over rows a second", ("busy-share", "rows-per-s"), _row_cost),
    Metric("selectivity", "rows out over rows in", ("rows-out-per-s", "rows-per-s"), _selectivity),
    Metric("head-age-s", "rows that wait over rows a second", ("queue-rows", "rows-per-s"), _head_age),
    Metric("batch-cost-s", "none, in an engine without batches", ("rows-per-s",), _no_cost),
    Metric("sweep-cost-s", "none, in an engine without batches", ("rows-per-s",), _no_cost),
)
