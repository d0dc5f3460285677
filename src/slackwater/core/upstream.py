"""What a query knows of those who write where it reads: when their rows will be there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from slackwater.core.swm import Arrival

if TYPE_CHECKING:
    from slackwater.core.words import Supply

_LONGEST_HOLD_S = 60.0


class Upstream:
    """The writers of one query's sources, by their supplies, and until when these count."""

    def __init__(self) -> None:
        self.supplies: tuple[Supply, ...] = ()
        self._until_wall_ts = math.inf

    def hear(self, supplies: tuple[Supply, ...], until_wall_ts: float) -> bool:
        """What they told last; True if something changed."""
        same = supplies == self.supplies and (not supplies or until_wall_ts == self._until_wall_ts)
        self.supplies, self._until_wall_ts = supplies, until_wall_ts
        return not same

    def arrival(self, place: str, event_ts: float) -> Arrival | None:
        """When an event can be read at a place: the first of its writers to get there moves the watermark.

        Until it is written, the writer's guess places no turn: it will say so at once.
        """
        found = [ready for supply in self.supplies if supply.place == place and (ready := supply.of(event_ts))]
        if not found:
            return None
        ready = min(found, key=lambda ready: ready.wall_ts)
        if ready.done:
            return Arrival(ready.wall_ts, 0.0)
        return Arrival(ready.wall_ts, ready.sigma_s, min(self._until_wall_ts, ready.wall_ts + _LONGEST_HOLD_S))

    def nothing_since(self, wall_ts: float, reads: tuple[str, ...]) -> bool:
        """By all that they told, nothing was written at these places since."""
        if not self.supplies or not set(reads) <= {supply.place for supply in self.supplies}:
            return False
        return all(supply.written_wall_ts <= wall_ts for supply in self.supplies)
