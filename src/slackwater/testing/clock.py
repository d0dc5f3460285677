"""A clock that stands still until it is told."""

from __future__ import annotations

START_WALL_TS = 1_200_000.0
"""When a fake clock starts: a whole number of minutes, so that windows without an offset start with it."""


class FakeClock:
    """Wall time that moves only when told."""

    def __init__(self, wall_ts: float = START_WALL_TS) -> None:
        self._wall_ts = wall_ts

    def now(self) -> float:
        return self._wall_ts

    def advance(self, seconds: float) -> None:
        self.set(self._wall_ts + seconds)

    def set(self, wall_ts: float) -> None:
        if wall_ts < self._wall_ts:
            raise ValueError(f"the clock stands at {self._wall_ts} and cannot go back to {wall_ts}.")
        self._wall_ts = wall_ts
