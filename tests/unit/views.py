"""Queries and snapshots as policies see them, for tests of policies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slackwater.core.model import QueryView, Snapshot, Stage
from slackwater.metrics.catalogue import CATALOGUE, OFFERED
from slackwater.metrics.graph import MetricProvider

NOW = 1_200_000.0


def calm(key: str, **changes: Any) -> QueryView:
    """A query that waits at its gate, ten seconds of a window before it, cheap, with nothing urgent."""
    view = QueryView(
        key=key,
        name=key,
        stage=Stage.WAITING,
        eligible=True,
        waiting_since_wall_ts=NOW - 1,
        last_turn_wall_ts=NOW - 1,
        window_end_event_ts=NOW + 10,
        swm_wall_ts=NOW + 11,
        swm_sigma_s=0.1,
        swm_sure_wall_ts=NOW + 11.2,
        batch_cost_s=0.3,
        row_cost_s=0.0,
        sweep_cost_s=0.3,
        rows_per_s=1000.0,
        backlog_rows=1000.0,
        offsets_wall_ts=NOW - 1,
    )
    return replace(view, **changes)


def overdue(key: str, by_s: float = 1.0, **changes: Any) -> QueryView:
    """A query whose watermark should have been readable for a while."""
    sure = NOW - by_s
    due = {"window_end_event_ts": sure - 1.2, "swm_wall_ts": sure - 0.2, "swm_sure_wall_ts": sure}
    return calm(key, **(due | changes))


def measured(snapshot: Snapshot) -> Snapshot:
    """The snapshot with every metric that there is."""
    provider = MetricProvider(CATALOGUE, OFFERED, driver="test")
    return replace(snapshot, metrics=provider(snapshot, [*OFFERED, *(metric.name for metric in CATALOGUE)]))
