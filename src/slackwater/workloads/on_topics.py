"""The workloads of `slackwater bench` over Kafka: the same queries, reading text from topics that a producer fills.

Each stream of a query has a topic of its own, and each topic as many partitions as the source of a query.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from slackwater.errors import unknown_name
from slackwater.workloads.arrivals import Schedule, first_handed_ms, read_handovers
from slackwater.workloads.linear_road_windows import FEEDS, LinearRoadWindowsOracle, over_reports
from slackwater.workloads.nyt import NytOracle, over_trips
from slackwater.workloads.nyt_trips import parsed as parsed_trips
from slackwater.workloads.topic_bodies import linear_road_bodies, nyt_bodies, ysb_bodies
from slackwater.workloads.ysb import YsbOracle, count_views, enriched, parsed_events

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from slackwater.workloads.arrivals import Delays, Handovers
    from slackwater.workloads.base import Oracle, PayloadKind, QuerySpec
    from slackwater.workloads.nyt_trips import Numbers
    from slackwater.workloads.rate_oracle import Kept, Offered


@dataclass(frozen=True)
class TopicForm:
    """How one workload lives on topics.

    bodies: the text of rows, from their numbers and event times. query: over frames of one column `body`, one for each
    stream. oracle: from each stream's creation time, and who tells when its rows were there.
    """

    payload: PayloadKind
    streams: int
    bodies: Callable[[Numbers, Numbers, QuerySpec], list[bytes]]
    query: Callable[[SparkSession, Sequence[DataFrame], QuerySpec], DataFrame]
    oracle: Callable[[QuerySpec, Sequence[int], Sequence[Offered]], Oracle]

    def rate(self, spec: QuerySpec) -> int:
        """Rows per second of one topic."""
        return spec.rate // self.streams


@dataclass(frozen=True)
class OnTopics:
    """A workload whose rows come from a broker; `log` is the producer's, and `delays` are those of its network."""

    form: TopicForm
    servers: str
    log: Path
    delays: Delays | None
    name: str
    options: dict[str, str] = field(default_factory=dict)

    def build(self, spark: SparkSession, spec: QuerySpec) -> DataFrame:
        frames = [topic_bodies(spark, self.servers, topic, self.options) for topic in topics_of(self.form, spec)]
        return self.form.query(spark, frames, spec)

    def oracle(self, spec: QuerySpec, checkpoint: Path) -> Oracle:
        del checkpoint  # the producer's log knows when the stream began
        found = [read_handovers(self.log, topic) for topic in topics_of(self.form, spec)]
        offered: list[Offered] = [
            partial(_handed_ms, schedule=self.schedule(spec, place, one.creation_ms), handovers=one)
            for place, one in enumerate(found)
        ]
        return self.form.oracle(spec, [one.creation_ms for one in found], offered)

    def schedule(self, spec: QuerySpec, stream: int, creation_ms: int) -> Schedule:
        return Schedule(self.form.rate(spec), stream_seed(spec, stream), creation_ms, self.delays)


def _handed_ms(deadline_ms: int, kept: Kept, *, schedule: Schedule, handovers: Handovers) -> int:
    return first_handed_ms(deadline_ms, schedule, handovers, kept)


def topics_of(form: TopicForm, spec: QuerySpec) -> list[str]:
    return [spec.name if form.streams == 1 else f"{spec.name}_{stream}" for stream in range(form.streams)]


def stream_seed(spec: QuerySpec, stream: int) -> int:
    """Of a stream's network: its rows are the spec's own."""
    return 16 * spec.seed + stream


def topic_bodies(spark: SparkSession, servers: str, topic: str, options: dict[str, str]) -> DataFrame:
    """A topic's rows as text in one column, from its beginning."""
    return (
        spark.readStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest", **options})
        .load()
        .selectExpr("CAST(value AS STRING) AS body")
    )


def _ysb(spark: SparkSession, frames: Sequence[DataFrame], spec: QuerySpec) -> DataFrame:
    return count_views(enriched(spark, parsed_events(frames[0])), spec)


def _nyt(_: SparkSession, frames: Sequence[DataFrame], spec: QuerySpec) -> DataFrame:
    return over_trips(parsed_trips(frames[0]), spec)


def _linear_road(_: SparkSession, frames: Sequence[DataFrame], spec: QuerySpec) -> DataFrame:
    return over_reports([_reports(frame) for frame in frames], spec)


def _reports(lines: DataFrame) -> DataFrame:
    names = ("car", "speed", "xway", "dir", "segment", "place")
    fields = (f"coalesce(CAST(fields[{place}] AS BIGINT), 0L) AS {name}" for place, name in enumerate(names, start=1))
    return lines.selectExpr("split(body, ',') AS fields").selectExpr(
        "timestamp_millis(CAST(fields[0] AS BIGINT)) AS event_time", *fields
    )


def _ysb_oracle(spec: QuerySpec, created_ms: Sequence[int], offered: Sequence[Offered]) -> Oracle:
    return YsbOracle(spec, created_ms[0], offered[0])


def _nyt_oracle(spec: QuerySpec, created_ms: Sequence[int], offered: Sequence[Offered]) -> Oracle:
    return NytOracle(spec, created_ms[0], offered=offered[0])


FORMS = {
    "ysb": TopicForm("json", 1, ysb_bodies, _ysb, _ysb_oracle),
    "nyt": TopicForm("csv", 1, nyt_bodies, _nyt, _nyt_oracle),
    "linear-road": TopicForm("csv", FEEDS, linear_road_bodies, _linear_road, LinearRoadWindowsOracle),
}
FORMS["linear-road-stressed"] = FORMS["linear-road"]


def topic_form(workload: str) -> TopicForm:
    if workload not in FORMS:
        raise unknown_name("workload on Kafka", workload, FORMS)
    return FORMS[workload]
