"""A driver in virtual time: gates, grants and time over simulated queries."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from slackwater.core.model import Commands, Grant, Report, Stage
from slackwater.testing.clock import FakeClock
from slackwater.testing.cores import NO_GARBAGE, Cores, Garbage, Part, TaskOrder
from slackwater.testing.thread import QueryThread
from slackwater.testing.trace import Emission, GrantSeen, Trace, TurnSeen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from slackwater.core.engine import Engine
    from slackwater.testing.query import SimulatedQuery

_EMPTY_TRIGGER_S = 0.01
_FUZZ_S = 1e-9


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
    garbage: what collecting it takes.
    compiling: how many cores the engine's compilers keep busy at a time, before anything else gets some.
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
        garbage: Garbage = NO_GARBAGE,
        compiling: Callable[[float], float] | None = None,
    ) -> None:
        self.clock = clock or FakeClock()
        self.trace = Trace()
        self.gates_open = False
        self.poll_s = poll_s
        self.seed = seed
        self.grant_delay_s = grant_delay_s
        capacity = float(cores) if capacity_cores is None else capacity_cores
        self._cores = Cores(cores, capacity, background_cores, crowding, task_order, garbage, compiling)
        self._start_wall_ts = self.clock.now()
        # Today's seconds since 1970 are no finer than this.
        self._fuzz_s = max(_FUZZ_S, 4 * math.ulp(self._start_wall_ts))
        self._coming = sorted(queries, key=lambda query: query.starts_at_s)
        self._threads: dict[str, QueryThread] = {}
        self._left: dict[str, int] = {}  # rows that queries wrote which are gone
        self._enforce = True
        self._happened = False
        names = [query.name for query in self._coming]
        if len(set(names)) < len(names):
            raise ValueError(f"queries need different names, but got {', '.join(sorted(names))}.")

    @property
    def cores(self) -> int:
        return self._cores.count

    @property
    def cpu_s(self) -> float:
        """What the cores have computed so far."""
        return self._cores.cpu_s

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
        reports = tuple(thread.tell() for thread in self._threads.values())
        self._left.update({name: thread.written_rows for name, thread in self._threads.items() if not thread.alive})
        self._threads = {name: thread for name, thread in self._threads.items() if thread.alive}
        return Report(self.clock.now(), self.cores, reports, gates_open=self.gates_open)

    def open_gates(self) -> None:
        """As the watchdog does after a silence of the scheduler: queries follow their own triggers."""
        self.gates_open = True

    def resync(self) -> None:
        self.gates_open = False

    def await_all_available(self, query: str) -> None:
        """As somebody who calls `processAllAvailable()`: waits until a trigger finds no new data."""
        self._threads[query].awaited = True

    def awaited(self, query: str) -> bool:
        return self._threads[query].awaited

    def _enact(self, grant: Grant) -> None:
        thread, now = self._threads.get(grant.key), self.clock.now()
        stale = thread is None or not thread.waiting or thread.wait_no != grant.wait_no
        self.trace.grants.append(GrantSeen(now, grant.key, grant.stage, grant.reason, stale))
        if thread is None or stale:
            return
        if thread.turn is None or grant.stage is Stage.DATA:
            thread.turn = TurnSeen(thread.query.name, now)
            self.trace.turns.append(thread.turn)
        thread.turn.ended_wall_ts = math.inf
        if self.grant_delay_s <= 0:
            self._trigger(thread)
        else:
            thread.waiting, thread.starting = False, True
            thread.work.begin([Part("waits", self.grant_delay_s)], now)

    def _pass_time(self, deadline: float) -> None:
        now = self.clock.now()
        flow = self._cores.flow((thread.work for thread in self._threads.values() if not thread.waiting), now)
        until = min(deadline, now + flow.lasts_s, *self._occasions())
        until = max(until, now)
        flow.go_on(until - now)
        self.clock.set(until)

    def _occasions(self) -> Iterator[float]:
        """When else something happens, besides the end of what is under way."""
        for thread in self._threads.values():
            yield self._start_wall_ts + thread.query.fails_at_s
            if thread.waiting and self._passes_freely:
                yield thread.own_trigger_wall_ts
        for query in self._coming[:1]:
            yield self._start_wall_ts + query.starts_at_s

    def _settle(self) -> None:
        """Everything that is due at this instant."""
        now = self.clock.now()
        elapsed_s = now - self._start_wall_ts + self._fuzz_s
        while self._coming and self._coming[0].starts_at_s <= elapsed_s:
            query = self._coming.pop(0)
            self._threads[query.name] = thread = QueryThread.of(query, self._start_wall_ts, self.seed)
            self._wait(thread)
        for thread in self._threads.values():
            if thread.query.fails_at_s <= elapsed_s:
                thread.alive, thread.waiting, self._happened = False, False, True
                if thread.turn is not None:
                    thread.turn.ended_wall_ts = min(thread.turn.ended_wall_ts, now)
            elif not thread.waiting:
                self._go_on(thread)
            if thread.waiting and self._passes_freely and thread.own_trigger_wall_ts <= now + self._fuzz_s:
                thread.turn = None
                self._trigger(thread)
        self._cores.give(thread.work for thread in self._threads.values())

    def _go_on(self, thread: QueryThread) -> None:
        """The next part of a batch, if one is over; what follows the last one."""
        work = thread.work
        if work.parts[0].left_s > self._fuzz_s:
            return
        work.next(self.clock.now())
        if work.parts:
            return
        if thread.starting:
            thread.starting = False
            self._trigger(thread)
        else:
            self._finish(thread)

    @property
    def _passes_freely(self) -> bool:
        return self.gates_open or not self._enforce

    def _wait(self, thread: QueryThread) -> None:
        thread.wait(self.clock.now())
        self._happened = True

    def _trigger(self, thread: QueryThread) -> None:
        thread.trigger(self.clock.now(), self._readable(thread.query), self.poll_s)

    def _readable(self, query: SimulatedQuery) -> int:
        if query.reads_from is None:
            return query.rows_readable(self.clock.now() - self._start_wall_ts)
        writer = self._threads.get(query.reads_from)
        return writer.written_rows if writer is not None else self._left.get(query.reads_from, 0)

    def _finish(self, thread: QueryThread) -> None:
        now, turn = self.clock.now(), thread.turn
        batch = thread.finish(now)
        if batch is not None:
            self.trace.batches.append((thread.query.name, batch))
            for end, rows in thread.sweeping:
                self.trace.emissions.append(Emission(thread.query.name, end, now, rows))
        if turn is not None:
            turn.ended_wall_ts = now
            if batch is not None:
                turn.batches += 1
                turn.rows += batch.rows
        self._wait(thread)


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
