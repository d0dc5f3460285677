"""The thread of one simulated query: Spark's rules for micro-batches and watermarks."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slackwater.core.model import BatchReport, InputMaximum, QueryReport
from slackwater.testing.cores import Part, Work

if TYPE_CHECKING:
    from slackwater.testing.query import SimulatedQuery
    from slackwater.testing.trace import TurnSeen

_CLOCK_FUZZ_S = 1e-6
_TASKS = 2  # of a batch, one after the other: those that read the source, those that keep the state


@dataclass(slots=True)
class QueryThread:
    """A live query: what its gate and its thread know. `start_wall_ts` is when the driver's time begins."""

    query: SimulatedQuery
    start_wall_ts: float
    random: random.Random
    work: Work
    wait_no: int = 0
    waiting: bool = False
    since_wall_ts: float = 0.0
    awaited: bool = False
    alive: bool = True
    starting: bool = False
    passed_wall_ts: float | None = None
    turn: TurnSeen | None = None
    taken_rows: int = 0
    written_rows: int = 0
    batch: BatchReport | None = None
    sweeping: list[tuple[float, int]] = field(default_factory=list)
    _batches: int = 0
    _applied_event_ts: float = 0.0
    _watermark_event_ts: float = 0.0
    _input_watermarks: dict[int, float] = field(default_factory=dict)
    _untold: list[BatchReport] = field(default_factory=list)
    _described: bool = False

    @classmethod
    def of(cls, query: SimulatedQuery, start_wall_ts: float, seed: int) -> QueryThread:
        drawn = random.Random(f"{seed}-{query.name}")
        return cls(query, start_wall_ts, drawn, Work(query.name, query.cpu_demand))

    def wait(self, now: float) -> None:
        """At the gate again."""
        self.waiting, self.since_wall_ts = True, now
        self.wait_no += 1

    @property
    def own_trigger_wall_ts(self) -> float:
        """When Spark itself would fire: at once, or at the next multiple of the user's interval."""
        interval_s = self.query.interval_s
        if interval_s <= 0 or self.passed_wall_ts is None:
            return self.since_wall_ts
        # A multiple that was just met, give or take what a float can hold, is not the next one.
        return max(self.since_wall_ts, ((self.passed_wall_ts + _CLOCK_FUZZ_S) // interval_s + 1) * interval_s)

    def trigger(self, now: float, readable: int, poll_s: float) -> None:
        """Past the gate: a batch of what can be read, or a short look if there is nothing to do."""
        query = self.query
        self.waiting, self.passed_wall_ts = False, now
        rows = min(readable - self.taken_rows, query.max_rows or readable)
        moved = query.stateful and self._watermark_event_ts > self._applied_event_ts
        if not rows and not moved:
            self.batch = None
            self.work.begin([Part("waits", poll_s)], now)
            return
        self.sweeping = self._swept()
        self.taken_rows += rows
        self._applied_event_ts = self._watermark_event_ts
        self.work.begin(self._parts(rows, now), now)
        self.batch = BatchReport(
            batch_id=self._batches,
            offsets_wall_ts=now,
            ended_wall_ts=math.inf,
            duration_s=math.inf,
            rows=rows,
            watermark_event_ts=self._applied_event_ts,
            evicts_event_ts=max(0.0, self._applied_event_ts - query.behind_s) if query.behind_s else None,
            inputs=self._inputs(rows, now),
            rows_out=len(self.sweeping),
            state_bytes=query.state_bytes,
            limited=self.taken_rows < readable,
            reads=(query.reads_from,) if query.reads_from is not None else (),
            writes=query.name,
        )

    def finish(self, now: float) -> BatchReport | None:
        """The trigger is over: the batch it ran, if any."""
        if self.batch is None:
            self.awaited = False
            return None
        batch = replace(self.batch, ended_wall_ts=now, duration_s=now - self.batch.offsets_wall_ts)
        self._batches += 1
        self.written_rows = self.taken_rows
        self._untold.append(batch)
        self._move_watermark(batch)
        return batch

    def tell(self) -> QueryReport:
        facts = None if self._described else self.query.facts()
        self._described = True
        batches, self._untold = tuple(self._untold), []
        return QueryReport(
            key=self.query.name,
            alive=self.alive,
            waiting=self.waiting,
            wait_no=self.wait_no,
            since_wall_ts=self.since_wall_ts,
            next_watermark_event_ts=self._watermark_event_ts,
            running_tasks=int(self.batch is not None and not self.waiting and self.query.shows_tasks),
            awaited=self.awaited,
            batches=batches,
            facts=facts,
        )

    def _parts(self, rows: int, now: float) -> list[Part]:
        query = self.query
        whole_s = query.batch_cost_s + query.row_cost_s * rows
        if not rows and query.empty_cost_s is not None:
            whole_s = query.empty_cost_s
        if query.factors:
            whole_s *= self.random.choice(query.factors)
        if query.pace is not None:
            whole_s *= query.pace(now - self.start_wall_ts)
        waits_s = (1 - query.cpu_share) * whole_s / 2
        computes_s = query.cpu_share * (1 - query.task_share) * whole_s
        tasks_s = query.cpu_share * query.task_share * whole_s
        computing = [Part("computes", computes_s)]
        if tasks_s:
            computing = [Part("computes", computes_s / _TASKS), Part("task", tasks_s / _TASKS)] * _TASKS
        parts = [Part("waits", waits_s), *map(replace, computing), Part("waits", waits_s)]
        return [part for part in parts if part.left_s > 0] or parts[-1:]

    def _inputs(self, rows: int, now: float) -> tuple[InputMaximum, ...]:
        delays_s = self.query.delays_s
        if not rows:
            return tuple(InputMaximum(delay_s, 0, None) for delay_s in delays_s)
        maxima_s = self.query.maxima_s(now - self.start_wall_ts, self.taken_rows)
        return tuple(
            # Spark's event-time statistics are whole milliseconds.
            InputMaximum(
                delay_s,
                rows if len(delays_s) == 1 else rows // len(delays_s),
                None if largest_s is None else math.floor((self.start_wall_ts + largest_s) * 1000 + 1e-3) / 1000,
            )
            for delay_s, largest_s in zip(delays_s, maxima_s, strict=True)
        )

    def _swept(self) -> list[tuple[float, int]]:
        """End and rows of every window with rows that the watermark has passed since the last batch."""
        query = self.query
        if not query.facts().emits_at_sweep:
            return []
        swept = []
        for window in query.windows:
            end = window.next_end(max(self._applied_event_ts - query.behind_s, self.start_wall_ts))
            while end <= self._watermark_event_ts - query.behind_s:
                end_s = end - self.start_wall_ts
                rows = query.rows_between(end_s - window.size_s, end_s)
                if rows:
                    swept.append((end, rows))
                end = window.next_end(end)
        return sorted(swept)

    def _move_watermark(self, batch: BatchReport) -> None:
        """The least over the inputs, or the greatest under that policy; an input without rows so far is at 0."""
        if not batch.inputs:
            return
        for index, seen in enumerate(batch.inputs):
            known = self._input_watermarks.get(index, 0.0)
            told = 0.0 if seen.max_event_ts is None else seen.max_event_ts - seen.delay_s
            self._input_watermarks[index] = max(known, told)
        choose = min if self.query.watermark_policy == "min" else max
        self._watermark_event_ts = max(self._watermark_event_ts, choose(self._input_watermarks.values()))
