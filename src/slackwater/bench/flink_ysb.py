"""The Yahoo! streaming benchmark as a Flink job: the same events, windows and oracle as `workloads/ysb.py` on Spark.

Source → views only → join with the table of ads → count per campaign and window → print. Chaining is off unless asked
for, as in Lachesis 6: every operator is a thread of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from slackwater.workloads.rate_source import MASK31, SEED_STEP
from slackwater.workloads.ysb import ADS, ADS_PER_CAMPAIGN

if TYPE_CHECKING:
    from slackwater.bench.flink_cluster import FlinkCluster
    from slackwater.workloads.base import QuerySpec

SOURCE_CLASS: Final = "slackwater.bench.PacedEvents"

_CREATED = re.compile(r"^created (?P<name>\S+) (?P<ms>\d+)$", re.MULTILINE)
_RESULT = re.compile(
    r"^(?P<name>\S+)> \+I\[(?P<start>\S+), (?P<campaign>\d+), (?P<count>\d+), (?P<written>\S+)\]$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Emitted:
    """A result row, and when it reached the sink."""

    window_start_ms: int
    campaign: int
    count: int
    written_ms: int


@dataclass(frozen=True, slots=True)
class Printed:
    """What a job has printed: when its source began, and its results."""

    created_ms: int | None
    rows: tuple[Emitted, ...]


def java_sources() -> dict[str, str]:
    return {SOURCE_CLASS: files(__package__).joinpath("PacedEvents.java").read_text("utf-8")}


def submit(cluster: FlinkCluster, spec: QuerySpec, *, chaining: bool = False) -> str:
    """Start a query; returns the job's id."""
    settings = {
        "pipeline.operator-chaining.enabled": str(chaining).lower(),
        "pipeline.auto-watermark-interval": "50 ms",
    }
    with cluster.submitting(spec.name):
        environment = cluster.environment(spec.name, settings)
        tables = cluster.jvm.org.apache.flink.table.api.bridge.java.StreamTableEnvironment.create(environment)
        tables.createTemporaryView("events", *_events(cluster, environment, spec))
        *needed, query = statements(spec)
        for statement in needed:
            tables.executeSql(statement)
        return str(tables.executeSql(query).getJobClient().get().getJobID().toString())


def _events(cluster: FlinkCluster, environment: Any, spec: QuerySpec) -> tuple[Any, Any]:
    """The stream, and what it is as a table."""
    jvm = cluster.jvm
    types = jvm.org.apache.flink.api.common.typeinfo.Types
    row = types.ROW_NAMED(
        cluster.array(jvm.java.lang.String, ["ad_id", "event_type", "event_time"]),
        cluster.array(
            jvm.org.apache.flink.api.common.typeinfo.TypeInformation, [types.LONG, types.STRING, types.INSTANT]
        ),
    )
    source = jvm.slackwater.bench.PacedEvents(spec.name, spec.rate, (spec.seed * SEED_STEP) & MASK31)
    schema = (
        jvm.org.apache.flink.table.api.Schema.newBuilder()
        .column("ad_id", "BIGINT")
        .column("event_type", "STRING")
        .column("event_time", "TIMESTAMP_LTZ(3)")
        .watermark("event_time", f"event_time - {_interval(spec.delay_ms)}")
        .build()
    )
    return environment.addSource(source, f"{spec.name} events", row), schema


def statements(spec: QuerySpec) -> list[str]:
    """Flink SQL: the tables, and at last the query, which reads `events`."""
    ads = f"""CREATE TABLE ads (
        ad_id BIGINT, campaign_id AS ad_id / {ADS_PER_CAMPAIGN}, since AS TO_TIMESTAMP_LTZ(0, 3),
        WATERMARK FOR since AS since, PRIMARY KEY (ad_id) NOT ENFORCED
      ) WITH (
        'connector' = 'datagen', 'fields.ad_id.kind' = 'sequence',
        'fields.ad_id.start' = '0', 'fields.ad_id.end' = '{ADS - 1}'
      )"""
    results = f"""CREATE TABLE results (
        window_start TIMESTAMP_LTZ(3), campaign_id BIGINT, seen BIGINT, written TIMESTAMP_LTZ(3)
      ) WITH ('connector' = 'print', 'print-identifier' = '{spec.name}')"""
    # The ads are there for all times, so the join waits for the events' watermark only.
    joined = """CREATE TEMPORARY VIEW joined AS
      SELECT v.event_time, ads.campaign_id
      FROM (SELECT ad_id, event_time FROM events WHERE event_type = 'view') AS v
      JOIN ads FOR SYSTEM_TIME AS OF v.event_time ON v.ad_id = ads.ad_id"""
    size, phase = _interval(spec.window_ms), _interval(spec.phase_ms)
    window = f"TUMBLE(TABLE joined, DESCRIPTOR(event_time), {size}, {phase})"
    query = f"""INSERT INTO results
      SELECT window_start, campaign_id, seen, CURRENT_TIMESTAMP FROM (
        SELECT window_start, window_end, campaign_id, COUNT(*) AS seen FROM TABLE({window})
        GROUP BY window_start, window_end, campaign_id)"""  # noqa: S608  # numbers and a name of ours
    return [ads, results, joined, query]


def read_output(text: str, name: str) -> Printed:
    """What one job of a TaskManager printed so far; a last line that is not whole yet is left out."""
    created = [int(found["ms"]) for found in _CREATED.finditer(text) if found["name"] == name]
    rows = tuple(
        Emitted(_ms(found["start"]), int(found["campaign"]), int(found["count"]), _ms(found["written"]))
        for found in _RESULT.finditer(text)
        if found["name"] == name
    )
    return Printed(created[-1] if created else None, rows)


def _interval(ms: int) -> str:
    minutes, ms_left = divmod(ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"INTERVAL '{hours:02d}:{minutes:02d}:{ms_left // 1000:02d}.{ms_left % 1000:03d}' HOUR TO SECOND"


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
