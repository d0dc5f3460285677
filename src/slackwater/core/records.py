"""What ran and what left, numbered, so that pages, metrics and alarms each take what is new to them.

Bounded: whoever comes too seldom misses the oldest, and holds nobody up.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from slackwater.core.model import Stage

_MOST = 4000


@dataclass(frozen=True, slots=True)
class Ran:
    """A batch that ran. `lane` and `reason` are those of its turn; no lane: it ran without being granted one."""

    key: str
    name: str
    stage: Stage
    lane: int | None
    reason: str
    batch_id: int
    began_wall_ts: float
    ended_wall_ts: float
    rows: int
    waited_s: float


@dataclass(frozen=True, slots=True)
class Left:
    """A window whose result left: latency is the emitting batch's end minus the window's."""

    key: str
    name: str
    window_end_event_ts: float
    left_wall_ts: float

    @property
    def latency_s(self) -> float:
        return self.left_wall_ts - self.window_end_event_ts


@dataclass(frozen=True, slots=True)
class Ended:
    """A query that is there no more. `error` is why, in a line, where it did not end by itself or on request."""

    key: str
    name: str
    query_id: str
    wall_ts: float
    error: str | None


@dataclass(frozen=True, slots=True)
class Ruled:
    """A span in which memory ruled instead of slack; it has no end yet while it lasts."""

    began_wall_ts: float
    ended_wall_ts: float | None = None


T = TypeVar("T")


class Log(Generic[T]):
    """The last entries, each with a number. One thread adds, any may read."""

    def __init__(self, most: int = _MOST) -> None:
        self._entries: deque[tuple[int, T]] = deque(maxlen=most)
        self.added = 0

    def add(self, entry: T) -> None:
        self.added += 1
        self._entries.append((self.added, entry))

    def since(self, number: int, through: int | None = None) -> list[T]:
        """Those added after the first `number` of them, as far as they are kept.

        `through`: what `added` was when the caller noted where to go on, so that nothing is taken twice.
        """
        return [entry for at, entry in tuple(self._entries) if at > number and (through is None or at <= through)]

    def after(self, number: int) -> list[tuple[int, T]]:
        """The same with their numbers: the last is what to ask after next, a gap before the first is what was missed.

        For those who must count each entry once, while others are being added.
        """
        return [(at, entry) for at, entry in tuple(self._entries) if at > number]


class Records:
    """All that an engine keeps of what happened, beside the story in words."""

    def __init__(self) -> None:
        self.ran: Log[Ran] = Log()
        self.left: Log[Left] = Log()
        self.ended: Log[Ended] = Log(500)
        self.ruled: deque[Ruled] = deque(maxlen=200)
        self.ruled_in_all = 0

    def memory_rules(self, now_wall_ts: float, *, rules: bool) -> None:
        """Call it once a step."""
        last = self.ruled[-1] if self.ruled else None
        lasts = last is not None and last.ended_wall_ts is None
        if rules and not lasts:
            self.ruled.append(Ruled(now_wall_ts))
            self.ruled_in_all += 1
        elif lasts and not rules and last is not None:
            self.ruled[-1] = Ruled(last.began_wall_ts, now_wall_ts)
