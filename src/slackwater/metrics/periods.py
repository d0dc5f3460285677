"""What a period knows of the one before: which queries came, ran or were chained anew, and which values still hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from slackwater.metrics.chains import Chains
from slackwater.metrics.features import Dependency

if TYPE_CHECKING:
    from slackwater.core.model import Snapshot
    from slackwater.metrics.features import Feature

Column = NDArray[np.float64]


class Period:
    """The columns of one snapshot."""

    def __init__(self, snapshot: Snapshot | None = None, chains: Chains | None = None) -> None:
        self.wall_ts = snapshot.wall_ts if snapshot is not None else 0.0
        self.queries = snapshot.queries if snapshot is not None else ()
        chained = tuple((query.key, query.downstream) for query in self.queries)
        self.chains = chains if chains is not None and chains.names == chained else Chains(self.queries)
        self.places = {query.key: place for place, query in enumerate(self.queries)}
        self.columns: dict[str, Column] = {}


class Since:
    """What can have changed from one period to the next.

    A query ran if it has more batches behind it; its offsets tell it from another one that took its key.
    """

    def __init__(self, last: Period, this: Period) -> None:
        self._last, self._this = last, this
        kept = [(now, last.places[key]) for key, now in this.places.items() if key in last.places]
        self.new = set(this.places.values()).difference(now for now, _ in kept)
        self._ran = self.new.union(now for now, then in kept if _stamp(this, now) != _stamp(last, then))
        self._kept = np.array([now for now, _ in kept], np.intp)
        self._kept_then = np.array([then for _, then in kept], np.intp)
        self._rewired: dict[Dependency, set[int]] = {}
        for along in (Dependency.DOWNSTREAM, Dependency.UPSTREAM):
            here, there = this.chains, last.chains
            pairs = kept if here is not there else []
            moved = {now for now, then in pairs if here.neighbours(now, along) != there.neighbours(then, along)}
            self._rewired[along] = moved

    def stale(self, feature: Feature) -> set[int]:
        """Where a primitive can have changed."""
        if Dependency.CLOCK in feature.depends_on:
            return set(self._this.places.values())
        if feature.static:
            return self.new
        return self._ran.union(*(self.reached(self._ran, along) for along in feature.depends_on))

    def reached(self, changed: set[int], along: Dependency) -> set[int]:
        """Those that changed or whose peers did, and those that have other peers now."""
        return self._this.chains.reached(changed | self._rewired[along], along)

    def carried(self, name: str) -> Column | None:
        """A metric's last values in today's order, NaN for new queries; None if the last period did not have it."""
        values = self._last.columns.get(name)
        if values is None:
            return None
        column = np.full(len(self._this.queries), np.nan)
        column[self._kept] = values[self._kept_then]
        return column


def _stamp(period: Period, place: int) -> tuple[int, float]:
    query = period.queries[place]
    return query.batches, query.offsets_wall_ts
