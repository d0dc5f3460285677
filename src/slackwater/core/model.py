"""What crosses layers: facts about queries, what their batches told, what a policy sees and answers.

Event time and wall time never mix: names say `event_ts` or `wall_ts` (seconds since the epoch) or, where both
meet in a deadline, which of the two it is. Durations end in `_s`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from slackwater.core.places import normalised
from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Knob = Literal["cost", "balanced", "latency"]
WatermarkPolicy = Literal["min", "max"]


@dataclass(frozen=True, slots=True)
class Window:
    """A tumbling or sliding event-time window, as Spark's `window(column, size, slide, offset)`."""

    size_s: float
    slide_s: float
    offset_s: float = 0.0

    def next_end(self, after_event_ts: float) -> float:
        """The first window end strictly after an event time. Ends repeat every slide."""
        phase = (self.offset_s + self.size_s) % self.slide_s
        steps = math.floor((after_event_ts - phase) / self.slide_s + 1e-9) + 1
        return phase + steps * self.slide_s


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """What a user may say of one query; everything else is read from its plan.

    target_latency_s: for queries without windows, how old the oldest waiting row may grow.
    priority_class: queries of a smaller class go before those of a greater one.
    deadline: seconds after a window's end by which its result should be out; tightens the slack.
    reads, writes: the places (a folder, `topic:name@brokers`, a table) by which it is chained to other queries, where
    its sources and its sink don't tell; in the same words for the writer and the reader.
    """

    target_latency_s: float | None = None
    priority_class: int = 0
    deadline: float | None = None
    reads: tuple[str, ...] = ()
    writes: str | None = None

    def __post_init__(self) -> None:
        for name in ("target_latency_s", "deadline"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
                raise ConfigurationError(f"QueryOptions({name}={value!r}): a positive number of seconds is needed.")
        if not isinstance(self.priority_class, int):
            raise ConfigurationError(
                f"QueryOptions(priority_class={self.priority_class!r}): a whole number is needed; 0 is usual, "
                "smaller goes first."
            )
        if not isinstance(self.reads, tuple) or not all(isinstance(place, str) and place for place in self.reads):
            raise ConfigurationError(f"QueryOptions(reads={self.reads!r}): a tuple of places is needed.")
        if self.writes is not None and not (isinstance(self.writes, str) and self.writes):
            raise ConfigurationError(f"QueryOptions(writes={self.writes!r}): the name of a place is needed.")
        object.__setattr__(self, "reads", tuple(normalised(place) for place in self.reads))
        object.__setattr__(self, "writes", self.writes and normalised(self.writes))


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """What does not change while a run of a query lives.

    continuous: the engine works event by event and no gate holds it. A batch report is then what the query did since
    the last one: it has no fixed cost, its backlog is known rather than estimated, and having run is having had a turn.
    """

    key: str
    name: str
    query_id: str
    gated: bool = True
    windows: tuple[Window, ...] = ()
    input_delays_s: tuple[float, ...] = ()
    watermark_policy: WatermarkPolicy = "min"
    emits_at_sweep: bool = True
    stateful: bool = True
    min_interval_s: float = 0.0
    continuous: bool = False
    options: QueryOptions = field(default_factory=QueryOptions)

    @property
    def delay_s(self) -> float:
        """The watermark delay that decides: the greatest under Spark's min policy, the least under max."""
        if not self.input_delays_s:
            return 0.0
        return max(self.input_delays_s) if self.watermark_policy == "min" else min(self.input_delays_s)

    def next_window_end(self, watermark_event_ts: float) -> float | None:
        """The first end that a later watermark will sweep; None where no window waits for one."""
        if not self.windows or not self.emits_at_sweep:
            return None
        return min(window.next_end(watermark_event_ts) for window in self.windows)


@dataclass(frozen=True, slots=True)
class InputMaximum:
    """The largest event time that one watermarked input of a batch saw, and its rows; the least one where it is told.

    `delays` where the source tells when each row was ingested: number of rows, and the sums of their delays (ingestion
    minus event time), of the squares and of the cubes.
    """

    delay_s: float
    rows: int
    max_event_ts: float | None
    delays: tuple[int, float, float, float] | None = None
    min_event_ts: float | None = None


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One micro-batch that ran, as Spark's progress tells it.

    evicts_event_ts is the watermark by which the operator that emits windows evicted: behind a join it lags the
    query's. dropped_rows are those that its state operators dropped as too late (Spark counts groups where it has
    aggregated before). state_partitions are those of its state, and so of its checkpoint; 0: it keeps none, or nobody
    tells. parts_s: how long the parts of its duration took, by Spark's names for them. driver_cpu_s: the CPU time of
    the query's own thread, which plans the batch and waits for its tasks.
    """

    batch_id: int
    offsets_wall_ts: float
    ended_wall_ts: float
    duration_s: float
    rows: int
    watermark_event_ts: float
    inputs: tuple[InputMaximum, ...] = ()
    rows_out: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    dropped_rows: int = 0
    backlog_rows: int | None = None
    limited: bool = False
    reads: tuple[str, ...] = ()
    writes: str | None = None
    evicts_event_ts: float | None = None
    state_partitions: int = 0
    parts_s: Mapping[str, float] = field(default_factory=dict)
    driver_cpu_s: float | None = None


@dataclass(frozen=True, slots=True)
class TaskTime:
    """What the tasks of a batch took, all together: known a little after the batch is over, and in parts at times."""

    batch_id: int
    cpu_s: float
    run_s: float


@dataclass(frozen=True, slots=True)
class QueryReport:
    """Where one query stands now.

    freeable_bytes: the memory that running it now would free, where the driver knows; else it follows from its state.
    error: of a query that is not alive, why it failed, in a line; None where it was stopped or had no more to do.
    worked: of batches that were reported before or are now, where the driver was asked to tell.
    """

    key: str
    alive: bool
    waiting: bool
    wait_no: int
    since_wall_ts: float
    next_watermark_event_ts: float | None
    running_tasks: int = 0
    awaited: bool = False
    freeable_bytes: float | None = None
    batches: tuple[BatchReport, ...] = ()
    worked: tuple[TaskTime, ...] = ()
    facts: QueryFacts | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a driver saw since the last report.

    cores are those that tasks can have now; on a cluster they come and go with executors, and may be none. elastic
    says that more would come if tasks waited for them.
    cpu_s is the processor time that the engine's process has used so far, of `processors`; collecting_cpu_s and
    compiling_cpu_s are what of it was spent on garbage and on compiling code. None where nobody tells.
    steady_s is a clock that nobody sets, so that a step of the wall clock can be told from time that passed.
    """

    wall_ts: float
    cores: int
    queries: tuple[QueryReport, ...]
    gates_open: bool = False
    ordinary_tasks: int = 0
    heap_used_bytes: int = 0
    heap_max_bytes: int = 0
    heap_live_bytes: int = 0
    cpu_s: float | None = None
    processors: int = 0
    elastic: bool = False
    steady_s: float | None = None
    collecting_cpu_s: float | None = None
    compiling_cpu_s: float | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """The cores that tasks can have, and how many turns may run at once on them."""

    cores: int
    lanes: int


