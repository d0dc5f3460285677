"""The metric provider (Lachesis 5.2, Algorithm 3), with Haren's selective updates (Algorithms 2 and 3).

A metric declares what it needs and how it follows from that. The provider takes what the driver offers and derives the
rest, each metric once a period, and only for those queries where it can have changed since the last one: the type of a
primitive says what changes it, and a derived metric changes only where something did that it is computed from. A
primitive that the driver lacks is a configuration error that names the chain which asked for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from slackwater.errors import ConfigurationError
from slackwater.metrics.features import Dependency, derived
from slackwater.metrics.periods import Period, Since

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from slackwater.core.model import Snapshot
    from slackwater.metrics.chains import Chains, Peers
    from slackwater.metrics.features import Feature, Primitive
    from slackwater.metrics.periods import Column, Mask


Values = Sequence[float]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of each query by itself: `compute` gets the columns that it needs, and works entry by entry."""

    name: str
    about: str
    needs: tuple[str, ...]
    compute: Callable[[Sequence[Column]], Column]


@dataclass(frozen=True, slots=True)
class PathMetric:
    """A metric of a query and of its peers along the pipeline.

    `cell` gets the query's place, the columns that it needs, everybody's peers, and this metric's own values, which
    are right for the peers already.
    """

    name: str
    about: str
    needs: tuple[str, ...]
    cell: Callable[[int, Sequence[Values], Peers, Values], float]
    along: Dependency = Dependency.DOWNSTREAM


class MetricProvider:
    """For one driver: `offered` are its primitives, `catalogue` what can be derived.

    Keeps the last period's columns, so each stream of snapshots needs a provider of its own.
    """

    def __init__(self, catalogue: Iterable[Metric | PathMetric], offered: Mapping[str, Primitive], driver: str) -> None:
        self._catalogue = {metric.name: metric for metric in catalogue}
        self._offered = dict(offered)
        self._driver = driver
        self._last = Period()
        self.renewed_cells = 0

    def check(self, wanted: Iterable[str], chain: tuple[str, ...] = ()) -> None:
        """Raise ConfigurationError if a metric cannot be had, before anything is scheduled."""
        for name in wanted:
            path = (*chain, name)
            if name in chain:
                raise ConfigurationError(f"metrics that need each other: {' → '.join(path)}.")
            if name in self._offered:
                continue
            if name not in self._catalogue:
                offered = ", ".join(sorted(self._offered))
                raise ConfigurationError(
                    f"metric {' → '.join(path)}: the driver {self._driver!r} does not offer {name!r}, and nothing "
                    f"derives it. Offered are: {offered}. Choose a policy that needs other metrics."
                )
            self.check(self._catalogue[name].needs, path)

    def feature(self, name: str) -> Feature:
        """How a metric changes: as its driver says, or as follows from what it needs."""
        self.check([name])
        primitive = self._offered.get(name)
        if primitive is not None:
            return primitive.feature
        metric = self._catalogue[name]
        along = metric.along if isinstance(metric, PathMetric) else None
        return derived([self.feature(need) for need in metric.needs], along)

    def __call__(self, snapshot: Snapshot, wanted: Iterable[str]) -> dict[str, list[float]]:
        """One period: the wanted metrics, a value for each query of the snapshot."""
        names = tuple(wanted)
        period = Period(snapshot, self._last)
        renewal = _Renewal(period, Since(self._last, period), {})
        for name in names:
            self._renew(name, renewal)
        self._last = period
        return {name: period.columns[name].tolist() for name in names}

    def _renew(self, name: str, renewal: _Renewal) -> Column:
        period, since = renewal.period, renewal.since
        if name in period.columns:
            return period.columns[name]
        primitive = self._offered.get(name)
        if primitive is not None:
            column, cells = renewal.begin(name, since.stale(primitive.feature))
            value, queries, now = primitive.value, period.queries, period.wall_ts
            column[cells] = [value(queries[i], now) for i in np.flatnonzero(cells).tolist()]
        else:
            metric = self._catalogue[name]
            columns = [self._renew(need, renewal) for need in metric.needs]
            touched = since.new
            for need in metric.needs:
                touched = touched | renewal.changed[need]
            if isinstance(metric, PathMetric):
                column, cells = renewal.begin(name, since.reached(touched, metric.along))
                column = _along(metric, period.chains, columns, column, cells)
            else:
                column, cells = renewal.begin(name, touched)
                column[cells] = metric.compute([needed[cells] for needed in columns])
        renewal.end(name, column, cells)
        self.renewed_cells += int(np.count_nonzero(cells))
        return column


def _along(metric: PathMetric, chains: Chains, columns: Sequence[Column], column: Column, cells: Mask) -> Column:
    """The column with the cells to renew computed in the order of the pipelines, as plain numbers: one at a time."""
    peers, renewed = chains.peers(metric.along), cells.tolist()
    needed, values = [column.tolist() for column in columns], column.tolist()
    for i in chains.order(metric.along):
        if renewed[i]:
            values[i] = metric.cell(i, needed, peers, values)
    return np.array(values, np.float64)


@dataclass(frozen=True, slots=True)
class _Renewal:
    """One period in the making: `changed` says where a metric differs from the last period's."""

    period: Period
    since: Since
    changed: dict[str, Mask]

    def begin(self, name: str, stale: Mask) -> tuple[Column, Mask]:
        """A metric's last values, and which to renew: all where there are no last values."""
        carried = self.since.carried(name)
        if carried is not None:
            return carried, stale
        return np.full(len(self.period.queries), np.nan), self.since.everybody()

    def end(self, name: str, column: Column, cells: Mask) -> None:
        """Keep the column. What came out as it was has not changed, and nothing that follows from it alone has."""
        self.period.columns[name] = column
        carried = self.since.carried(name)
        # NaN, the value that a new query had before, differs from all.
        self.changed[name] = cells if carried is None else cells & (column != carried)
