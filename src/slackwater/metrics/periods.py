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
Mask = NDArray[np.bool_]


class Period:
    """The columns of one snapshot. What only queries that come, go or are chained anew change is the last period's."""

    def __init__(self, snapshot: Snapshot | None = None, last: Period | None = None) -> None:
        self.wall_ts = snapshot.wall_ts if snapshot is not None else 0.0
        self.queries = snapshot.queries if snapshot is not None else ()
        keys = [query.key for query in self.queries]
        self.keys: list[str] = last.keys if last is not None and last.keys == keys else keys
        downstream = [query.downstream for query in self.queries]
        known = last.chains if last is not None and last.keys is self.keys else None
        self.chains: Chains = (
            known if known is not None and known.downstream == downstream else Chains(keys, downstream)
        )
        self.batches = np.array([query.batches for query in self.queries], np.float64)
        self.offsets_wall_ts = np.array([query.offsets_wall_ts for query in self.queries], np.float64)
        self.columns: dict[str, Column] = {}


class Since:
    """What can have changed from one period to the next, as a mask over this one's queries.

    A query ran if it has more batches behind it; its offsets tell it from another one that took its key.
    """

    def __init__(self, last: Period, this: Period) -> None:
        self._last, self._this = last, this
        self._then = _places_then(last, this)
        self.new: Mask = self._then < 0
        self._ran: Mask = self.new | (this.batches != self._as_now(last.batches))
        self._ran |= this.offsets_wall_ts != self._as_now(last.offsets_wall_ts)

    def everybody(self) -> Mask:
        return np.ones(len(self._this.keys), np.bool_)

    def stale(self, feature: Feature) -> Mask:
        """Where a primitive can have changed."""
        if Dependency.CLOCK in feature.depends_on:
            return self.everybody()
        if feature.static:
            return self.new
        found = self._ran
        for along in feature.depends_on:
            found = found | self.reached(self._ran, along)
        return found

    def reached(self, changed: Mask, along: Dependency) -> Mask:
        """Those that changed or whose peers did, and those that have other peers now."""
        return self._this.chains.reached(changed | self._rewired(along), along)

    def carried(self, name: str) -> Column | None:
        """A metric's last values in today's order, NaN for new queries; None if the last period did not have it."""
        values = self._last.columns.get(name)
        return None if values is None else np.where(self.new, np.nan, self._as_now(values))

    def _as_now(self, values: Column) -> Column:
        """The last period's values in today's order; anything for new queries."""
        return values[self._then] if len(values) else np.zeros(len(self._then))

    def _rewired(self, along: Dependency) -> Mask:
        here, there = self._this.chains, self._last.chains
        if here is there:
            return np.zeros(len(self._then), np.bool_)
        pairs = enumerate(self._then.tolist())
        return np.array(
            [then >= 0 and here.neighbours(now, along) != there.neighbours(then, along) for now, then in pairs],
            np.bool_,
        )


def _places_then(last: Period, this: Period) -> NDArray[np.intp]:
    """Where each of this period's queries stood in the last; -1 where it was not there."""
    if this.keys is last.keys:
        return np.arange(len(this.keys), dtype=np.intp)
    places = {key: place for place, key in enumerate(last.keys)}
    return np.array([places.get(key, -1) for key in this.keys], np.intp)
