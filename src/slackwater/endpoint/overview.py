"""What an attached application tells of itself at `GET /api/status`: one JSON, the same for people and for programs."""

from __future__ import annotations

import msgspec

FORMAT = 1


class QueryOverview(msgspec.Struct, frozen=True, kw_only=True):
    """One query: what the scheduler knows of it, in the metric catalogue's units. Times that are not known are null."""

    key: str
    name: str
    stage: str
    reason: str
    priority_class: int
    batches: int
    slack_s: float | None
    watermark_lag_s: float | None
    last_latency_s: float | None
    backlog_rows: float
    head_age_s: float
    rows_per_s: float
    row_cost_s: float
    batch_cost_s: float
    sweep_cost_s: float
    selectivity: float
    state_bytes: int
    downstream: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: str | None = None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """An application. pids are those of the host's process namespace that the application itself sees."""

    format: int = FORMAT
    version: str
    application_id: str
    name: str
    master: str
    ui_url: str | None
    python_pid: int
    jvm_pid: int
    policy: str
    cores: int
    lanes: int
    wall_ts: float
    queries: tuple[QueryOverview, ...] = ()
