"""A late query beside the measured ones, for what it takes from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slackwater.workloads.late_events import LateSpec
from slackwater.workloads.late_workloads import LATE_WORKLOADS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from slackwater.bench.model import Beside


def start_beside(spark: SparkSession, beside: Beside, seed: int, scratch: Path) -> Any:
    """A late query whose results are collected and forgotten: what counts is what it takes from the others."""
    from slackwater import late  # noqa: PLC0415  # its dependencies are optional

    workload = LATE_WORKLOADS["average"]
    spec = LateSpec(
        "beside", beside.rate, beside.window_s, beside.past_windows, beside.payload_bytes, seed, bursts=False
    )
    query = (
        late.window(
            workload.events(spark, spec),
            "event_time",
            beside.window_s,
            watermark=1,
            allowed_lateness=beside.window_s * beside.past_windows + 2,
            staleness=beside.staleness,
        )
        .apply(workload.function, workload.schema)
        .start(lambda results, _: results.collect(), scratch / "checkpoints" / "beside", name="beside")
    )
    return late.handle(query)
