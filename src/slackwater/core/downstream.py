"""What a query knows of those who read what it writes: what they wait for, and what they have seen.

A query without a watermark is told no event times by Spark. Its reader's are its own: the reader's batch that fixed its
offsets at t has read all that this query's last batch before t wrote, so its maximum was the source's when that batch
fixed its own offsets.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slackwater.core.swm import Arrival, SwmEstimator
from slackwater.core.words import FUZZ_S, Demand, Ready, Sight, Supply

if TYPE_CHECKING:
    from collections.abc import Callable

    from slackwater.core.model import BatchReport

_MOST_ENDS = 64
_AGAIN_S = 0.25


@dataclass(frozen=True, slots=True)
class Need:
    """What a writer's next turn is for: a window's end downstream, and when the row that passes it arrives here."""

    end_event_ts: float
    arrival: Arrival
    slide_s: float
    cost_s: float


@dataclass(frozen=True, slots=True)
class Expects:
    """When a query expects event times in its own input. max_event_ts: the largest it has taken, where it is told."""

    arrival: Callable[[float], Arrival]
    lag_s: float
    sigmas: float
    max_event_ts: float | None = None


class Downstream:
    """The readers of one query, by their demands."""

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
            and self.sight.max_event_ts < event_ts - FUZZ_S
        )

    def _taken(self, event_ts: float, expects: Expects) -> bool:
        """Has our last batch taken this event? Known from a maximum that was seen, else expected."""
        if expects.max_event_ts is not None:
            return expects.max_event_ts >= event_ts - FUZZ_S
        if self._refuted(event_ts):
            return False
        if self.sight is not None and self.sight.max_event_ts >= event_ts - FUZZ_S:
            return True
        arrival = expects.arrival(event_ts)
        return self._batches[-1][0] >= arrival.sure_wall_ts(expects.sigmas) - FUZZ_S

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
