"""YSB in two applications: one cleans and enriches events into a folder, the other counts them by windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.workloads.base import started
from slackwater.workloads.ysb import Ysb, count_views, enriched

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from slackwater.workloads.base import QuerySpec, RunningQuery

_SCHEMA = "ad_id BIGINT, event_time TIMESTAMP, campaign_id BIGINT"


def start_enriching(
    spark: SparkSession, workload: Ysb, spec: QuerySpec, folder: Path, checkpoint: Path, interval_ms: int | None
) -> RunningQuery:
    """Events that are parsed, reduced to views and joined with their campaigns, as Parquet files."""
    views = enriched(spark, workload.events(spark, spec)).select("ad_id", "event_time", "campaign_id")
    writer = views.writeStream.format("parquet").queryName(f"enrich_{spec.name}").option("path", str(folder))
    return started(writer, spec, checkpoint, interval_ms)


def windows(spark: SparkSession, spec: QuerySpec, folder: Path) -> DataFrame:
    """Views per campaign and window, from the files of that folder."""
    return count_views(spark.readStream.schema(_SCHEMA).parquet(str(folder)), spec)
