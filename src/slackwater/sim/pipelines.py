"""Queries of a tuple-at-a-time engine, and the streams that they read.

A query is a chain of operators. Every queue is first in, first out, so where a chain stands is told by one number for
each operator: how many of the source's events it has dealt with. Streams are known functions of time: how many events
have arrived by then. Network delays enter exactly: what was sent at s has arrived by t with probability F(t − s).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from slackwater.core.model import QueryOptions, Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from slackwater.sim.delays import Delays

_DRAWS = 50_000
_GRID = 1001


@dataclass(frozen=True, slots=True)
class Operator:
    """`cost_s` is for one of its input events; `selectivity` is output events for each."""

    name: str
    cost_s: float
    selectivity: float = 1.0


class DelayLaw:
    """What a simulation needs of network delays: their moments, F, and G = ∫F. From many draws with one seed."""

    def __init__(self, delays: Delays | None) -> None:
        drawn = np.zeros(1) if delays is None else np.sort(delays.draw(np.random.default_rng(0), _DRAWS))
        self.delays = delays
        self.moments = (float(drawn.mean()), float((drawn**2).mean()), float((drawn**3).mean()))
        self.longest_s = float(drawn[-1])
        self._grid = np.linspace(0.0, max(self.longest_s, 1e-9), _GRID)
        self._share = np.searchsorted(drawn, self._grid, side="right") / len(drawn)
        steps = np.diff(self._grid) * (self._share[1:] + self._share[:-1]) / 2
        self._area = np.concatenate(([0.0], np.cumsum(steps)))

    def share_within(self, age_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """F: the share of events of this age that have arrived."""
        if self.longest_s <= 0:
            return (age_s >= 0).astype(np.float64)
        return np.interp(age_s, self._grid, self._share, left=0.0, right=1.0)

    def area(self, age_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """G: seconds' worth of a steady stream that began so long ago and has arrived."""
        within = np.interp(age_s, self._grid, self._area, left=0.0) if self.longest_s > 0 else np.zeros_like(age_s)
        found: NDArray[np.float64] = within + np.maximum(age_s - self.longest_s, 0.0)
        return found

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        return np.zeros(count) if self.delays is None else self.delays.draw(rng, count)


class Source(Protocol):
    """A stream: `sent` and then delayed on its way."""

    @property
    def streams(self) -> int:
        """Sub-streams, each with watermarks of its own; a window needs them all."""
        ...

    def arrived(self, times_s: NDArray[np.float64], law: DelayLaw) -> NDArray[np.float64]:
        """Events there at each time, counted from the start."""
        ...


@dataclass(frozen=True, slots=True)
class Steady:
    """So many events a second, evenly (`clump_s` 0) or those of `clump_s` seconds at once at their end.

    Clumps of several sub-streams are spread over the interval.
    """

    events_per_s: float
    clump_s: float = 0.0
    starts_at_s: float = 0.0
    streams: int = 1

    def arrived(self, times_s: NDArray[np.float64], law: DelayLaw) -> NDArray[np.float64]:
        age_s = times_s - self.starts_at_s
        if self.clump_s <= 0:
            return self.events_per_s * law.area(age_s)
        size = self.events_per_s * self.clump_s / self.streams
        total = np.zeros_like(times_s)
        for stream in range(self.streams):
            total += size * self._clumps(age_s - self.clump_s * stream / self.streams, law)
        return total

    def _clumps(self, age_s: NDArray[np.float64], law: DelayLaw) -> NDArray[np.float64]:
        """Clumps sent after 1, 2, … intervals: the old ones are there whole, of the young ones a share."""
        sent = np.maximum(np.floor(age_s / self.clump_s + 1e-9), 0.0)
        young = math.ceil(law.longest_s / self.clump_s) + 1
        there: NDArray[np.float64] = np.maximum(sent - young, 0.0)
        for back in range(young):
            number = sent - back
            there += np.where(number >= 1, law.share_within(age_s - number * self.clump_s + 1e-9), 0.0)
        return there


@dataclass(frozen=True, slots=True)
class Bursts:
    """Evenly for `on_s`, then nothing for `off_s`, again and again. Without network delays."""

    events_per_s: float
    on_s: float
    off_s: float
    streams: int = 1

    def arrived(self, times_s: NDArray[np.float64], law: DelayLaw) -> NDArray[np.float64]:  # noqa: ARG002
        rounds, within_s = np.divmod(np.maximum(times_s, 0.0), self.on_s + self.off_s)
        return self.events_per_s * (rounds * self.on_s + np.minimum(within_s, self.on_s))


@dataclass(frozen=True, slots=True)
class Scripted:
    """Given events: `sizes[i]` at `times_s[i]`. Without network delays."""

    times_s: tuple[float, ...]
    sizes: tuple[float, ...]
    streams: int = 1

    def arrived(self, times_s: NDArray[np.float64], law: DelayLaw) -> NDArray[np.float64]:  # noqa: ARG002
        total = np.concatenate(([0.0], np.cumsum(self.sizes)))
        found: NDArray[np.float64] = total[np.searchsorted(self.times_s, times_s, side="right")]
        return found


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One query: its stream and its operators from source to sink.

    event_bytes: memory of a queued event. state_bytes: of an event that the window keeps until its watermark.
    window_at: the window's place among the operators.
    """

    name: str
    operators: tuple[Operator, ...]
    source: Source
    window: Window | None = None
    window_at: int = 0
    event_bytes: float = 0.0
    state_bytes: float = 0.0
    starts_at_s: float = 0.0
    options: QueryOptions = field(default_factory=QueryOptions)

    @property
    def shares(self) -> NDArray[np.float64]:
        """Input events of each operator for one of the source's."""
        passed = np.cumprod([operator.selectivity for operator in self.operators])
        found: NDArray[np.float64] = np.concatenate(([1.0], passed[:-1]))
        return found

    @property
    def costs_s(self) -> NDArray[np.float64]:
        """Core-seconds at each operator for one of the source's events."""
        found: NDArray[np.float64] = self.shares * np.array([operator.cost_s for operator in self.operators])
        return found

    @property
    def passage_s(self) -> float:
        """Ideal processing time of one event that is never filtered out: what Klink divides by for slowdown."""
        return sum(operator.cost_s for operator in self.operators)


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The sweeping watermarks of one query: the window ends they sweep, and when they arrive."""

    ends_s: NDArray[np.float64]
    arrives_s: NDArray[np.float64]


def watermarks(pipeline: Pipeline, seconds: float, law: DelayLaw, rng: np.random.Generator) -> Watermarks:
    """Sent at each window's end; the last sub-stream's decides, and none overtakes another."""
    if pipeline.window is None:
        return Watermarks(np.zeros(0), np.zeros(0))
    first = pipeline.window.next_end(pipeline.starts_at_s)
    ends = np.arange(first, seconds, pipeline.window.slide_s)
    delays = np.max([law.draw(rng, len(ends)) for _ in range(pipeline.source.streams)], axis=0)
    return Watermarks(ends, np.maximum.accumulate(ends + delays))
