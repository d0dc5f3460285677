"""What chained queries tell each other (Klink 4): a reader its demand, upstream; a writer its supply, downstream.

A query that cleans and enriches has no windows, and alone would run whenever its oldest row is two seconds old. What
its reader waits for is the row that passes a window's end plus the watermark's delay. So the reader tells its windows,
and what it and those behind it will still cost; the writer places its turn where that row has just arrived. The writer
tells when rows up to that event time are written, so that the reader runs then and not when it guesses.

Each query hears from its next neighbour only, which sums up what lies beyond it: a reader without windows passes on the
demands that it heard itself, with its own cost added. `path` names those who did, so that nobody heeds his own words.
Whether the neighbour is in this application or in another makes no difference here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slackwater.core.model import Window  # noqa: TC001 - decoders read the annotations

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_HOPS = 16
MOST_WINDOWS = 16
MOST_WORDS = 512
_LEAST_SLIDE_S = 0.1
_LONGEST_S = 400 * 86_400.0
_LONGEST_COST_S = 3600.0
_FUTURE_S = 86_400.0
FUZZ_S = 1e-6


@dataclass(frozen=True, slots=True)
class Sight:
    """What a reader saw: when its batch fixed its offsets, and the largest event time that it has read."""

    offsets_wall_ts: float
    max_event_ts: float


@dataclass(frozen=True, slots=True)
class Demand:
    """What a reader of a place waits for: a row `delay_s` past the first window end after `after_event_ts`.

    cost_s: what is left to do once such a row can be read there, until the result is out.
    path: who passed it on, the neighbour first, the query with the windows last.
    """

    place: str
    windows: tuple[Window, ...]
    delay_s: float
    after_event_ts: float
    cost_s: float
    path: tuple[str, ...]
    sight: Sight | None = None

    def next_end(self, after_event_ts: float) -> float:
        return min(window.next_end(after_event_ts) for window in self.windows)

    @property
    def slide_s(self) -> float:
        return min(window.slide_s for window in self.windows)


@dataclass(frozen=True, slots=True)
class Ready:
    """Rows up to an event time can be read from a wall time on; before they are written (`done`) that is a guess."""

    event_ts: float
    wall_ts: float
    sigma_s: float
    done: bool


@dataclass(frozen=True, slots=True)
class Supply:
    """What the writer of a place tells its readers: when it wrote last, and what will be there when."""

    place: str
    written_wall_ts: float
    ready: tuple[Ready, ...]
    path: tuple[str, ...]

    def of(self, event_ts: float) -> Ready | None:
        """The first readiness that reaches this event time; None where the writer does not know."""
        reaching = [ready for ready in self.ready if ready.event_ts >= event_ts - FUZZ_S]
        return min(reaching, key=lambda ready: ready.wall_ts, default=None)


@dataclass(frozen=True, slots=True)
class Words:
    """All that one scheduler has to say to its neighbours, and the places that its queries read and write."""

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    demands: tuple[Demand, ...] = ()
    supplies: tuple[Supply, ...] = ()

    def to(self, reads: frozenset[str], writes: frozenset[str]) -> Words:
        """What a neighbour that reads and writes these places needs to hear, and nothing else."""
        return replace(
            self,
            demands=tuple(demand for demand in self.demands if demand.place in writes)[:MOST_WORDS],
            supplies=tuple(supply for supply in self.supplies if supply.place in reads)[:MOST_WORDS],
        )


@dataclass(frozen=True, slots=True)
class Heard:
    """The last words of a neighbour, which count until a wall time."""

    words: Words
    until_wall_ts: float


def heeded(demands: Iterable[Demand], key: str) -> tuple[Demand, ...]:
    """Those that a query may heed: not its own words that come back around a cycle."""
    return tuple(demand for demand in demands if key not in demand.path)


def nonsense(words: Words, now_wall_ts: float) -> str | None:
    """What a neighbour cannot mean, or None. Its numbers place our turns, so they must be numbers."""
    if len(words.demands) > MOST_WORDS or len(words.supplies) > MOST_WORDS:
        return f"{len(words.demands)} demands and {len(words.supplies)} supplies; {MOST_WORDS} are the most"
    for demand in words.demands:
        wrong = _wrong_demand(demand, now_wall_ts)
        if wrong is not None:
            return f"a demand on {demand.place!r} {wrong}"
    for supply in words.supplies:
        wrong = _wrong_supply(supply, now_wall_ts)
        if wrong is not None:
            return f"a supply of {supply.place!r} {wrong}"
    return None


def _wrong_demand(demand: Demand, now_wall_ts: float) -> str | None:
    soon = now_wall_ts + _FUTURE_S
    sight = demand.sight
    checks = (
        (1 <= len(demand.path) <= MOST_HOPS, f"went through {len(demand.path)} queries"),
        (1 <= len(demand.windows) <= MOST_WINDOWS, f"has {len(demand.windows)} windows"),
        (all(_sensible(window) for window in demand.windows), f"has the windows {demand.windows}"),
        (0 <= demand.delay_s <= _LONGEST_S, f"has the delay {demand.delay_s!r} s"),
        (0 <= demand.cost_s <= _LONGEST_COST_S, f"has the cost {demand.cost_s!r} s"),
        (0 <= demand.after_event_ts <= soon, f"waits after the event time {demand.after_event_ts!r}"),
        (
            sight is None or (0 <= sight.offsets_wall_ts <= soon and 0 <= sight.max_event_ts <= soon),
            f"has seen {sight!r}",
        ),
    )
    return next((what for holds, what in checks if not holds), None)


def _sensible(window: Window) -> bool:
    return _LEAST_SLIDE_S <= window.slide_s <= _LONGEST_S >= window.size_s > 0 and math.isfinite(window.offset_s)


def _wrong_supply(supply: Supply, now_wall_ts: float) -> str | None:
    soon = now_wall_ts + _FUTURE_S
    checks = (
        (1 <= len(supply.path) <= MOST_HOPS, f"went through {len(supply.path)} queries"),
        (len(supply.ready) <= 2 * MOST_WORDS, f"says {len(supply.ready)} times when it is ready"),
        (0 <= supply.written_wall_ts <= soon, f"was written at {supply.written_wall_ts!r}"),
    )
    wrong = next((what for holds, what in checks if not holds), None)
    if wrong is not None:
        return wrong
    for ready in supply.ready:
        numbers = ready.event_ts, ready.wall_ts, ready.sigma_s
        if not all(0 <= number <= soon for number in numbers):
            return f"is {ready!r}"
    return None
