"""What an attached application tells of itself at `GET /api/status`: one JSON, the same for people and for programs."""

from __future__ import annotations

import msgspec

FORMAT = 1


class QueryOverview(msgspec.Struct, frozen=True, kw_only=True):
    """One query: what the scheduler knows of it, in the metric catalogue's units. Times that are not known are null.

    stage: "waiting", "data batch", "sweep batch", "paused" or "not gated".
    slack_low_s, slack_high_s: between which its slack lies, with the confidence that the engine works with.
    window_end_ts: the end of the window that leaves next (event time); swm_wall_ts is when the watermark that sweeps it
    is expected to be ingestible, swm_low_wall_ts and swm_high_wall_ts between which times.
    input_lags_s: for each watermarked input, how far its largest event time was behind the wall clock; the one furthest
    behind holds the watermark back.
    lane, running_since_wall_ts: of the turn that it has now; null: it has none.
    dropped_rows: rows that Spark dropped as too late, as far as its state operators tell.
    """

    key: str
    name: str
    query_id: str = ""
    stage: str
    reason: str
    priority_class: int
    batches: int
    slack_s: float | None
    slack_low_s: float | None = None
    slack_high_s: float | None = None
    watermark_lag_s: float | None
    window_end_ts: float | None = None
    swm_wall_ts: float | None = None
    swm_low_wall_ts: float | None = None
    swm_high_wall_ts: float | None = None
    last_latency_s: float | None
    waiting_since_wall_ts: float | None = None
    last_turn_wall_ts: float | None = None
    last_batch_wall_ts: float | None = None
    lane: int | None = None
    running_since_wall_ts: float | None = None
    backlog_rows: float
    head_age_s: float
    rows_per_s: float
    row_cost_s: float
    batch_cost_s: float
    sweep_cost_s: float
    selectivity: float
    state_bytes: int
    state_rows: int = 0
    dropped_rows: int = 0
    input_lags_s: tuple[float | None, ...] = ()
    downstream: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: str | None = None
    ui_url: str | None = None


class MemoryOverview(msgspec.Struct, frozen=True, kw_only=True):
    """The heap of Spark's driver. `bound_bytes` is where the policy lets memory rule; null: it does not look."""

    used_bytes: float
    live_bytes: float
    max_bytes: float
    bound_bytes: float | None
    rules: bool
    cycles: int


class SchedulerOverview(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler does and costs. gates_open: it is not in charge, and queries follow their own triggers.

    enforces: False under a policy that only watches, where they do so, too.
    """

    gates_open: bool
    gates_opened: int
    decisions: int
    decision_ms_p99: float
    cpu_s: float
    last_decision_wall_ts: float
    enforces: bool = True


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """An application. pids are those of the host's process namespace that the application itself sees.

    parameters: the policy's, by name. told: what other parts of the application tell of themselves, by their names
    (`late`: windows that take late rows).
    """

    format: int = FORMAT
    version: str
    application_id: str
    name: str
    master: str
    ui_url: str | None
    python_pid: int
    jvm_pid: int
    policy: str
    parameters: dict[str, str | float | int | bool | None] = {}
    cores: int
    lanes: int
    wall_ts: float
    memory: MemoryOverview | None = None
    scheduler: SchedulerOverview | None = None
    queries: tuple[QueryOverview, ...] = ()
    told: dict[str, list[dict[str, str | float | int | bool | None]]] = {}
