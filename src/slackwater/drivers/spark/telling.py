"""What an attached application tells others of itself, from what the scheduler knew at its last decision."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slackwater._version import __version__
from slackwater.endpoint.overview import Overview, QueryOverview

if TYPE_CHECKING:
    from slackwater.core.engine import Engine
    from slackwater.core.model import QueryView


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


def overview(identity: Identity, engine: Engine) -> Overview:
    """The application now. Asks nobody: a reader never holds the scheduler, nor the JVM."""
    now = time.time()
    return Overview(
        version=__version__,
        application_id=identity.application_id,
        name=identity.name,
        master=identity.master,
        ui_url=identity.ui_url,
        python_pid=os.getpid(),
        jvm_pid=identity.jvm_pid,
        policy=engine.policy.name,
        cores=engine.capacity.cores,
        lanes=engine.capacity.lanes,
        wall_ts=now,
        queries=tuple(sorted((_query(engine, view, now) for view in engine.views), key=lambda query: query.name)),
    )


def _query(engine: Engine, view: QueryView, now: float) -> QueryOverview:
    state = engine.state(view.key)
    return QueryOverview(
        key=view.key,
        name=view.name,
        stage=str(view.stage),
        reason=engine.reason(view.key),
        priority_class=view.priority_class,
        batches=view.batches,
        slack_s=_finite(view.swm_wall_ts - now - view.turn_cost_s),
        watermark_lag_s=_finite(state.watermark_lag_s(now)) if state is not None else None,
        last_latency_s=state.last_latency_s if state is not None else None,
        backlog_rows=view.backlog_rows,
        head_age_s=max(0.0, now - view.offsets_wall_ts) if view.offsets_wall_ts > 0 else 0.0,
        rows_per_s=view.rows_per_s,
        row_cost_s=view.row_cost_s,
        batch_cost_s=view.batch_cost_s,
        sweep_cost_s=view.sweep_cost_s,
        selectivity=view.selectivity,
        state_bytes=view.state_bytes,
        downstream=view.downstream,
        reads=state.reads if state is not None else (),
        writes=state.writes if state is not None else None,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
