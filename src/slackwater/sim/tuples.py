"""A tuple-at-a-time stream engine in virtual time, scheduled by the core engine and its policies.

Time goes on in cycles; at the start of each one the policy is asked (`driver.py`), and its order of urgency holds until
the next. A cycle has slices, in which rates are constant: what arrived is let in as memory allows, cores go to queries
or operators, pointers move (`flow.py`). When a watermark left is read off the pointers' curve afterwards.

Live memory is what is queued, and the windows' state. At the bound sources are held back. A tracing collector marks
what is live each time the rest was allocated, so each event's cost grows with u/(1 − u), where u is live over heap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from slackwater.errors import ConfigurationError
from slackwater.sim.driver import Driver, Entities
from slackwater.sim.flow import by_operator, crossings, evenly, in_order, sink_first
from slackwater.sim.pipelines import DelayLaw, Watermarks, watermarks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from slackwater.core.engine import Engine
    from slackwater.sim.delays import Delays
    from slackwater.sim.pipelines import Pipeline

    Floats = NDArray[np.float64]

_CLOSE = 1e-3
"""Pointers and places this near, in events, are equal."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the engine runs on, and how it is scheduled.

    cycle_s, slices: how often the policy is asked, and in how many steps the time between is computed.
    memory_bytes: the bound at which sources are held back; heap = bound / (1 − reserve).
    held: what is held back waits in a broker, in order, or is not made at all: a generator that is throttled.
    collector: growth of an event's cost at u/(1 − u) = 1; 0 switches collections off.
    """

    cores: int = 24
    cycle_s: float = 0.12
    slices: int = 4
    entities: Entities = "queries"
    memory_bytes: float = math.inf
    reserve: float = 0.1
    held: Literal["broker", "generator"] = "broker"
    collector: float = 0.0

    def __post_init__(self) -> None:
        for name in ("cores", "cycle_s", "slices", "memory_bytes"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"Machine({name}={getattr(self, name)!r}): a positive number is needed.")
        if not 0 < self.reserve < 1:
            raise ConfigurationError(f"Machine(reserve={self.reserve!r}): a share between 0 and 1 is needed.")

    @property
    def slice_s(self) -> float:
        return self.cycle_s / self.slices

    def slowdown(self, live_bytes: float) -> float:
        """By what a collector's work multiplies costs."""
        if not self.collector or not math.isfinite(self.memory_bytes):
            return 1.0
        used = min(live_bytes / (self.memory_bytes / (1 - self.reserve)), 1 - self.reserve)
        return 1.0 + self.collector * used / (1 - used)


@dataclass(frozen=True)
class Run:
    """What came out. Curves have a row for each slice's end (the first row is time 0) and a column for each query.

    offered, entered, left: source events that had arrived, were let in, and had passed the last operator.
    taken: those that the first operator had dealt with.
    """

    pipelines: tuple[Pipeline, ...]
    times_s: Floats
    offered: Floats
    entered: Floats
    taken: Floats
    left: Floats
    queued: Floats
    memory_bytes: Floats
    busy_cores: Floats
    processed: Floats
    swept: tuple[Watermarks, ...]
    places: tuple[Floats, ...]
    steps_s: Floats

    @property
    def seconds(self) -> float:
        return float(self.times_s[-1])

    def exits_s(self, query: int) -> Floats:
        """When each watermark that arrived left the last operator; inf where it did not."""
        places = self.places[query]
        arrived = self.swept[query].arrives_s[: len(places)]
        left = crossings(self.times_s, self.left[:, query] + _CLOSE, places)
        return np.maximum(left, arrived) + self.pipelines[query].passage_s

    def latencies_s(self, warmup_s: float = 0.0) -> tuple[Floats, Floats]:
        """Latency and propagation of every window that ended after the warm-up, by queries in order.

        A window whose watermark has not come out by the end of the run counts with the time that it is overdue.
        """
        latencies, propagations = [], []
        for query, marks in enumerate(self.swept):
            exits = np.full(len(marks.ends_s), np.inf)
            found = self.exits_s(query)
            exits[: len(found)] = found
            due = (marks.ends_s >= warmup_s) & (marks.arrives_s <= self.seconds)
            out_s = np.minimum(exits, self.seconds)[due]
            latencies.append(out_s - marks.ends_s[due])
            propagations.append(out_s - marks.arrives_s[due])
        return np.concatenate(latencies), np.concatenate(propagations)

    def ages_s(self, query: int) -> tuple[Floats, Floats, Floats]:
        """Cohorts that left, one a slice at most: when, how many source events, and their age at the sink."""
        out = np.diff(self.left[:, query])
        moved = np.flatnonzero(out > _CLOSE)
        middle = (self.left[moved, query] + self.left[moved + 1, query]) / 2
        came = crossings(self.times_s, self.offered[:, query], middle)
        when = (self.times_s[moved] + self.times_s[moved + 1]) / 2
        return when, out[moved], np.maximum(when - came, 0.0) + self.pipelines[query].passage_s


