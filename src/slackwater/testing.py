"""For tests of policies: a clock that stands still, and a small stand-in for Spark in virtual time.

    engine = Engine(MyPolicy(), RoundRobin())
    driver = ScriptedDriver([SimulatedQuery("clicks", windows=(Window(10, 10),), delay_s=1)])
    trace = run(engine, driver, seconds=60)
    assert max(emission.latency_s for emission in trace.emissions) < 3

`ScriptedDriver` does what the engine expects of a driver, and its queries do what Spark's do: a batch fixes
its offsets at its start and takes all that has arrived; the watermark that its rows move is applied by the
next batch, which emits the windows it passes; a batch without rows runs only if the watermark moved. Batches that
run at once share the cores. Where queries name factors to draw their batches' lengths from, the seed fixes them: the
same queries, policy and seed give the same trace. A query reads one steady stream with one watermark, or any
`Stream` that is given to it.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol

from slackwater.core.model import (
    BatchReport,
    Commands,
    Grant,
    InputMaximum,
    QueryFacts,
    QueryOptions,
    QueryReport,
    Report,
    Stage,
    Window,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from slackwater.core.engine import Engine
    from slackwater.core.model import WatermarkPolicy

START_WALL_TS = 1_200_000.0
"""When a fake clock starts: a whole number of minutes, so that windows without an offset start with it."""

_EMPTY_TRIGGER_S = 0.01
_FUZZ_S = 1e-9
_CLOCK_FUZZ_S = 1e-6
_TASKS = 2  # of a batch, one after the other: those that read the source, those that keep the state

TaskOrder = Literal["name", "arrival"]


class FakeClock:
    """Wall time that moves only when told."""

    def __init__(self, wall_ts: float = START_WALL_TS) -> None:
        self._wall_ts = wall_ts

    def now(self) -> float:
        return self._wall_ts

    def advance(self, seconds: float) -> None:
        self.set(self._wall_ts + seconds)

    def set(self, wall_ts: float) -> None:
        if wall_ts < self._wall_ts:
            raise ValueError(f"the clock stands at {self._wall_ts} and cannot go back to {wall_ts}.")
        self._wall_ts = wall_ts


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


@dataclass(frozen=True, slots=True)
class Emission:
    """A window that left a query at the end of the batch that swept it."""

    query: str
    window_end_event_ts: float
    emitted_wall_ts: float
    rows: int

    @property
    def latency_s(self) -> float:
        return self.emitted_wall_ts - self.window_end_event_ts


@dataclass(frozen=True, slots=True)
class GrantSeen:
    """A grant as the driver heard it; stale if the query did not wait with that number any more."""

    wall_ts: float
    query: str
    stage: Stage
    reason: str
    stale: bool


@dataclass(slots=True)
class TurnSeen:
    """A turn as it ran: `ended_wall_ts` is that of its last batch, infinite while that one runs."""

    query: str
    granted_wall_ts: float
    ended_wall_ts: float = math.inf
    batches: int = 0
    rows: int = 0


@dataclass(slots=True)
class Trace:
    """What happened, in order of time."""

    grants: list[GrantSeen] = field(default_factory=list)
    turns: list[TurnSeen] = field(default_factory=list)
    batches: list[tuple[str, BatchReport]] = field(default_factory=list)
    emissions: list[Emission] = field(default_factory=list)

    def turns_of(self, query: str) -> list[TurnSeen]:
        return [turn for turn in self.turns if turn.query == query]

    def batches_of(self, query: str) -> list[BatchReport]:
        return [batch for name, batch in self.batches if name == query]

    def emissions_of(self, query: str) -> list[Emission]:
        return [emission for emission in self.emissions if emission.query == query]

    def most_turns_at_once(self) -> int:
        changes = [(turn.granted_wall_ts, 1) for turn in self.turns]
        changes += [(turn.ended_wall_ts, -1) for turn in self.turns]
        running = most = 0
        for _, change in sorted(changes):
            running += change
            most = max(most, running)
        return most


@dataclass(slots=True)
class _Part:
    """What a batch does next: it waits for something, computes in the driver, or runs a task on a core of its own."""

    kind: Literal["waits", "computes", "task"]
    left_s: float
    on_core: bool = False

    @property
    def computing(self) -> bool:
        return self.kind == "computes" or self.on_core

    @property
    def held(self) -> bool:
        """A task that has no core yet."""
        return self.kind == "task" and not self.on_core


@dataclass(slots=True)
class _Run:
    """A live query: what its gate and its stream thread know."""

    query: SimulatedQuery
    since_wall_ts: float
    random: random.Random
    wait_no: int = 0
    waiting: bool = False
    awaited: bool = False
    alive: bool = True
    described: bool = False
    passed_wall_ts: float | None = None
    taken_rows: int = 0
    written_rows: int = 0
    applied_event_ts: float = 0.0
    watermark_event_ts: float = 0.0
    input_watermarks: dict[int, float] = field(default_factory=dict)
    batch: BatchReport | None = None
    sweeping: list[tuple[float, int]] = field(default_factory=list)
    batches: int = 0
    starting: bool = False
    parts: list[_Part] = field(default_factory=list)
    part_since_wall_ts: float = 0.0
    unread: list[BatchReport] = field(default_factory=list)
    turn: TurnSeen | None = None


def cpu_speed(demand: float, alone: float, *, cores: float, crowding: float = 0.0) -> float:
    """How fast computing goes when `demand` cores' worth of it is under way, against a batch alone on the cores.

    Cores are shared evenly. `alone` is the demand when only that batch and the background compute.
    """

    def slowdown(busy: float) -> float:
        return 1 + crowding * max(0.0, min(busy, cores) - 1) / (cores - 1) if cores > 1 else 1.0

    share = min(1.0, cores / demand) if demand > 0 else 1.0
    return share * slowdown(alone) / slowdown(demand)


class ScriptedDriver:
    """Queries in virtual time behind gates. `trace` holds all that happened so far.

    background_cores: what else computes on the cores, all the time.
    crowding: how much longer computing takes with all cores busy than with one, as a share: cores have caches and more
    in common.
    grant_delay_s: how long a grant takes to reach its query.
    task_order: who gets a free core when tasks of several batches wait: the first by name, as with a fair pool for
    each query (Spark breaks the tie between pools without a running task so), or the one that waits longest.
    seed: fixes what is drawn.
    capacity_cores: how much of the cores' time the queries get, where others on the host take the rest; None: all.
    poll_s: how long a query whose trigger found nothing waits before it looks again, where nobody schedules it.
    """

    def __init__(
        self,
        queries: Iterable[SimulatedQuery],
        *,
        cores: int = 2,
        clock: FakeClock | None = None,
        background_cores: float = 0.0,
        crowding: float = 0.0,
        grant_delay_s: float = 0.0,
        task_order: TaskOrder = "arrival",
        seed: int = 0,
        poll_s: float = _EMPTY_TRIGGER_S,
        capacity_cores: float | None = None,
    ) -> None:
        self.capacity_cores = float(cores) if capacity_cores is None else capacity_cores
        self.clock = clock or FakeClock()
        self.poll_s = poll_s
        self.cores = cores
        self.seed = seed
        self.task_order = task_order
        self.background_cores = background_cores
        self.crowding = crowding
        self.grant_delay_s = grant_delay_s
        self.cpu_s = 0.0
        self.gates_open = False
        self.trace = Trace()
        self._start_wall_ts = self.clock.now()
        # Today's seconds since 1970 are no finer than this.
        self._fuzz_s = max(_FUZZ_S, 4 * math.ulp(self._start_wall_ts))
        self._coming = sorted(queries, key=lambda query: query.starts_at_s)
        self._runs: dict[str, _Run] = {}
        self._left: dict[str, int] = {}  # rows that queries wrote which are gone
        self._enforce = True
        self._happened = False
        names = [query.name for query in self._coming]
        if len(set(names)) < len(names):
            raise ValueError(f"queries need different names, but got {', '.join(sorted(names))}.")

    def exchange(self, commands: Commands) -> Report:
        """Enact, let time pass until something happens or the time is up, tell where every query stands."""
        self._enforce = commands.enforce
        for grant in commands.grants:
            self._enact(grant)
        deadline = self.clock.now() + commands.wake_after_s
        self._settle()
        while not self._happened and self.clock.now() < deadline:
            self._pass_time(deadline)
            self._settle()
        self._happened = False
        reports = tuple(self._tell(run) for run in self._runs.values())
        self._left.update({name: run.written_rows for name, run in self._runs.items() if not run.alive})
        self._runs = {name: run for name, run in self._runs.items() if run.alive}
        return Report(self.clock.now(), self.cores, reports, gates_open=self.gates_open)

    def open_gates(self) -> None:
        """As the watchdog does after a silence of the scheduler: queries follow their own triggers."""
        self.gates_open = True

    def resync(self) -> None:
        self.gates_open = False

    def await_all_available(self, query: str) -> None:
        """As somebody who calls `processAllAvailable()`: waits until a trigger finds no new data."""
        self._runs[query].awaited = True

    def awaited(self, query: str) -> bool:
        return self._runs[query].awaited

    def _enact(self, grant: Grant) -> None:
        run, now = self._runs.get(grant.key), self.clock.now()
        stale = run is None or not run.waiting or run.wait_no != grant.wait_no
        self.trace.grants.append(GrantSeen(now, grant.key, grant.stage, grant.reason, stale))
        if run is None or stale:
            return
        if run.turn is None or grant.stage is Stage.DATA:
            run.turn = TurnSeen(run.query.name, now)
            self.trace.turns.append(run.turn)
        run.turn.ended_wall_ts = math.inf
        if self.grant_delay_s <= 0:
            self._trigger(run)
        else:
            run.waiting, run.starting = False, True
            self._begin(run, [_Part("waits", self.grant_delay_s)])

    def _begin(self, run: _Run, parts: list[_Part]) -> None:
        run.parts, run.part_since_wall_ts = parts, self.clock.now()

    def _pass_time(self, deadline: float) -> None:
        now = self.clock.now()
        under_way = [run for run in self._runs.values() if run.parts and not run.waiting]
        demand = self.background_cores + sum(run.query.cpu_demand for run in under_way if run.parts[0].computing)
        moving = [(run.parts[0], self._speed(run, demand)) for run in under_way if not run.parts[0].held]
        until = min(
            [deadline]
            + [now + part.left_s / speed for part, speed in moving]
            + [self._own_trigger_wall_ts(run) for run in self._runs.values() if run.waiting and self._passes_freely]
            + [self._start_wall_ts + run.query.fails_at_s for run in self._runs.values()]
            + [self._start_wall_ts + query.starts_at_s for query in self._coming]
        )
        until = max(until, now)
        for part, speed in moving:
            part.left_s -= (until - now) * speed
        self.cpu_s += (until - now) * min(demand, self.capacity_cores)
        self.clock.set(until)

    def _speed(self, run: _Run, demand: float) -> float:
        if not run.parts[0].computing:
            return 1.0
        alone = self.background_cores + run.query.cpu_demand
        return cpu_speed(demand, alone, cores=self.capacity_cores, crowding=self.crowding)

    def _settle(self) -> None:
        """Everything that is due at this instant."""
        now = self.clock.now()
        elapsed_s = now - self._start_wall_ts + self._fuzz_s
        while self._coming and self._coming[0].starts_at_s <= elapsed_s:
            query = self._coming.pop(0)
            self._runs[query.name] = run = _Run(query, now, random.Random(f"{self.seed}-{query.name}"))
            self._wait(run)
        for run in self._runs.values():
            if run.query.fails_at_s <= elapsed_s:
                run.alive, run.waiting, self._happened = False, False, True
                if run.turn is not None:
                    run.turn.ended_wall_ts = min(run.turn.ended_wall_ts, now)
            elif not run.waiting:
                self._go_on(run)
            if run.waiting and self._passes_freely and self._own_trigger_wall_ts(run) <= now + self._fuzz_s:
                run.turn = None
                self._trigger(run)
        self._give_cores()

    def _go_on(self, run: _Run) -> None:
        """The next part of a batch, if one is over; what follows the last one."""
        if run.parts[0].left_s > self._fuzz_s:
            return
        del run.parts[0]
        run.part_since_wall_ts = self.clock.now()
        if run.parts:
            return
        if run.starting:
            run.starting = False
            self._trigger(run)
        else:
            self._finish(run)

    def _give_cores(self) -> None:
        """Free cores to the tasks that wait for one; a task keeps its core until it is over."""
        tasks = [run for run in self._runs.values() if run.parts and run.parts[0].kind == "task"]
        free = self.cores - sum(run.parts[0].on_core for run in tasks)
        if self.task_order == "arrival":
            tasks.sort(key=lambda run: run.part_since_wall_ts)
        else:
            tasks.sort(key=lambda run: run.query.name)
        for run in [run for run in tasks if run.parts[0].held][:free]:
            run.parts[0].on_core = True

    @property
    def _passes_freely(self) -> bool:
        return self.gates_open or not self._enforce

    def _own_trigger_wall_ts(self, run: _Run) -> float:
        """When Spark itself would fire: at once, or at the next multiple of the user's interval."""
        interval_s = run.query.interval_s
        if interval_s <= 0 or run.passed_wall_ts is None:
            return run.since_wall_ts
        # A multiple that was just met, give or take what a float can hold, is not the next one.
        return max(run.since_wall_ts, ((run.passed_wall_ts + _CLOCK_FUZZ_S) // interval_s + 1) * interval_s)

    def _wait(self, run: _Run) -> None:
        run.waiting, run.since_wall_ts, self._happened = True, self.clock.now(), True
        run.wait_no += 1

    def _trigger(self, run: _Run) -> None:
        query, now = run.query, self.clock.now()
        run.waiting, run.passed_wall_ts = False, now
        ready = self._readable(query)
        rows = min(ready - run.taken_rows, query.max_rows or ready)
        moved = query.stateful and run.watermark_event_ts > run.applied_event_ts
        if not rows and not moved:
            run.batch = None
            self._begin(run, [_Part("waits", self.poll_s)])
            return
        run.sweeping = self._swept(run)
        run.taken_rows += rows
        run.applied_event_ts = run.watermark_event_ts
        inputs = self._inputs(query, rows, run.taken_rows)
        self._begin(run, self._parts(run, rows))
        run.batch = BatchReport(
            batch_id=run.batches,
            offsets_wall_ts=now,
            ended_wall_ts=math.inf,
            duration_s=math.inf,
            rows=rows,
            watermark_event_ts=run.applied_event_ts,
            evicts_event_ts=max(0.0, run.applied_event_ts - query.behind_s) if query.behind_s else None,
            inputs=inputs,
            rows_out=len(run.sweeping),
            state_bytes=query.state_bytes,
            limited=run.taken_rows < ready,
            reads=(query.reads_from,) if query.reads_from is not None else (),
            writes=query.name,
        )

    def _inputs(self, query: SimulatedQuery, rows: int, taken_rows: int) -> tuple[InputMaximum, ...]:
        delays_s = query.delays_s
        if not rows:
            return tuple(InputMaximum(delay_s, 0, None) for delay_s in delays_s)
        maxima_s = query.maxima_s(self.clock.now() - self._start_wall_ts, taken_rows)
        return tuple(
            # Spark's event-time statistics are whole milliseconds.
            InputMaximum(
                delay_s,
                rows if len(delays_s) == 1 else rows // len(delays_s),
                None if largest_s is None else math.floor((self._start_wall_ts + largest_s) * 1000 + 1e-3) / 1000,
            )
            for delay_s, largest_s in zip(delays_s, maxima_s, strict=True)
        )

    def _readable(self, query: SimulatedQuery) -> int:
        if query.reads_from is None:
            return query.rows_readable(self.clock.now() - self._start_wall_ts)
        writer = self._runs.get(query.reads_from)
        return writer.written_rows if writer is not None else self._left.get(query.reads_from, 0)

    def _parts(self, run: _Run, rows: int) -> list[_Part]:
        query = run.query
        whole_s = query.batch_cost_s + query.row_cost_s * rows
        if not rows and query.empty_cost_s is not None:
            whole_s = query.empty_cost_s
        if query.factors:
            whole_s *= run.random.choice(query.factors)
        if query.pace is not None:
            whole_s *= query.pace(self.clock.now() - self._start_wall_ts)
        waits_s = (1 - query.cpu_share) * whole_s / 2
        computes_s = query.cpu_share * (1 - query.task_share) * whole_s
        tasks_s = query.cpu_share * query.task_share * whole_s
        computing = [_Part("computes", computes_s)]
        if tasks_s:
            computing = [_Part("computes", computes_s / _TASKS), _Part("task", tasks_s / _TASKS)] * _TASKS
        parts = [_Part("waits", waits_s), *map(replace, computing), _Part("waits", waits_s)]
        return [part for part in parts if part.left_s > 0] or parts[-1:]

    def _swept(self, run: _Run) -> list[tuple[float, int]]:
        """End and rows of every window with rows that the watermark has passed since the last batch."""
        query = run.query
        if not query.facts().emits_at_sweep:
            return []
        swept = []
        for window in query.windows:
            end = window.next_end(max(run.applied_event_ts - query.behind_s, self._start_wall_ts))
            while end <= run.watermark_event_ts - query.behind_s:
                end_s = end - self._start_wall_ts
                rows = query.rows_between(end_s - window.size_s, end_s)
                if rows:
                    swept.append((end, rows))
                end = window.next_end(end)
        return sorted(swept)

    def _finish(self, run: _Run) -> None:
        now = self.clock.now()
        if run.batch is None:
            run.awaited = False
        else:
            batch = replace(run.batch, ended_wall_ts=now, duration_s=now - run.batch.offsets_wall_ts)
            run.batches += 1
            run.written_rows = run.taken_rows
            run.unread.append(batch)
            self.trace.batches.append((run.query.name, batch))
            for end, rows in run.sweeping:
                self.trace.emissions.append(Emission(run.query.name, end, now, rows))
            self._move_watermark(run, batch)
            if run.turn is not None:
                run.turn.batches += 1
                run.turn.rows += batch.rows
        if run.turn is not None:
            run.turn.ended_wall_ts = now
        self._wait(run)

    @staticmethod
    def _move_watermark(run: _Run, batch: BatchReport) -> None:
        """The least over the inputs, or the greatest under that policy; an input without rows so far is at 0."""
        if not batch.inputs:
            return
        for index, seen in enumerate(batch.inputs):
            known = run.input_watermarks.get(index, 0.0)
            told = 0.0 if seen.max_event_ts is None else seen.max_event_ts - seen.delay_s
            run.input_watermarks[index] = max(known, told)
        choose = min if run.query.watermark_policy == "min" else max
        run.watermark_event_ts = max(run.watermark_event_ts, choose(run.input_watermarks.values()))

    def _tell(self, run: _Run) -> QueryReport:
        facts = None if run.described else run.query.facts()
        run.described = True
        batches, run.unread = tuple(run.unread), []
        return QueryReport(
            key=run.query.name,
            alive=run.alive,
            waiting=run.waiting,
            wait_no=run.wait_no,
            since_wall_ts=run.since_wall_ts,
            next_watermark_event_ts=run.watermark_event_ts,
            running_tasks=int(run.batch is not None and not run.waiting and run.query.shows_tasks),
            awaited=run.awaited,
            batches=batches,
            facts=facts,
        )


def steps(engine: Engine, driver: ScriptedDriver, seconds: float) -> Iterator[tuple[Report, Commands]]:
    """Engine and driver in turns for so many virtual seconds: each report and the engine's answer."""
    until = driver.clock.now() + seconds
    commands = Commands(enforce=engine.policy.enforces, wake_after_s=0.01)
    while driver.clock.now() < until:
        report = driver.exchange(commands)
        commands = engine.step(report)
        if report.gates_open:
            driver.resync()
        yield report, commands


def run(engine: Engine, driver: ScriptedDriver, seconds: float) -> Trace:
    """Let an engine schedule a driver's queries for so many virtual seconds."""
    for _ in steps(engine, driver, seconds):
        pass
    return driver.trace
