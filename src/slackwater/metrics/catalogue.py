"""Metrics that can be derived, and the primitives that a snapshot of queries offers, with their types.

Queries chained through tables or topics form a DAG; what the papers call operators are queries here. A fork sends each
row to every reader, so path metrics add up over readers; a join is read by its one successor like anything else.

What was measured on batches changes only when a query runs. What waits for it grows by itself: rows that a writer
upstream sends are estimated from their rate, so a queue depends on the clock and not on who ran.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from slackwater.metrics.features import MEASURED, STATIC, TICKING, Primitive
from slackwater.metrics.graph import Metric, PathMetric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slackwater.metrics.chains import Peers
    from slackwater.metrics.graph import Values
    from slackwater.metrics.periods import Column

_LEAST_COST_S = 1e-9
_LONGEST_CHAIN = 16

OFFERED: dict[str, Primitive] = {
    "queue-rows": Primitive(lambda query, _: query.backlog_rows, TICKING),
    "head-age-s": Primitive(lambda query, wall_ts: max(0.0, wall_ts - query.offsets_wall_ts), TICKING),
    "rows-per-s": Primitive(lambda query, _: query.rows_per_s, MEASURED),
    "row-cost-s": Primitive(lambda query, _: query.row_cost_s, MEASURED),
    "batch-cost-s": Primitive(lambda query, _: query.batch_cost_s, MEASURED),
    "sweep-cost-s": Primitive(lambda query, _: query.sweep_cost_s, MEASURED),
    "selectivity": Primitive(lambda query, _: query.selectivity, MEASURED),
    "state-bytes": Primitive(lambda query, _: float(query.state_bytes), MEASURED),
    "priority-class": Primitive(lambda query, _: float(query.priority_class), STATIC),
}


def _turn_cost(columns: Sequence[Column]) -> Column:
    batch, row, queue, sweep = columns
    return batch + row * queue + sweep


def _cost(columns: Sequence[Column]) -> Column:
    batch, row, queue = columns
    return np.maximum(_LEAST_COST_S, row + batch / np.maximum(1.0, queue))


def _load(columns: Sequence[Column]) -> Column:
    batch, row, rate = columns
    return batch + row * rate


def _path_selectivity(index: int, columns: Sequence[Values], readers: Peers, path: Values) -> float:
    (selectivity,) = columns
    onward = sum(path[reader] for reader in readers[index]) if readers[index] else 1.0
    return float(selectivity[index] * onward)


def _path_cost(index: int, columns: Sequence[Values], readers: Peers, path: Values) -> float:
    cost, selectivity = columns
    return float(cost[index] + selectivity[index] * sum(path[reader] for reader in readers[index]))


def _path_rate(columns: Sequence[Column]) -> Column:
    selectivity, cost = columns
    return selectivity / np.maximum(_LEAST_COST_S, cost)


def _chain_slope(index: int, columns: Sequence[Values], readers: Peers, _: Values) -> float:
    """Steepest fall of the progress chart from a query on: rows gone a second, best prefix of its paths.

    What the last one of a path writes has left the pipeline, and its memory: the chart ends at 0.
    """
    cost, selectivity = columns

    def steepest(index: int, left: float, spent_s: float, depth: int) -> float:
        spent_s += left * cost[index]
        left *= selectivity[index] if readers[index] else 0.0
        slope = float((1.0 - left) / max(_LEAST_COST_S, spent_s))
        if depth == 0:
            return slope
        return max([slope, *(steepest(reader, left, spent_s, depth - 1) for reader in readers[index])])

    return steepest(index, 1.0, 0.0, _LONGEST_CHAIN)


CATALOGUE: tuple[Metric | PathMetric, ...] = (
    Metric(
        "turn-cost-s",
        "taking all that waits, and sweeping",
        ("batch-cost-s", "row-cost-s", "queue-rows", "sweep-cost-s"),
        _turn_cost,
    ),
    Metric("cost-s", "of a row, the batch's fixed cost shared", ("batch-cost-s", "row-cost-s", "queue-rows"), _cost),
    Metric(
        "load",
        "seconds of work a second, at a batch a second",
        ("batch-cost-s", "row-cost-s", "rows-per-s"),
        _load,
    ),
    PathMetric("path-selectivity", "rows out of the pipeline, a row in", ("selectivity",), _path_selectivity),
    PathMetric("path-cost-s", "of a row through the rest of the pipeline", ("cost-s", "selectivity"), _path_cost),
    Metric("path-rate", "rows out a second of work: highest rate", ("path-selectivity", "path-cost-s"), _path_rate),
    PathMetric("chain-slope", "rows gone a second of work: Chain", ("cost-s", "selectivity"), _chain_slope),
)
