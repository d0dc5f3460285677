"""One simulated query, and the stream that it reads."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from slackwater.core.model import QueryFacts, QueryOptions, Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from slackwater.core.model import WatermarkPolicy


class Stream(Protocol):
    """What a query reads, where it is not steady. All times count from the driver's start."""

    def rows_readable(self, now_s: float) -> int:
        """How many rows have come so far."""

    def maxima_s(self, now_s: float, rows: int) -> tuple[float | None, ...]:
        """The largest event time of each watermarked input among so many rows; None: none yet."""

    def rows_between(self, from_event_s: float, to_event_s: float) -> float:
        """About how many rows have their event times there; 0 where no window leaves a result."""


@dataclass(frozen=True, slots=True)
class SimulatedQuery:
    """One query and the stream it reads. `_at_s` and idle spans count from the driver's start.

    delay_s: the watermark delay; None for a query without a watermark.
    step_s: rows become readable in clumps of so many seconds of event time; None: each by itself.
    step_phase_s: when clumps end: so long after a whole number of steps.
    lag_s: how long after its event time (or its clump's end) a row can be read.
    batch_cost_s, row_cost_s: a batch that runs alone takes a + b·rows, a batch without rows empty_cost_s (None: a).
    cpu_share: the part of a batch that computes, and takes longer when more is computed than there are cores; in the
    rest, before and after it, the batch waits (for a log to be written), and nobody slows it.
    cpu_demand: how many cores its computing keeps busy; collecting and compiling can make it more than one.
    task_share: the part of its computing that is tasks, for which a core must be free; the driver does the rest.
    factors: a batch takes one of these times as long, drawn by the driver's seed; none: always the same.
    max_rows: admission limit of a batch.
    state_bytes: what its state holds, as each of its batches tells.
    emits_at_sweep: False for update mode, where windows leave no result of their own at the sweep.
    interval_s: the user's own trigger interval.
    idle_s: spans (from, to) of event time without rows.
    shows_tasks: False for a batch whose user code waits for something and runs no task.
    reads_from: the name of the query whose output it reads, row for row, once a batch of it is over; None: the stream
    itself. Its rows_per_s and idle_s must be those of that query.
    stream: what it reads instead, with a watermark delay for each of its inputs in input_delays_s.
    behind_s: how far the watermark by which windows are emitted lags the query's, as behind an interval join.
    pace: how much longer than usual its batches take at a time.
    """

    name: str
    windows: tuple[Window, ...] = ()
    delay_s: float | None = None
    rows_per_s: float = 1000.0
    step_s: float | None = None
    step_phase_s: float = 0.0
    lag_s: float = 0.0
    batch_cost_s: float = 0.3
    row_cost_s: float = 0.0
    empty_cost_s: float | None = None
    cpu_share: float = 1.0
    cpu_demand: float = 1.0
    task_share: float = 0.0
    factors: tuple[float, ...] = ()
    max_rows: int | None = None
    state_bytes: int = 0
    stateful: bool = True
    emits_at_sweep: bool = True
    interval_s: float = 0.0
    idle_s: tuple[tuple[float, float], ...] = ()
    starts_at_s: float = 0.0
    fails_at_s: float = math.inf
    shows_tasks: bool = True
    reads_from: str | None = None
    stream: Stream | None = None
    input_delays_s: tuple[float, ...] = ()
    watermark_policy: WatermarkPolicy = "min"
    behind_s: float = 0.0
    pace: Callable[[float], float] | None = None
    options: QueryOptions = field(default_factory=QueryOptions)

    def facts(self) -> QueryFacts:
        return QueryFacts(
            key=self.name,
            name=self.name,
            query_id=self.name,
            windows=self.windows,
            input_delays_s=self.delays_s,
            watermark_policy=self.watermark_policy,
            emits_at_sweep=self.emits_at_sweep and bool(self.delays_s),
            stateful=self.stateful,
            min_interval_s=self.interval_s,
            options=self.options,
        )

    @property
    def delays_s(self) -> tuple[float, ...]:
        if self.stream is not None:
            return self.input_delays_s
        return () if self.delay_s is None else (self.delay_s,)

    def rows_before(self, event_s: float) -> int:
        """Rows with an event time before this one."""
        idle_s = sum(max(0.0, min(event_s, end) - begin) for begin, end in self.idle_s)
        return max(0, math.ceil((event_s - idle_s) * self.rows_per_s - 1e-6))

    def rows_readable(self, now_s: float) -> int:
        if self.stream is not None:
            return self.stream.rows_readable(now_s)
        until_s = now_s - self.lag_s
        if self.step_s is not None:
            whole_steps = math.floor((until_s - self.step_phase_s) / self.step_s + 1e-9)
            until_s = whole_steps * self.step_s + self.step_phase_s
        return self.rows_before(until_s)

    def event_s(self, row: int) -> float:
        """The event time of a row, counted from 0."""
        event_s = row / self.rows_per_s
        for begin, end in sorted(self.idle_s):
            if event_s >= begin:
                event_s += end - begin
        return event_s

    def maxima_s(self, now_s: float, rows: int) -> tuple[float | None, ...]:
        """The largest event time of each watermarked input among so many rows."""
        if self.stream is not None:
            return self.stream.maxima_s(now_s, rows)
        return (self.event_s(rows - 1),) if rows and self.delay_s is not None else (None,) * len(self.delays_s)

    def rows_between(self, from_event_s: float, to_event_s: float) -> int:
        if self.stream is not None:
            return round(self.stream.rows_between(from_event_s, to_event_s))
        return self.rows_before(to_event_s) - self.rows_before(from_event_s)
