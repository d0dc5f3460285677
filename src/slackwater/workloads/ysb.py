"""The Yahoo! streaming benchmark: count the views of each campaign per window.

An event is a function of its running number and the query's seed, so that the oracle can repeat it in numpy.
Its number is mixed into 31 bits `h` (`rate_source.py`), and the digits of `h` in mixed radix are its fields:
ad_id = h % 1000, event_type = h / 1000 % 3, user_id = h / 3000 % 100, page_id = h / 300 000 % 100,
ad_type = h / 30 000 000 % 5.

Generator and query (Spark) and oracle (numpy) share these constants and no code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from slackwater.workloads.base import Phases, QuerySpec, Window, query_specs
from slackwater.workloads.rate_oracle import due_windows, numbers_between, rate_offers
from slackwater.workloads.rate_source import mixed, rate_rows, read_creation_ms, with_mixed

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from slackwater.workloads.base import Payload
    from slackwater.workloads.rate_oracle import Offered

PayloadKind = Literal["columns", "json", "kept"]

CAMPAIGNS = 100
ADS_PER_CAMPAIGN = 10
ADS = CAMPAIGNS * ADS_PER_CAMPAIGN
EVENT_TYPES = ("view", "click", "purchase")

EVENT_SCHEMA = (
    "user_id BIGINT, page_id BIGINT, ad_id BIGINT, ad_type STRING, event_type STRING, event_time BIGINT, "
    "ip_address STRING"
)


@dataclass(frozen=True)
class Ysb:
    """`payload="json"` makes each event a JSON string that the query parses; "columns" leaves that out.

    "kept" gives each event a body of `body_bytes` that the query keeps until its window leaves: a large state.
    """

    payload: PayloadKind = "columns"
    body_bytes: int = 400
    source_partitions: int = 1
    name: str = "ysb"

    def build(self, spark: SparkSession, spec: QuerySpec) -> DataFrame:
        kept = f"rpad(ad_id, {self.body_bytes}, 'x')" if self.payload == "kept" else None
        return count_views(enriched(spark, self.events(spark, spec)), spec, kept)

    def oracle(self, spec: QuerySpec, checkpoint: Path) -> YsbOracle:
        return YsbOracle(spec, creation_ms=read_creation_ms(checkpoint))

    def events(self, spark: SparkSession, spec: QuerySpec) -> DataFrame:
        """The events as a query reads them, parsed where they come as JSON."""
        numbers = self._numbers(spark, spec)
        return parsed_events(_json_events(numbers)) if self.payload == "json" else _column_events(numbers)

    def _numbers(self, spark: SparkSession, spec: QuerySpec) -> DataFrame:
        """The rate source's rows with the event's number mixed into `h`."""
        source = rate_rows(spark, spec.rate, self.source_partitions)
        return with_mixed(source, spec.seed, h=("value", 0)).drop("value")


def specs(count: int, *, rate: int, window_s: float, delay_s: float, phases: Phases, seed: int) -> list[QuerySpec]:
    """`count` queries that differ in their data and, when spread, in where their windows begin."""
    return query_specs("ysb", count, rate=rate, window_s=window_s, delay_s=delay_s, phases=phases, seed=seed)


def _column_events(numbers: DataFrame) -> DataFrame:
    return numbers.selectExpr(
        f"h % {ADS} AS ad_id",
        f"elt(CAST(1 + (h div {ADS}) % 3 AS INT), 'view', 'click', 'purchase') AS event_type",
        "timestamp AS event_time",
    )


def _json_events(numbers: DataFrame) -> DataFrame:
    # Not to_json: the optimiser cancels from_json(to_json(x)), and nothing would be parsed.
    return numbers.selectExpr(
        f"""concat(
            '{{"user_id":', (h div 3000) % 100, ',"page_id":', (h div 300000) % 100, ',"ad_id":', h % {ADS},
            ',"ad_type":"', elt(CAST(1 + (h div 30000000) % 5 AS INT), 'banner', 'modal', 'sponsored-search',
                                'mail', 'mobile'),
            '","event_type":"', elt(CAST(1 + (h div {ADS}) % 3 AS INT), 'view', 'click', 'purchase'),
            '","event_time":', unix_millis(timestamp),
            ',"ip_address":"10.', (h div 3000) % 100, '.', (h div 300000) % 100, '.1"}}') AS body"""
    )


def parsed_events(raw: DataFrame) -> DataFrame:
    """The events in JSON texts `body`."""
    return raw.selectExpr(f"from_json(body, '{EVENT_SCHEMA}') AS event").selectExpr(
        "event.ad_id", "event.event_type", "timestamp_millis(event.event_time) AS event_time"
    )


def enriched(spark: SparkSession, events: DataFrame) -> DataFrame:
    """Views only, each with the campaign of its ad."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # Spark's own convention; loaded on use

    # A literal table: broadcasting it needs no Spark job of its own in every batch, as a range would.
    rows = ", ".join(f"({ad}L, {ad // ADS_PER_CAMPAIGN}L)" for ad in range(ADS))
    ads = spark.sql(f"SELECT * FROM VALUES {rows} AS ads(ad_id, campaign_id)")  # noqa: S608  # numbers only
    return events.where("event_type = 'view'").select("ad_id", "event_time").join(F.broadcast(ads), "ad_id")


