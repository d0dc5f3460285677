"""Who reads what whom writes, and what they tell each other: words travel one hop a step.

So nobody needs to know the whole chain, and a cycle is no trouble. Whether a neighbour is in this application or in
another makes no difference (`words.py`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from slackwater.core.words import Heard, Words, heeded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slackwater.core.query import QueryState
    from slackwater.core.words import Demand, Supply

_NOTHING_SAID = Words()


class Chains:
    """The queries of an engine as links; readers: by place, the keys of those who read there."""

    def __init__(self) -> None:
        self.readers: dict[str, tuple[str, ...]] = {}
        self._queries: Sequence[QueryState] = ()
        self._heard: tuple[Heard, ...] = ()
        self._linked = self._hearing = False

    def link(self, queries: Sequence[QueryState]) -> None:
        """Who reads from where. Only a query that comes or goes, or that reads from elsewhere, changes it."""
        self._queries = queries
        readers: dict[str, list[str]] = {}
        for state in queries:
            for place in state.reads:
                readers.setdefault(place, []).append(state.facts.key)
        self.readers = {place: tuple(keys) for place, keys in readers.items()}
        # Also when the last link is gone, so that those who heard of it forget it.
        self._hearing = self._hearing or self._linked
        self._linked = any(state.writes in readers for state in queries)

    def hear(self, heard: tuple[Heard, ...]) -> None:
        """What neighbouring applications told last."""
        self._heard = heard

    def words(self) -> Words:
        """What they should be told: what the queries wait for upstream, and what they will bring downstream."""
        reads = frozenset(place for state in self._queries for place in state.reads)
        writes = frozenset(state.writes for state in self._queries if state.writes is not None)
        if not reads and not writes:
            return _NOTHING_SAID
        demands = tuple(demand for state in self._queries for demand in state.demands())
        supplies = tuple(supply for state in self._queries for supply in state.supplies())
        return Words(reads, writes, demands, supplies)

    def forward(self, now: float) -> None:
        """Each query hears what those next to it told last, here or elsewhere; whoever fell silent is forgotten."""
        heard = [told for told in self._heard if told.until_wall_ts > now]
        if not heard and not self._linked and not self._hearing:
            return
        self._hearing = bool(heard)
        demands: dict[str, list[Demand]] = {}
        supplies: dict[str, list[Supply]] = {}
        until: dict[str, float] = {}
        for told in heard:
            for demand in told.words.demands:
                demands.setdefault(demand.place, []).append(demand)
            for supply in told.words.supplies:
                supplies.setdefault(supply.place, []).append(supply)
                until[supply.place] = min(until.get(supply.place, math.inf), told.until_wall_ts)
        for state in self._queries:
            for demand in state.demands():
                demands.setdefault(demand.place, []).append(demand)
            for supply in state.supplies():
                supplies.setdefault(supply.place, []).append(supply)
        for state in self._queries:
            key, reads, writes = state.facts.key, state.reads, state.writes
            state.hear_demands(heeded(demands.get(writes, ()), key) if writes is not None else ())
            told_here = tuple(supply for place in reads for supply in supplies.get(place, ()) if key not in supply.path)
            state.hear_supplies(told_here, min((until.get(place, math.inf) for place in reads), default=math.inf))
