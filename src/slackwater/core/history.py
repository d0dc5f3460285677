"""What was planned, what was asked of the driver, what was then seen: kept apart, and bounded."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

Kind = Literal["planned", "requested", "observed", "trouble", "switched", "ordered"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the story. `key` is empty where it concerns all queries."""

    wall_ts: float
    kind: Kind
    key: str
    what: str


class History:
    """The last entries, oldest first."""

    def __init__(self, limit: int = 2000) -> None:
        self._entries: deque[Entry] = deque(maxlen=limit)

    def add(self, wall_ts: float, kind: Kind, key: str, what: str) -> None:
        self._entries.append(Entry(wall_ts, kind, key, what))

    def recent(self, key: str | None = None, limit: int = 50) -> list[Entry]:
        entries = [e for e in tuple(self._entries) if key is None or e.key in (key, "")]
        return entries[-limit:]

    def __len__(self) -> int:
        return len(self._entries)
