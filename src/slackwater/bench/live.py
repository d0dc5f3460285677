"""Where each query of a run stands, for whoever watches it. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from slackwater.bench.measure import next_end_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slackwater.bench.measure import Batch
    from slackwater.workloads.base import QuerySpec

_LIVE_BATCHES = 120


def live_row(spec: QuerySpec, batches: Sequence[Batch], said: Any, now_ms: int) -> dict[str, Any]:
    """The scheduler's word on state and slack (`said`, its status of the query, if any), Spark's own on the rest."""
    moved = [batch for batch in batches[-_LIVE_BATCHES:] if batch.watermark_ms]
    latency_s = None
    for before, after in pairwise(moved):
        end_ms = next_end_ms(spec, before.watermark_ms or 0)
        if end_ms <= (after.watermark_ms or 0):
            latency_s = (after.committed_ms - end_ms) / 1000
    watermark_ms = moved[-1].watermark_ms if moved else None
    return {
        "name": spec.name,
        "state": said.stage if said is not None else "as soon as possible",
        "slack_s": said.slack_s if said is not None else None,
        "watermark_lag_s": None if watermark_ms is None else (now_ms - watermark_ms) / 1000,
        "latency_s": latency_s,
        "batches": len(batches),
    }
