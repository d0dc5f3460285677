"""Random (Lachesis 5.1): the control. A new order every period, the same for the same seed and time."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from slackwater.policies.ranking import ranked

if TYPE_CHECKING:
    from slackwater.core.model import Choice, Snapshot


class Random:
    """A random order, drawn anew every period."""

    name = "random"
    enforces = True

    def __init__(self, seed: int = 0, period_s: float = 0.1) -> None:
        self._seed = seed
        self._period_s = period_s

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        period = int(snapshot.wall_ts / self._period_s)
        lots = [crc32(f"{self._seed}/{period}/{query.key}".encode()) for query in snapshot.queries]
        return ranked(snapshot, lots, reason=lambda _: "drawn by lot")
