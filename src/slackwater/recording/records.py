"""What stands in a trace, format 2; docs/trace-format.md says it in words.

Each record is an array whose first element is its kind. Times are seconds since the epoch, to the millisecond; queries
go by small numbers, which a `query` record gives before anything else tells of them.
"""

from __future__ import annotations

from typing import Final

import msgspec

FORMAT: Final = 2
READABLE: Final = (1, 2)  # each added elements at the ends of records

Plain = str | float | int | bool | None


class _Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Arrays, so that a trace says no names over and over; strict, so that a wrong one is never half understood."""


class Head(_Record, frozen=True, tag="head"):
    """The first record. `settings` are the engine's, `session` what of Spark's settings costs latency."""

    wall_ts: float
    version: str
    application: str
    spark: str
    master: str
    policy: str
    enforces: bool
    parameters: dict[str, Plain]
    settings: dict[str, Plain]
    session: dict[str, Plain] = {}


class Query(_Record, frozen=True, tag="query"):
    """A run of a query, before its first batch: what does not change while it lives. Windows: size, slide, offset."""

    number: int
    wall_ts: float
    key: str
    name: str
    query_id: str
    gated: bool
    windows: tuple[tuple[float, float, float], ...]
    input_delays_s: tuple[float, ...]
    watermark_policy: str
    emits_at_sweep: bool
    stateful: bool
    interval_s: float
    target_latency_s: float | None = None
    priority_class: int = 0
    deadline_s: float | None = None


class Input(_Record, frozen=True):
    """A watermarked input of a batch; `delays` as in `core.model.InputMaximum`."""

    delay_s: float
    rows: int
    max_event_ts: float | None = None
    min_event_ts: float | None = None
    delays: tuple[int, float, float, float] | None = None


class Batch(_Record, frozen=True, tag="batch"):
    """A micro-batch that ran. stage: data batch, sweep batch, or "not gated" for one that nobody granted."""

    number: int
    batch_id: int
    offsets_wall_ts: float
    ended_wall_ts: float
    duration_s: float
    rows: int
    watermark_event_ts: float
    inputs: tuple[Input, ...] = ()
    stage: str = ""
    lane: int | None = None
    rows_out: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    dropped_rows: int = 0
    backlog_rows: int | None = None
    limited: bool = False
    evicts_event_ts: float | None = None
    state_partitions: int = 0
    parts_ms: dict[str, int] = {}
    driver_cpu_s: float | None = None

    @property
    def began_wall_ts(self) -> float:
        return self.ended_wall_ts - self.duration_s


class Worked(_Record, frozen=True, tag="worked"):
    """What the tasks of a batch took, told a little after it; several for one batch add up."""

    number: int
    batch_id: int
    cpu_s: float
    run_s: float


class Places(_Record, frozen=True, tag="places"):
    """Where a query reads and writes, from now on."""

    number: int
    reads: tuple[str, ...]
    writes: str | None = None


class Granted(_Record, frozen=True, tag="grant"):
    """A decision: a turn, or the sweep that completes one, and why."""

    wall_ts: float
    number: int
    stage: str
    reason: str


class Host(_Record, frozen=True, tag="host"):
    """Once a second: cores and lanes, the CPU time that Spark's driver process used so far, its heap.

    Since format 2 also what of that CPU time went into collecting garbage and compiling, where that is told.
    """

    wall_ts: float
    cores: int
    lanes: int
    cpu_s: float | None = None
    processors: int = 0
    heap_used_bytes: int = 0
    heap_max_bytes: int = 0
    heap_live_bytes: int = 0
    gates_open: bool = False
    ordinary_tasks: int = 0
    collecting_cpu_s: float | None = None
    compiling_cpu_s: float | None = None


class Learnt(_Record, frozen=True, tag="learnt"):
    """Every ten seconds, for each query: what the scheduler takes it to cost, and what it expects of its stream."""

    wall_ts: float
    number: int
    batch_cost_s: float
    row_cost_s: float
    sweep_cost_s: float
    rows_per_s: float
    backlog_rows: float
    swm_wall_ts: float | None = None
    swm_sigma_s: float | None = None


class Gone(_Record, frozen=True, tag="gone"):
    """A query that is there no more, and why if it failed."""

    wall_ts: float
    number: int
    error: str | None = None


class Switched(_Record, frozen=True, tag="switched"):
    """Another policy from now on."""

    wall_ts: float
    policy: str
    enforces: bool
    parameters: dict[str, Plain]


class Lost(_Record, frozen=True, tag="lost"):
    """The recorder did not keep up: so many batches and grants before this are not in the trace."""

    wall_ts: float
    batches: int
    grants: int


class Cut(_Record, frozen=True, tag="cut"):
    """The trace has reached the size that it may have: nothing after this was recorded."""

    wall_ts: float
    most_bytes: int


class End(_Record, frozen=True, tag="end"):
    """The recording was ended on purpose. A trace without it was cut off: the process was killed, or still runs."""

    wall_ts: float


Record = Head | Query | Batch | Worked | Places | Granted | Host | Learnt | Gone | Switched | Lost | Cut | End
