"""Metrics that can be derived, and the primitives that a snapshot of queries offers.

Queries chained through tables or topics form a DAG; what the papers call operators are queries here. A fork sends each
row to every reader, so path metrics add up over readers; a join is read by its one successor like anything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from slackwater.metrics.graph import Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slackwater.core.model import QueryView, Snapshot
    from slackwater.metrics.graph import Column, Downstream, Offer

_LEAST_COST_S = 1e-9


def _offer(value: Callable[[QueryView], float]) -> Offer:
    def column(snapshot: Snapshot) -> Column:
        return np.fromiter((value(query) for query in snapshot.queries), np.float64, len(snapshot.queries))

    return column


def _head_age(snapshot: Snapshot) -> Column:
    offsets = np.fromiter((q.offsets_wall_ts for q in snapshot.queries), np.float64, len(snapshot.queries))
    return np.maximum(0.0, snapshot.wall_ts - offsets)


OFFERED: dict[str, Offer] = {
    "queue-rows": _offer(lambda query: query.backlog_rows),
    "head-age-s": _head_age,
    "rows-per-s": _offer(lambda query: query.rows_per_s),
    "row-cost-s": _offer(lambda query: query.row_cost_s),
    "batch-cost-s": _offer(lambda query: query.batch_cost_s),
    "sweep-cost-s": _offer(lambda query: query.sweep_cost_s),
    "selectivity": _offer(lambda query: query.selectivity),
    "state-bytes": _offer(lambda query: float(query.state_bytes)),
}


def _turn_cost(columns: Sequence[Column], _: Downstream) -> Column:
    batch, row, queue, sweep = columns
    return batch + row * queue + sweep


def _cost(columns: Sequence[Column], _: Downstream) -> Column:
    batch, row, queue = columns
    return np.maximum(_LEAST_COST_S, row + batch / np.maximum(1.0, queue))


def _path_selectivity(columns: Sequence[Column], downstream: Downstream) -> Column:
    (selectivity,) = columns
    return _along(downstream, lambda i, readers: selectivity[i] * (sum(readers) if readers else 1.0))


def _path_cost(columns: Sequence[Column], downstream: Downstream) -> Column:
    cost, selectivity = columns
    return _along(downstream, lambda i, readers: cost[i] + selectivity[i] * sum(readers))


def _path_rate(columns: Sequence[Column], _: Downstream) -> Column:
    selectivity, cost = columns
    return selectivity / np.maximum(_LEAST_COST_S, cost)


def _chain_slope(columns: Sequence[Column], downstream: Downstream) -> Column:
    """Steepest fall of the progress chart from each query on: rows discarded a second, best prefix of its paths."""
    cost, selectivity = columns

    def steepest(index: int, left: float, spent_s: float, depth: int) -> float:
        spent_s += left * cost[index]
        left *= selectivity[index]
        slope = float((1.0 - left) / max(_LEAST_COST_S, spent_s))
        if depth == 0:
            return slope
        return max([slope, *(steepest(reader, left, spent_s, depth - 1) for reader in downstream[index])])

    return np.array([steepest(i, 1.0, 0.0, 16) for i in range(len(cost))], np.float64)


def _along(downstream: Downstream, combine: Callable[[int, list[float]], float]) -> Column:
    """A value for each query from those of its readers; a cycle counts as an end."""
    known: dict[int, float] = {}

    def value(index: int, above: frozenset[int]) -> float:
        if index not in known:
            readers = [value(reader, above | {index}) for reader in downstream[index] if reader not in above | {index}]
            known[index] = float(combine(index, readers))
        return known[index]

    return np.array([value(i, frozenset()) for i in range(len(downstream))], np.float64)


CATALOGUE: tuple[Metric, ...] = (
    Metric(
        "turn-cost-s",
        "taking all that waits, and sweeping",
        ("batch-cost-s", "row-cost-s", "queue-rows", "sweep-cost-s"),
        _turn_cost,
    ),
    Metric("cost-s", "of a row, the batch's fixed cost shared", ("batch-cost-s", "row-cost-s", "queue-rows"), _cost),
    Metric("path-selectivity", "rows out at the end of the pipeline, a row in", ("selectivity",), _path_selectivity),
    Metric("path-cost-s", "of a row through the rest of the pipeline", ("cost-s", "selectivity"), _path_cost),
    Metric("path-rate", "rows out a second of work: highest rate", ("path-selectivity", "path-cost-s"), _path_rate),
    Metric("chain-slope", "rows discarded a second of work: Chain", ("cost-s", "selectivity"), _chain_slope),
)
