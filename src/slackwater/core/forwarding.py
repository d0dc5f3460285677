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
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slackwater.core.model import Window  # noqa: TC001 - decoders read the annotations
from slackwater.core.swm import Arrival, SwmEstimator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from slackwater.core.model import BatchReport

MOST_HOPS = 16
MOST_WINDOWS = 16
MOST_WORDS = 512
_MOST_ENDS = 64
_LEAST_SLIDE_S = 0.1
_LONGEST_S = 400 * 86_400.0
_LONGEST_COST_S = 3600.0
_FUTURE_S = 86_400.0
_AGAIN_S = 0.25
_FUZZ_S = 1e-6


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
        reaching = [ready for ready in self.ready if ready.event_ts >= event_ts - _FUZZ_S]
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


@dataclass(frozen=True, slots=True)
class Need:
    """What a writer's next turn is for: a window's end downstream, and when the row that passes it arrives here."""

    end_event_ts: float
    arrival: Arrival
    slide_s: float
    cost_s: float


class Downstream:
    """What one query knows of those who read what it writes.

    A query without a watermark is told no event times by Spark. Its reader's are its own: the reader's batch that fixed
    its offsets at t has read all that this query's last batch before t wrote, so its maximum was the source's when that
    batch fixed its own offsets.
    """

    def __init__(self) -> None:
        self.demands: tuple[Demand, ...] = ()
        self.sight: Sight | None = None
        self._batches: deque[tuple[float, float]] = deque(maxlen=64)
        self._lag = SwmEstimator()

    @property
    def cost_s(self) -> float:
        return max((demand.cost_s for demand in self.demands), default=0.0)

    def hear(self, demands: tuple[Demand, ...]) -> bool:
        """The readers' demands as they stand now; True if something changed."""
        if demands == self.demands:
            return False
        self.demands = demands
        for demand in demands:
            if demand.sight is not None:
                self._match(demand, demand.sight)
        return True

    def observe(self, batch: BatchReport) -> None:
        self._batches.append((batch.offsets_wall_ts, batch.ended_wall_ts))

    def _match(self, demand: Demand, sight: Sight) -> None:
        """Which batch of ours wrote last before the reader looked? None where one was just writing."""
        written = None
        for offsets_wall_ts, ended_wall_ts in self._batches:
            if ended_wall_ts <= sight.offsets_wall_ts:
                written = offsets_wall_ts
            elif offsets_wall_ts < sight.offsets_wall_ts:
                return
        if written is None or (self.sight is not None and written <= self.sight.offsets_wall_ts):
            return
        self.sight = Sight(written, sight.max_event_ts)
        needed = demand.next_end(demand.after_event_ts) + demand.delay_s
        if sight.max_event_ts < needed <= written:
            self._lag.missed(written, needed)
        self._lag.observe(written, sight.max_event_ts)
        self._lag.end_epoch()

    def arrival(self, event_ts: float) -> Arrival:
        return self._lag.arrival(event_ts)

    def lag_s(self) -> float:
        lag = self._lag.lag()
        return lag.mean_s + 4 * lag.sigma_s

    def need(self, expects: Expects) -> Need | None:
        """The most pressing of what the readers wait for; None where nobody waits."""
        needs = [need for demand in self.demands if (need := self._need(demand, expects)) is not None]
        if not needs:
            return None
        first = min(needs, key=lambda need: need.arrival.wall_ts - need.cost_s)
        return replace(first, cost_s=self.cost_s)

    def _need(self, demand: Demand, expects: Expects) -> Need | None:
        if not demand.windows:
            return None
        end = self._next_end(demand, expects)
        arrival = expects.arrival(end + demand.delay_s)
        if self._refuted(end + demand.delay_s) and self._batches:
            arrival = replace(arrival, wall_ts=max(arrival.wall_ts, self._batches[-1][1] + _AGAIN_S))
        return Need(end, arrival, demand.slide_s, demand.cost_s)

    def _next_end(self, demand: Demand, expects: Expects) -> float:
        """The first window end whose row our last batch cannot have taken."""
        end = demand.next_end(demand.after_event_ts)
        if not self._batches or self._refuted(end + demand.delay_s):
            return end
        # Ends that are long past are passed over at once.
        past_event_ts = self._batches[-1][0] - expects.lag_s - demand.delay_s - 2 * demand.slide_s
        end = max(end, demand.next_end(past_event_ts))
        for _ in range(_MOST_ENDS):
            if not self._taken(end + demand.delay_s, expects):
                break
            end = demand.next_end(end)
        return end

    def _refuted(self, event_ts: float) -> bool:
        """The reader has seen what our last batch wrote, and the event was not among it."""
        return (
            self.sight is not None
            and bool(self._batches)
            and self.sight.offsets_wall_ts >= self._batches[-1][0]
            and self.sight.max_event_ts < event_ts - _FUZZ_S
        )

    def _taken(self, event_ts: float, expects: Expects) -> bool:
        """Has our last batch taken this event? Known from a maximum that was seen, else expected."""
        if expects.max_event_ts is not None:
            return expects.max_event_ts >= event_ts - _FUZZ_S
        if self._refuted(event_ts):
            return False
        if self.sight is not None and self.sight.max_event_ts >= event_ts - _FUZZ_S:
            return True
        arrival = expects.arrival(event_ts)
        return self._batches[-1][0] >= arrival.sure_wall_ts(expects.sigmas) - _FUZZ_S

    def supplies(self, place: str, key: str, cost_s: float, expects: Expects) -> Supply:
        """For each demand the last window end that is served, and the next."""
        written = self._batches[-1][1] if self._batches else 0.0
        ready: dict[float, Ready] = {}
        for demand in self.demands:
            if not demand.windows:
                continue
            end = self._next_end(demand, expects)
            event_ts = end + demand.delay_s
            arrival = expects.arrival(event_ts)
            ready[event_ts] = Ready(
                event_ts, arrival.sure_wall_ts(expects.sigmas) + cost_s, arrival.sigma_s, done=False
            )
            before = event_ts - demand.slide_s
            if self._batches and self._taken(before, expects):
                ready.setdefault(before, Ready(before, written, 0.0, done=True))
        path = (key,)
        return Supply(place, written, tuple(ready[event_ts] for event_ts in sorted(ready)), path)


@dataclass(frozen=True, slots=True)
class Expects:
    """When a query expects event times in its own input. max_event_ts: the largest it has taken, where it is told."""

    arrival: Callable[[float], Arrival]
    lag_s: float
    sigmas: float
    max_event_ts: float | None = None


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