def simulate(
    pipelines: Sequence[Pipeline],
    machine: Machine,
    seconds: float,
    *,
    engine: Engine | None,
    delays: Delays | None = None,
    seed: int = 0,
) -> Run:
    """Run queries for so long under an engine's policy; without one, under processor sharing over operator threads.

    Streams and delays follow from the seed alone, whatever the policy.
    """
    return Simulation(tuple(pipelines), machine, seconds, engine, DelayLaw(delays), seed).run()


class Simulation:
    """One run under way: pointers and curves, which the driver reads."""

    def __init__(
        self,
        pipelines: tuple[Pipeline, ...],
        machine: Machine,
        seconds: float,
        engine: Engine | None,
        law: DelayLaw,
        seed: int,
    ) -> None:
        lengths = {len(pipeline.operators) for pipeline in pipelines}
        if len(lengths) != 1:
            raise ConfigurationError(f"queries of {sorted(lengths)} operators: all must have equally many.")
        (operators,) = lengths
        self.pipelines, self.machine, self.law = pipelines, machine, law
        self.cycles = max(1, math.ceil(seconds / machine.cycle_s - 1e-9))
        count = self.cycles * machine.slices
        self.times_s: Floats = np.arange(count + 1, dtype=np.float64) * machine.slice_s
        self.costs = np.array([pipeline.costs_s for pipeline in pipelines])
        self.shares = np.array([pipeline.shares for pipeline in pipelines])
        self.pointers = np.zeros((len(pipelines), operators + 1))
        self.offered = np.stack([p.source.arrived(self.times_s, law) for p in pipelines], axis=1)
        self.entered = np.zeros_like(self.offered)
        self.taken = np.zeros_like(self.offered)
        self.left = np.zeros_like(self.offered)
        self.memory = np.zeros(count + 1)
        self.queued = np.zeros(count + 1)
        self.busy = np.zeros(count)
        self.used_s = np.zeros_like(self.costs)
        self.swept = tuple(
            watermarks(pipeline, self.times_s[-1], law, np.random.default_rng([seed, query]))
            for query, pipeline in enumerate(pipelines)
        )
        self.places: list[list[float]] = [[] for _ in pipelines]
        self.out = [0] * len(pipelines)
        self.swept_place = np.zeros(len(pipelines))
        self._next_s = np.array([marks.arrives_s[0] if len(marks.arrives_s) else np.inf for marks in self.swept])
        self._next_place = np.full(len(pipelines), np.inf)
        self._window_at = np.array([pipeline.window_at for pipeline in pipelines])
        self._event_bytes = np.array([pipeline.event_bytes for pipeline in pipelines])
        self._state_bytes = np.array([pipeline.state_bytes for pipeline in pipelines])
        self.driver = Driver(self, engine) if engine is not None else None

    def run(self) -> Run:
        machine = self.machine
        for cycle in range(self.cycles):
            begin = cycle * machine.slices
            if self.driver is not None:
                self.driver.step(begin)
            for place in range(begin, begin + machine.slices):
                self._slice(place)
        return Run(
            pipelines=self.pipelines,
            times_s=self.times_s,
            offered=self.offered,
            entered=self.entered,
            taken=self.taken,
            left=self.left,
            queued=self.queued,
            memory_bytes=self.memory,
            busy_cores=self.busy / machine.slice_s,
            processed=(self.pointers[:, 1:] * self.shares).sum(axis=0),
            swept=self.swept,
            places=tuple(np.array(places) for places in self.places),
            steps_s=np.array(self.driver.steps_s if self.driver is not None else ()),
        )

    # ---- one slice --------------------------------------------------------------------------------------------

    def _slice(self, place: int) -> None:
        machine, pointers = self.machine, self.pointers
        before = pointers[:, 0].copy()
        pointers[:, 0] += self._let_in(place)
        self._ingest(place, before)
        slow = machine.slowdown(self.memory[place])
        # Slower work is the same as a shorter slice.
        slice_s, total_s = machine.slice_s / slow, machine.cores * machine.slice_s / slow
        moved = self._moved(slice_s, total_s)
        pointers[:, 1:] = np.minimum(pointers[:, 1:] + moved, pointers[:, :1])
        used_s = moved * self.costs * slow
        self.used_s += used_s
        self.busy[place] = used_s.sum()
        self.entered[place + 1] = pointers[:, 0]
        self.taken[place + 1] = pointers[:, 1]
        self.left[place + 1] = pointers[:, -1]
        self._sweep()
        self._weigh(place + 1)

    def _let_in(self, place: int) -> Floats:
        """What enters in this slice: all that arrived or waits outside, or its part of the memory that is left."""
        arrived = self.offered[place + 1]
        wants: Floats = arrived - (self.entered[place] if self.machine.held == "broker" else self.offered[place])
        room = self.machine.memory_bytes - self.memory[place]
        weight = float((wants * self._event_bytes).sum())
        return wants if weight <= room else wants * (max(0.0, room) / weight)

    def _ingest(self, place: int, before: Floats) -> None:
        """Watermarks that arrive in this slice stand behind the events that arrived before them."""
        end_s = self.times_s[place + 1]
        for query in np.flatnonzero(self._next_s <= end_s):
            marks, places = self.swept[query], self.places[query]
            while len(places) < len(marks.arrives_s) and marks.arrives_s[len(places)] <= end_s:
                share = max(0.0, (marks.arrives_s[len(places)] - self.times_s[place]) / self.machine.slice_s)
                if self.machine.held == "broker":
                    low, high = self.offered[place, query], self.offered[place + 1, query]
                else:
                    low, high = before[query], self.pointers[query, 0]
                places.append(float(low + share * (high - low)))
            done = len(places) == len(marks.arrives_s)
            self._next_s[query] = np.inf if done else marks.arrives_s[len(places)]
            self._next_place[query] = places[self.out[query]] if self.out[query] < len(places) else np.inf

    def _moved(self, slice_s: float, total_s: float) -> Floats:
        pointers, costs, driver = self.pointers, self.costs, self.driver
        if driver is None:
            return by_operator(pointers, costs, slice_s, total_s, evenly)
        if self.machine.entities == "operators":
            order = driver.order

            def share(demand: Floats, total: float) -> Floats:
                return in_order(demand.ravel(), order, total).reshape(demand.shape)

            return by_operator(pointers, costs, slice_s, total_s, share)
        unlimited = np.full(len(pointers), np.inf)
        moved = sink_first(pointers, costs, slice_s, unlimited, driver.last)
        demand = (moved * costs).sum(axis=1)
        given = in_order(demand, driver.order, total_s)
        short = np.flatnonzero(given < demand)
        if len(short):
            part = driver.last[short] if driver.last is not None else None
            moved[short] = sink_first(pointers[short], costs[short], slice_s, given[short], part)
        return moved

    def _sweep(self) -> None:
        for query in np.flatnonzero(self._next_place <= self.pointers[:, -1] + _CLOSE):
            places, reached = self.places[query], self.pointers[query, -1] + _CLOSE
            while self.out[query] < len(places) and places[self.out[query]] <= reached:
                self.swept_place[query] = places[self.out[query]]
                self.out[query] += 1
            self._next_place[query] = places[self.out[query]] if self.out[query] < len(places) else np.inf

    def queues(self) -> Floats:
        """Events in front of each operator."""
        found: Floats = (self.pointers[:, :-1] - self.pointers[:, 1:]) * self.shares
        return found

    def states_bytes(self) -> Floats:
        rows = np.arange(len(self.pointers))
        kept = self.pointers[rows, self._window_at + 1] - self.swept_place
        found: Floats = np.maximum(kept, 0.0) * self.shares[rows, self._window_at] * self._state_bytes
        return found

    def _weigh(self, place: int) -> None:
        queues = self.queues()
        self.queued[place] = queues.sum()
        self.memory[place] = (queues.sum(axis=1) * self._event_bytes).sum() + self.states_bytes().sum()
