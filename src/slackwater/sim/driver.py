"""The simulated engine as the core engine sees it: reports of what queries or operators did, and an order in return.

An entity is what is scheduled: a whole query, or an operator that reads what the one before it writes. Rows of a query
are work in units of a whole event, so that what waits half-way counts for what is left to do.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Literal

import numpy as np

from slackwater.core.model import BatchReport, InputMaximum, QueryFacts, QueryReport, Report, Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from slackwater.core.engine import Engine
    from slackwater.sim.tuples import Simulation

    Floats = NDArray[np.float64]

Entities = Literal["queries", "operators"]

EPOCH_TS = 6000.0
"""The virtual clock's start: later than `never`, and small enough that window ends stay exact."""

_MEASURED_BEFORE = 1000
"""Rows, of each entity."""


class Driver:
    """Owns `order`, the entities by urgency, and `last`, the last operator of those that run to free memory."""

    def __init__(self, simulation: Simulation, engine: Engine) -> None:
        self._simulation = simulation
        self._engine = engine
        self._whole = simulation.machine.entities == "queries"
        shape = simulation.costs.shape
        names = [pipeline.name for pipeline in simulation.pipelines]
        self._owners = list(range(shape[0])) if self._whole else [q for q in range(shape[0]) for _ in range(shape[1])]
        self._keys = names if self._whole else [f"{name}/{k:02d}" for name in names for k in range(shape[1])]
        self._facts: list[QueryFacts | None] = [self._describe(entity) for entity in range(len(self._keys))]
        self._whole_cost = simulation.costs.sum(axis=1)
        self._tails = np.cumsum(simulation.costs[:, ::-1], axis=1)[:, ::-1]
        self._kept = np.cumprod(np.array([[o.selectivity for o in p.operators] for p in simulation.pipelines]), axis=1)
        self._bottleneck = np.maximum.accumulate(simulation.costs, axis=1)
        self._places = [self._chained(entity) for entity in range(len(self._keys))]
        self._event_bytes = np.array([pipeline.event_bytes for pipeline in simulation.pipelines])
        self._starts_s = np.array([pipeline.starts_at_s for pipeline in simulation.pipelines])
        self._streams = np.array([pipeline.source.streams for pipeline in simulation.pipelines])
        # Costs and selectivities are known when it begins, as from an earlier run: an operator that nobody has measured
        # looks useless to some policies, is starved by them, and so is never measured.
        self._rows = np.full(len(self._keys), -float(_MEASURED_BEFORE))
        self._rows_out, self._used_s = self._rows * self._selectivities(), self._rows * self._unit_costs_s()
        self._came = np.zeros(len(names))
        self._head = np.zeros(shape, np.intp)
        self.order = np.arange(len(self._keys))
        self.last: NDArray[np.intp] | None = None
        self.steps_s: list[float] = []

    def _selectivities(self) -> Floats:
        found: Floats = self._kept[:, -1] if self._whole else (self._kept / self._simulation.shares).ravel()
        return found

    def _unit_costs_s(self) -> Floats:
        costs = self._simulation.costs
        found: Floats = self._whole_cost if self._whole else (costs / self._simulation.shares).ravel()
        return found

    def step(self, place: int) -> None:
        """Report what happened up to this slice; take over what the engine answers."""
        report = self._report(place)
        began = time.thread_time()
        commands = self._engine.step(report)
        self.steps_s.append(time.thread_time() - began)
        urgencies = [commands.urgencies[key] for key in self._keys]
        self.order = np.argsort(np.array(urgencies), kind="stable")
        self.last = None
        if commands.freeing and self._whole:
            # Of prefixes that free alike the longest: it lets watermarks out as well.
            end = self._simulation.costs.shape[1] - 1
            best = end - np.argmax(self._freed()[:, ::-1], axis=1)
            freeing = np.array([key in commands.freeing for key in self._keys])
            self.last = np.where(freeing, best, end)

    # ---- the report -------------------------------------------------------------------------------------------

    def _report(self, place: int) -> Report:
        now_s = float(self._simulation.times_s[place])
        memory_bytes = self._simulation.machine.memory_bytes
        return Report(
            wall_ts=EPOCH_TS + now_s,
            cores=self._simulation.machine.cores,
            queries=self._queries(place, now_s),
            heap_max_bytes=int(memory_bytes) if math.isfinite(memory_bytes) else 0,
            heap_live_bytes=int(self._simulation.memory[place]),
        )

    def _queries(self, place: int, now_s: float) -> tuple[QueryReport, ...]:
        simulation = self._simulation
        pointers = simulation.pointers
        if self._whole:
            backlog = (self._tails * (pointers[:, :-1] - pointers[:, 1:])).sum(axis=1) / self._whole_cost
            rows = (pointers[:, 1:] * simulation.costs).sum(axis=1) / self._whole_cost
            rows_out = pointers[:, -1] * self._kept[:, -1]
            used_s = simulation.used_s.sum(axis=1)
        else:
            backlog = simulation.queues().ravel()
            rows = (pointers[:, 1:] * simulation.shares).ravel()
            rows_out = (pointers[:, 1:] * self._kept).ravel()
            used_s = simulation.used_s.ravel()
        heads = self._heads(place)
        ran = (np.floor(rows) - np.floor(self._rows)).astype(int).tolist()
        put_out = (np.floor(rows_out) - np.floor(self._rows_out)).astype(int).tolist()
        spent = (used_s - self._used_s).tolist()
        self._rows, self._rows_out, self._used_s = rows, rows_out, used_s
        waits = np.rint(backlog).astype(int).tolist()
        inputs = self._inputs(place) if self._whole else None
        frees = self._freeable().tolist() if self._whole else [None] * len(self._keys)
        states = simulation.states_bytes().astype(int).tolist() if self._whole else [0] * len(self._keys)
        wall_ts, batch_id = EPOCH_TS + now_s, place
        found = []
        for entity, key in enumerate(self._keys):
            owner = self._owners[entity]
            mark_ts = self._watermark_ts(owner) if self._whole else 0.0
            reads, writes = self._places[entity]
            batch = BatchReport(
                batch_id=batch_id,
                offsets_wall_ts=EPOCH_TS + heads[entity],
                ended_wall_ts=wall_ts,
                duration_s=spent[entity],
                rows=ran[entity],
                watermark_event_ts=mark_ts,
                inputs=inputs[owner] if inputs is not None else (),
                rows_out=put_out[entity],
                state_bytes=states[entity],
                backlog_rows=waits[entity],
                reads=reads,
                writes=writes,
            )
            facts, self._facts[entity] = self._facts[entity], None
            found.append(
                QueryReport(
                    key=key,
                    alive=True,
                    waiting=False,
                    wait_no=0,
                    since_wall_ts=wall_ts,
                    next_watermark_event_ts=mark_ts,
                    freeable_bytes=frees[entity],
                    batches=(batch,),
                    facts=facts,
                )
            )
        return tuple(found)

    def _describe(self, entity: int) -> QueryFacts:
        pipeline = self._simulation.pipelines[self._owners[entity]]
        window = pipeline.window if self._whole else None
        windows = () if window is None else (Window(window.size_s, window.slide_s, window.offset_s + EPOCH_TS),)
        return QueryFacts(
            key=self._keys[entity],
            name=self._keys[entity],
            query_id=self._keys[entity],
            windows=windows,
            input_delays_s=(0.0,) * pipeline.source.streams if windows else (),
            continuous=True,
            options=pipeline.options,
        )

    def _chained(self, entity: int) -> tuple[tuple[str, ...], str | None]:
        """The queues that an operator reads and writes."""
        if self._whole:
            return (), None
        operators = self._simulation.costs.shape[1]
        query, k = divmod(entity, operators)
        return (f"{query}:{k}",), f"{query}:{k + 1}"

    def _watermark_ts(self, query: int) -> float:
        """The last window end that has left; the query's start before there is one."""
        out = self._simulation.out[query]
        ends_s = self._simulation.swept[query].ends_s
        return EPOCH_TS + float(ends_s[out - 1] if out else self._simulation.pipelines[query].starts_at_s)

    def _heads(self, place: int) -> list[float]:
        """When the oldest waiting event of each entity arrived, to a slice; now where none waits."""
        simulation = self._simulation
        held = simulation.machine.held == "broker"
        curve = simulation.offered if held else simulation.entered
        pointers = simulation.pointers[:, 1:]
        columns = np.arange(len(pointers))[:, None]
        while True:
            behind = (self._head < place) & (curve[np.minimum(self._head + 1, place), columns] <= pointers + 1e-6)
            if not behind.any():
                break
            self._head += behind
        heads = self._head[:, -1] if self._whole else self._head.ravel()
        found: list[float] = simulation.times_s[heads].tolist()
        return found

    def _inputs(self, place: int) -> list[tuple[InputMaximum, ...]]:
        """Delays of the events let in since the last report: on the network, and held back outside."""
        simulation = self._simulation
        entered = simulation.pointers[:, 0]
        fresh = entered - self._came
        self._came = entered.copy()
        now_s = float(simulation.times_s[place])
        count = np.floor(fresh / self._streams)
        hold_s = np.zeros(len(fresh))
        if simulation.machine.held == "broker":
            rate = simulation.offered[place] / np.maximum(1e-3, now_s - self._starts_s)
            hold_s = (simulation.offered[place] - entered) / np.maximum(1e-9, rate)
        first, second, third = simulation.law.moments
        sums = (
            count * (first + hold_s),
            count * (second + 2 * hold_s * first + hold_s**2),
            count * (third + 3 * hold_s * second + 3 * hold_s**2 * first + hold_s**3),
        )
        columns = zip(count.astype(int).tolist(), *(column.tolist() for column in sums), strict=True)
        return [
            (InputMaximum(0.0, delays[0], EPOCH_TS + now_s if delays[0] else None, delays),) * pipeline.source.streams
            for pipeline, delays in zip(simulation.pipelines, columns, strict=True)
        ]

    # ---- memory -----------------------------------------------------------------------------------------------

    def _freed(self) -> Floats:
        """p_k of Klink 3.4: events queued up to operator k, or what a cycle can do of them, times the share dropped."""
        queued = np.cumsum(self._simulation.queues(), axis=1)
        within = self._simulation.machine.cycle_s / self._bottleneck
        found: Floats = np.minimum(queued, within) * (1.0 - self._kept)
        return found

    def _freeable(self) -> Floats:
        found: Floats = self._freed().max(axis=1) * self._event_bytes
        return found
