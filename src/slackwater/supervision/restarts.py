"""Which dead queries are started again, and when: exponential back-off with a limit. Pure: time and chance come in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slackwater.supervision.settings import Supervision

Chance = Callable[[], float]
"""A number from 0 up to below 1, at random."""

_MOST_QUERIES = 2000
_MOST_ENDED_BEFORE = 200


class State(StrEnum):
    """Where a supervised query stands."""

    RUNNING = "running"
    WAITING = "waiting to be started again"
    STARTING = "being started again"
    GIVEN_UP = "given up"
    NOT_RESTARTABLE = "dead, and cannot be started again"


@dataclass(frozen=True, slots=True)
class Supervised:
    """One query, for a table. why_not says why it cannot be started again, where it cannot."""

    query_id: str
    name: str
    state: State
    restarts: int
    next_try_wall_ts: float | None
    last_error: str | None
    why_not: str | None


@dataclass(slots=True)
class _Known:
    query_id: str
    key: str
    name: str
    why_not: str | None
    state: State = State.RUNNING
    since_wall_ts: float = 0.0
    row: int = 0  # restarts without a healthy run in between
    restarts: int = 0
    tries_wall_ts: deque[float] = field(default_factory=deque)
    next_try_wall_ts: float | None = None
    last_error: str | None = None


class Restarts:
    """Tell it what starts and what ends; it says what is due. One thread calls at a time."""

    def __init__(self, settings: Supervision, chance: Chance) -> None:
        self._settings = settings
        self._chance = chance
        self._known: dict[str, _Known] = {}
        self._ended_before: dict[str, str | None] = {}

    def started(self, query_id: str, key: str, name: str, now_wall_ts: float, why_not: str | None = None) -> None:
        """Somebody else started it, perhaps again: whatever was planned for it is off. `key` is the run's."""
        known = self._known.get(query_id)
        if known is None:
            self._make_room()
            known = self._known[query_id] = _Known(query_id, key, name, why_not)
        known.name, known.why_not = name, why_not
        known.row = 0
        self._runs(known, key, now_wall_ts)
        if key in self._ended_before:
            self.ended(query_id, key, self._ended_before.pop(key), now_wall_ts)

    def ended(self, query_id: str, key: str, error: str | None, now_wall_ts: float) -> State | None:
        """A run of it is over: without an error, nobody wants it back. Returns where it stands, if it is supervised.

        One that dies at once may be over before its start is told of: what ended is kept for a while.
        """
        known = self._known.get(query_id)
        if known is None or (known.key != key and known.state in (State.RUNNING, State.STARTING)):
            self._ended_before[key] = error
            while len(self._ended_before) > _MOST_ENDED_BEFORE:
                del self._ended_before[next(iter(self._ended_before))]
            return None
        if known.key != key or known.state is not State.RUNNING:
            return None
        if error is None:
            del self._known[query_id]
            return None
        known.last_error = error
        if known.why_not is not None:
            known.state = State.NOT_RESTARTABLE
            return known.state
        if now_wall_ts - known.since_wall_ts >= self._settings.well_s:
            known.row = 0
        return self._plan(known, now_wall_ts)

    def due(self, now_wall_ts: float) -> list[str]:
        """Ids of those to be started now; they count as being started from here on."""
        found = [
            known
            for known in self._known.values()
            if known.state is State.WAITING and (known.next_try_wall_ts or 0.0) <= now_wall_ts
        ]
        for known in found:
            known.state = State.STARTING
            known.next_try_wall_ts = None
            known.tries_wall_ts.append(now_wall_ts)
            known.row += 1
        return [known.query_id for known in found]

    def restarted(self, query_id: str, key: str, now_wall_ts: float) -> None:
        """A restart went well; `key` is the new run's."""
        known = self._known.get(query_id)
        if known is not None and known.state is State.STARTING:
            known.restarts += 1
            self._runs(known, key, now_wall_ts)
            if key in self._ended_before:
                self.ended(query_id, key, self._ended_before.pop(key), now_wall_ts)

    def failed(self, query_id: str, error: str, now_wall_ts: float) -> State | None:
        """A restart could not even begin."""
        known = self._known.get(query_id)
        if known is None or known.state is not State.STARTING:
            return None
        known.last_error = error
        return self._plan(known, now_wall_ts)

    def forget(self, query_id: str) -> None:
        """It is nobody's business any more: not started again, whatever happens."""
        self._known.pop(query_id, None)

    def find(self, query: str) -> str | None:
        """The id of a query, by id or name."""
        for known in self._known.values():
            if query in (known.query_id, known.name):
                return known.query_id
        return None

    def told(self) -> list[Supervised]:
        return [
            Supervised(k.query_id, k.name, k.state, k.restarts, k.next_try_wall_ts, k.last_error, k.why_not)
            for k in tuple(self._known.values())
        ]

    def next_due_wall_ts(self) -> float | None:
        times = [k.next_try_wall_ts for k in self._known.values() if k.next_try_wall_ts is not None]
        return min(times, default=None)

    def _plan(self, known: _Known, now_wall_ts: float) -> State:
        settings = self._settings
        tries = known.tries_wall_ts
        while tries and tries[0] <= now_wall_ts - settings.span_s:
            tries.popleft()
        if len(tries) >= settings.limit:
            known.state, known.next_try_wall_ts = State.GIVEN_UP, None
        else:
            known.state = State.WAITING
            known.next_try_wall_ts = now_wall_ts + wait_s(settings, known.row, self._chance)
        return known.state

    def _runs(self, known: _Known, key: str, now_wall_ts: float) -> None:
        known.key = key
        known.state, known.since_wall_ts, known.next_try_wall_ts = State.RUNNING, now_wall_ts, None

    def _make_room(self) -> None:
        """The dead go first, the oldest first: without end they would gather for ever."""
        if len(self._known) >= _MOST_QUERIES:
            dead = [k.query_id for k in self._known.values() if k.state in (State.GIVEN_UP, State.NOT_RESTARTABLE)]
            for query_id in (dead or list(self._known))[: _MOST_QUERIES // 10]:
                del self._known[query_id]


def wait_s(settings: Supervision, before: int, chance: Chance) -> float:
    """How long to wait after so many restarts in a row."""
    # The exponent is bounded, or the power overflows long after the cap has been reached.
    grown_s = min(settings.cap_s, settings.base_s * settings.factor ** min(before, 60))
    return grown_s * (1 + settings.jitter * (2 * chance() - 1))