def count_views(views_seen: DataFrame, spec: QuerySpec, kept: str | None = None) -> DataFrame:
    """`kept` is an expression whose values are collected until the window leaves, and counted then."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    length, slide = f"{spec.window_ms} milliseconds", f"{spec.slide_ms} milliseconds"
    views = F.count("*") if kept is None else F.size(F.collect_list(F.expr(kept)))
    return (
        views_seen.withWatermark("event_time", f"{spec.delay_ms} milliseconds")
        .groupBy(F.window("event_time", length, slide, f"{spec.phase_ms} milliseconds"), "campaign_id")
        .agg(views.cast("long").alias("count"))
        .select(
            F.col("window.start").alias("window_start"),
            "campaign_id",
            "count",
            F.current_timestamp().alias("batch_ts"),
        )
    )


class YsbOracle:
    """The counts that the query must emit, from the definition of the events and the rate source's rule.

    offered: who tells when rows are there, where it is not the rate source.
    """

    def __init__(self, spec: QuerySpec, creation_ms: int, offered: Offered | None = None) -> None:
        self.spec = spec
        self.creation_ms = creation_ms
        self._offered = offered or rate_offers(spec.rate, creation_ms)

    def windows_due(self, from_ms: int, to_ms: int) -> list[Window]:
        """Windows with a view in them whose deadline lies in [from_ms, to_ms)."""
        return [window for window in due_windows(self.spec, from_ms, to_ms) if self.expected(window.start_ms)]

    def expected(self, window_start_ms: int) -> list[Payload]:
        """(campaign_id, views) of one window, sorted; a campaign without views has no row."""
        end_ms = window_start_ms + self.spec.window_ms
        numbers = numbers_between(window_start_ms, end_ms, self.spec.rate, self.creation_ms)
        views = mixed(numbers[self._views(numbers)], self.spec.seed)
        counts = np.bincount((views % ADS) // ADS_PER_CAMPAIGN, minlength=CAMPAIGNS)
        return [(campaign, int(counts[campaign])) for campaign in np.flatnonzero(counts).tolist()]

    def ingestible_ms(self, deadline_ms: int) -> int:
        """When the source first offers a view at or after the deadline: only views move the watermark."""
        return self._offered(deadline_ms, self._views)

    def _views(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        kinds = mixed(numbers, self.spec.seed) // ADS % len(EVENT_TYPES)
        views: NDArray[np.bool_] = kinds == EVENT_TYPES.index("view")
        return views