class Stage(StrEnum):
    """Where a query's turn stands."""

    WAITING = "waiting"
    DATA = "data batch"
    SWEEP = "sweep batch"
    PAUSED = "paused"
    UNGATED = "not gated"


@dataclass(frozen=True, slots=True)
class QueryView:
    """One query as a policy sees it.

    swm_wall_ts is when the watermark that sweeps the next window is expected to be ingestible, swm_sigma_s how
    unsure that is, and swm_sure_wall_ts the same at the configured confidence. For a query without windows these
    stand for its target: the wall time by which its oldest waiting row should have been taken. sweep_pending says that
    one more batch would emit a window that ended at pending_end_event_ts; window_end_event_ts is the one after it.
    downstream names the queries that read what this one writes. Where they wait for windows and this one has none, the
    window is theirs, as far as they were heard; downstream_cost_s is what they will still cost. freeable_bytes is the
    memory that a turn now would give back: state that its sweep evicts, or, in an engine that holds queued rows, what
    they shrink to (Klink's p_k^q).
    batches is how many of its batches were seen: what only a run can change stands while it does.
    """

    key: str
    name: str
    stage: Stage
    eligible: bool
    waiting_since_wall_ts: float
    last_turn_wall_ts: float
    window_end_event_ts: float | None
    swm_wall_ts: float
    swm_sigma_s: float
    swm_sure_wall_ts: float
    batch_cost_s: float
    row_cost_s: float
    sweep_cost_s: float
    rows_per_s: float
    backlog_rows: float
    offsets_wall_ts: float = 0.0
    batches: int = 0
    sweep_pending: bool = False
    pending_end_event_ts: float | None = None
    selectivity: float = 1.0
    state_bytes: int = 0
    freeable_bytes: float = 0.0
    downstream: tuple[str, ...] = ()
    downstream_cost_s: float = 0.0
    slide_s: float | None = None
    awaited: bool = False
    priority_class: int = 0
    deadline_s: float | None = None

    @property
    def windowed(self) -> bool:
        return self.window_end_event_ts is not None

    @property
    def turn_cost_s(self) -> float:
        """Cost of getting all that waits out: (a + b·rows), a again for the sweep, and what is chained behind it."""
        return self.batch_cost_s + self.row_cost_s * self.backlog_rows + self.sweep_cost_s + self.downstream_cost_s


