"""RIoTBench's ETL on Spark: messages are taken apart, cleaned, put together again, and annotated.

A query from the message to its interpolated readings, and one from there to the annotated message: Spark does not chain
two states of this kind in one query. A third one keeps what cannot be read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slackwater.workloads.finite import Stage
from slackwater.workloads.keyed import followed
from slackwater.workloads.riot import oracle, senml
from slackwater.workloads.riot.parse import REJECTS, in_range, readings, rejects
from slackwater.workloads.riot.senml import KINDS, SENSORS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from slackwater.workloads.finite import Answers, Frames, Rows

MEAN_OF = 5

INTERPOLATED = "message_id BIGINT, sensor_id STRING, at_ms BIGINT, kind STRING, value DOUBLE, filled BOOLEAN"
JOINED = (
    "message_id BIGINT, sensor_id STRING, at_ms BIGINT, "
    + ", ".join(f"{kind.name} DOUBLE" for kind in KINDS)
    + ", filled BIGINT"
)
ANNOTATED = f"{JOINED}, place STRING, owner STRING"


def interpolated(messages: DataFrame) -> DataFrame:
    """Readings, cleaned; NULL ones hold the mean of the sensor's last five of that kind, if it had any."""
    clean = in_range(readings(messages))
    return followed(clean, ("sensor_id", "kind"), ("at_ms", "message_id"), interpolate, INTERPOLATED)


def interpolate(last: list[float] | None, rows: Sequence[Any]) -> tuple[list[float], list[tuple[Any, ...]]]:
    """`last` are the newest values that were measured, the oldest first."""
    last, found = list(last or ()), []
    for row in rows:
        value, filled = row.value, math.isnan(row.value)
        if filled:
            value = math.fsum(last) / len(last) if last else None
        else:
            last = [*last, value][-MEAN_OF:]
        found.append((row.message_id, row.sensor_id, row.at_ms, row.kind, value, filled and value is not None))
    return last, found


def annotated(rows: DataFrame) -> DataFrame:
    """The five readings of each message in one row, with what is known of its sensor."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    known = ", ".join(f"('{sensor.sensor_id}', '{sensor.place}', '{sensor.owner}')" for sensor in SENSORS)
    registry = rows.sparkSession.sql(f"SELECT * FROM VALUES {known} AS r(sensor_id, place, owner)")  # noqa: S608
    columns = [column.split()[0] for column in ANNOTATED.split(", ")]
    return joined(rows).join(F.broadcast(registry), "sensor_id", "left").select(*columns)


def joined(rows: DataFrame) -> DataFrame:
    """The five readings of each message in one row, as soon as all are there."""
    return followed(rows, ("message_id",), ("kind",), join, JOINED)


def join(seen: dict[str, Any] | None, rows: Sequence[Any]) -> tuple[dict[str, Any] | None, list[tuple[Any, ...]]]:
    """`seen` has, by kind, the value and whether it was filled in."""
    seen = dict(seen or {})
    seen |= {row.kind: [None if math.isnan(row.value) else row.value, bool(row.filled)] for row in rows}
    if len(seen) < len(KINDS):
        return seen, []
    values = [seen[kind.name][0] for kind in KINDS]
    filled = sum(of_kind[1] for of_kind in seen.values())
    return None, [(rows[0].message_id, rows[0].sensor_id, rows[0].at_ms, *values, filled)]


def _interpolated(frames: Frames) -> DataFrame:
    return interpolated(frames["messages"])


def _annotated(frames: Frames) -> DataFrame:
    return annotated(frames["interpolated"])


def _rejects(frames: Frames) -> DataFrame:
    return rejects(frames["messages"])


@dataclass(frozen=True)
class RiotEtl:
    """Every row of every answer is exact."""

    name: str = "riot-etl"
    about: str = "RIoTBench ETL: parse, range and Bloom filter, interpolate, join, annotate"
    outputs: tuple[str, ...] = ("annotated", "rejects")

    @property
    def tables(self) -> Mapping[str, str]:
        return senml.TABLES

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (
            Stage("interpolated", ("messages",), _interpolated, INTERPOLATED),
            Stage("annotated", ("interpolated",), _annotated, ANNOTATED, keys=("message_id",)),
            Stage("rejects", ("messages",), _rejects, REJECTS, keys=("message_id",)),
        )

    def generate(self, seed: int, size: int) -> Rows:
        return {"messages": senml.messages(seed, size)}

    def closing(self, rows: Rows) -> Rows:
        """Nothing waits for a watermark."""
        return dict.fromkeys(rows, ())

    def expected(self, rows: Rows) -> Answers:
        return oracle.etl(rows["messages"])
