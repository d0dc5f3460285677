"""What an attached application tells others of itself, from what the scheduler knew at its last decision."""

from __future__ import annotations

import logging
import math
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slackwater._version import __version__
from slackwater.core.model import Stage
from slackwater.drivers.spark.sessions import tellers
from slackwater.endpoint.overview import MemoryOverview, Overview, QueryOverview, SchedulerOverview
from slackwater.policies.assembly import parameters_of

if TYPE_CHECKING:
    from slackwater.core.engine import Engine
    from slackwater.core.model import QueryView, Report
    from slackwater.drivers.spark.handle import SchedulerStats
    from slackwater.drivers.spark.sessions import Plain

log = logging.getLogger("slackwater")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the application is, for as long as it lives."""

    application_id: str
    name: str
    master: str
    ui_url: str | None
    jvm_pid: int


def identity_of(spark: Any) -> Identity:
    context = spark.sparkContext
    return Identity(
        application_id=context.applicationId,
        name=context.appName,
        master=context.master,
        ui_url=context.uiWebUrl,
        jvm_pid=int(spark._jvm.java.lang.ProcessHandle.current().pid()),  # noqa: SLF001 - PySpark has no public door
    )


def overview(identity: Identity, engine: Engine, report: Report | None, stats: SchedulerStats) -> Overview:
    """The application now. Asks nobody: a reader never holds the scheduler, nor the JVM."""
    now = time.time()
    policy = engine.policy
    return Overview(
        version=__version__,
        application_id=identity.application_id,
        name=identity.name,
        master=identity.master,
        ui_url=identity.ui_url,
        python_pid=os.getpid(),
        jvm_pid=identity.jvm_pid,
        policy=policy.name,
        parameters=parameters_of(policy),
        cores=engine.capacity.cores,
        lanes=engine.capacity.lanes,
        wall_ts=now,
        memory=_memory(engine, report),
        scheduler=SchedulerOverview(
            gates_open=report.gates_open if report is not None else True,
            gates_opened=stats.gates_opened,
            decisions=stats.decisions,
            decision_ms_p99=stats.decision_ms_p99,
            cpu_s=stats.cpu_s,
            last_decision_wall_ts=report.wall_ts if report is not None else 0.0,
            enforces=policy.enforces,
        ),
        queries=tuple(
            sorted((_query(identity, engine, view, now) for view in engine.views), key=lambda query: query.name)
        ),
        told=_told(identity.application_id),
    )


def _memory(engine: Engine, report: Report | None) -> MemoryOverview | None:
    if report is None or engine.memory is None:
        return None
    bound = getattr(engine.policy, "memory_bound", None)
    spans = engine.records.ruled
    return MemoryOverview(
        used_bytes=report.heap_used_bytes,
        live_bytes=engine.memory.used_bytes,
        max_bytes=engine.memory.max_bytes,
        bound_bytes=bound * engine.memory.max_bytes if isinstance(bound, float) else None,
        rules=bool(spans) and spans[-1].ended_wall_ts is None,
        cycles=engine.records.ruled_in_all,
    )


def _told(application_id: str) -> dict[str, list[dict[str, Plain]]]:
    """One that fails tells nothing, and harms nobody."""
    out = {}
    for name, teller in tellers(application_id).items():
        try:
            out[name] = teller()
        except Exception as error:
            log.debug("%s could not tell: %s: %s", name, type(error).__name__, error)
    return out


def _query(identity: Identity, engine: Engine, view: QueryView, now: float) -> QueryOverview:
    state = engine.state(view.key)
    end = view.window_end_event_ts
    interval = state.swm_interval(end, engine.settings.confidence) if state is not None and end is not None else None
    low, high = interval or (None, None)
    cost_s = view.turn_cost_s
    batch = state.last_batch if state is not None else None
    turn = state.turn if state is not None else None
    return QueryOverview(
        key=view.key,
        name=view.name,
        query_id=state.facts.query_id if state is not None else "",
        stage=str(view.stage),
        reason=engine.reason(view.key) if view.stage is not Stage.PAUSED else "somebody paused it",
        priority_class=view.priority_class,
        batches=view.batches,
        slack_s=_finite(view.swm_wall_ts - now - cost_s),
        slack_low_s=_finite(low - now - cost_s) if low is not None else None,
        slack_high_s=_finite(high - now - cost_s) if high is not None else None,
        watermark_lag_s=_finite(state.watermark_lag_s(now)) if state is not None else None,
        window_end_ts=end,
        swm_wall_ts=_finite(view.swm_wall_ts),
        swm_low_wall_ts=_finite(low) if low is not None else None,
        swm_high_wall_ts=_finite(high) if high is not None else None,
        last_latency_s=state.last_latency_s if state is not None else None,
        waiting_since_wall_ts=view.waiting_since_wall_ts,
        last_turn_wall_ts=view.last_turn_wall_ts,
        last_batch_wall_ts=batch.ended_wall_ts if batch is not None else None,
        lane=turn.lane if turn is not None else None,
        running_since_wall_ts=turn.granted_wall_ts if turn is not None else None,
        backlog_rows=view.backlog_rows,
        head_age_s=max(0.0, now - view.offsets_wall_ts) if view.offsets_wall_ts > 0 else 0.0,
        rows_per_s=view.rows_per_s,
        row_cost_s=view.row_cost_s,
        batch_cost_s=view.batch_cost_s,
        sweep_cost_s=view.sweep_cost_s,
        selectivity=view.selectivity,
        state_bytes=view.state_bytes,
        state_rows=batch.state_rows if batch is not None else 0,
        dropped_rows=state.dropped_rows if state is not None else 0,
        input_lags_s=state.input_lags_s if state is not None else (),
        downstream=view.downstream,
        reads=state.reads if state is not None else (),
        writes=state.writes if state is not None else None,
        ui_url=f"{identity.ui_url}/StreamingQuery/statistics/?id={view.key}" if identity.ui_url else None,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