@dataclass(frozen=True, slots=True)
class Memory:
    """What the queries hold after collection, and how much there is."""

    used_bytes: float
    max_bytes: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All queries at one instant, in a fixed order (by key).

    `metrics` has a column for each metric that the policy declared in `needs`, with a value for each query in order.
    """

    wall_ts: float
    queries: tuple[QueryView, ...]
    lanes: int
    lanes_free: int
    cores: int
    metrics: Mapping[str, Sequence[float]] = field(default_factory=dict)
    memory: Memory | None = None


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A policy's word on one query: start it now or not, how urgent it is (less is sooner), and why.

    wake_wall_ts says when the policy wants to be asked again if nothing happens before; sweep=False lets the
    sweep of this turn ride with a later batch; lane is the only lane that may take it (Haren's f), counted from 0;
    batches is how many data batches the turn may have; freeing says that it should run for memory's sake.

    A struct rather than a dataclass, because every decision makes one for each query: it takes a tenth of the time, and
    the garbage collector, whose pauses are the longest part of a long decision, does not count it.
    """

    key: str
    start: bool
    urgency: float
    reason: str
    wake_wall_ts: float | None = None
    sweep: bool = True
    lane: int | None = None
    batches: int = 1
    freeing: bool = False

    def but(self, **changes: object) -> Choice:
        """The same choice with some words changed."""
        return msgspec.structs.replace(self, **changes)


class Policy(Protocol):
    """Decides which waiting queries should get a turn. Must not keep queries it was not told about.

    `enforces` is False for a policy that only watches. A policy may declare `needs`, a tuple of metric names that it
    wants to find in the snapshot; `period_s`, to be asked no more often than that; and `max_wait_s`, a longest wait
    of its own.
    """

    name: str
    enforces: bool

    def decide(self, snapshot: Snapshot) -> list[Choice]: ...


@dataclass(frozen=True, slots=True)
class Grant:
    """A turn, or the sweep that completes one, for the wait it answers."""

    key: str
    wait_no: int
    stage: Stage
    reason: str


@dataclass(frozen=True, slots=True)
class Commands:
    """What a driver is asked to enact. `freeing` are the queries that should run for memory's sake."""

    grants: tuple[Grant, ...] = ()
    urgencies: dict[str, float] = field(default_factory=dict)
    freeing: frozenset[str] = frozenset()
    enforce: bool = True
    wake_after_s: float = 0.5
