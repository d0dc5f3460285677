"""Who reads from whom: the pipelines that the queries of a snapshot form."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

import numpy as np

from slackwater.metrics.features import Dependency

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slackwater.metrics.periods import Mask

Peers = Sequence[tuple[int, ...]]


class Chains:
    """The pipelines of some queries, by their places: `downstream` are the keys that read from each.

    Readers that are not among them are passed over.

    `peers` is free of cycles, so that values can be computed along it: a reader that feeds its writer again counts as
    an end. `reached` follows the cycles, too.
    """

    def __init__(self, keys: Sequence[str], downstream: Sequence[tuple[str, ...]]) -> None:
        places = {key: index for index, key in enumerate(keys)}
        self.keys, self.downstream = keys, downstream
        self._readers = [tuple(places[key] for key in readers if key in places) for readers in downstream]
        self._linked = any(self._readers)
        self._writers = _turned(self._readers)
        try:
            ends = self._readers
            order = list(TopologicalSorter(dict(enumerate(ends))).static_order())
        except CycleError:
            ends = [
                tuple(reader for reader in readers if index not in _closure([reader], self._readers))
                for index, readers in enumerate(self._readers)
            ]
            order = list(TopologicalSorter(dict(enumerate(ends))).static_order())
        self._peers = {Dependency.DOWNSTREAM: ends, Dependency.UPSTREAM: _turned(ends)}
        self._order = {Dependency.DOWNSTREAM: order, Dependency.UPSTREAM: order[::-1]}

    def peers(self, along: Dependency) -> Peers:
        """For each query those next to it: readers downstream, or writers upstream."""
        return self._peers[along]

    def order(self, along: Dependency) -> Sequence[int]:
        """All queries, each after its peers."""
        return self._order[along]

    def reached(self, changed: Mask, along: Dependency) -> Mask:
        """Who looks at those that changed, directly or through others, if everybody looks along this way."""
        if not self._linked:
            return changed
        towards = self._writers if along is Dependency.DOWNSTREAM else self._readers
        found = np.zeros(len(changed), np.bool_)
        found[list(_closure(np.flatnonzero(changed).tolist(), towards))] = True
        return found

    def neighbours(self, index: int, along: Dependency) -> tuple[str, ...]:
        """Keys of those next to a query in their order (sums follow it), cycles included."""
        peers = self._readers if along is Dependency.DOWNSTREAM else self._writers
        return tuple(self.keys[peer] for peer in peers[index])


def _turned(edges: Peers) -> list[tuple[int, ...]]:
    back: list[list[int]] = [[] for _ in edges]
    for index, ends in enumerate(edges):
        for end in ends:
            back[end].append(index)
    return [tuple(ends) for ends in back]


def _closure(starts: Iterable[int], edges: Peers) -> set[int]:
    seen = set(starts)
    waiting = list(seen)
    while waiting:
        fresh = [end for end in edges[waiting.pop()] if end not in seen]
        seen.update(fresh)
        waiting += fresh
    return seen
