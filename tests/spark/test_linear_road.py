"""Linear Road on Spark, against the rules in plain Python."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from slackwater.workloads import linear_road
from slackwater.workloads.linear_road_oracle import Accident, Alert, Toll, judge
from slackwater.workloads.linear_road_traffic import Traffic, write_json, write_parquet

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

TRAFFIC = Traffic(seed=1)


def rows(frame: Any, kind: type) -> list[Any]:
    return sorted((kind(*row) for row in frame.collect()), key=repr)


def test_tolls_alerts_and_accidents_are_those_of_the_rules(spark: Any, tmp_path: Path) -> None:
    reports = TRAFFIC.reports()
    write_parquet(reports, tmp_path / "reports.parquet")
    frame = spark.read.schema(linear_road.SCHEMA).parquet(str(tmp_path / "reports.parquet"))
    expected = judge(reports)
    assert rows(linear_road.tolls(frame), Toll) == sorted(expected.tolls, key=repr)
    assert rows(linear_road.alerts(frame), Alert) == sorted(expected.alerts, key=repr)
    found = rows(linear_road.accidents(linear_road.stops(frame)), Accident)
    assert found == sorted(expected.accidents, key=repr)
    assert any(toll.toll for toll in expected.tolls)
    assert expected.alerts


def test_a_stream_of_reports_gives_the_same_statistics_and_accidents(spark: Any, tmp_path: Path) -> None:
    reports = TRAFFIC.reports()
    folder = tmp_path / "reports"
    folder.mkdir()
    first_wall_ts = time.time() - 1000
    # Three batches, in the order of time; the middle one ends within a minute.
    for place, (from_s, to_s) in enumerate([(0, 200), (200, 410), (410, 10_000)]):
        file = folder / f"{place}.json"
        write_json([report for report in reports if from_s <= report.time < to_s], file)
        os.utime(file, (first_wall_ts + place, first_wall_ts + place))
    stream = spark.readStream.schema(linear_road.SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))
    for name, frame in (
        ("road_statistics", linear_road.statistics(stream)),
        ("road_accidents", linear_road.accident_news(stream)),
    ):
        query = (
            frame.writeStream.format("memory")
            .queryName(name)
            .outputMode("append")
            .option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    whole = sorted(linear_road.statistics(spark.read.schema(linear_road.SCHEMA).json(str(folder))).collect())
    found = sorted(spark.table("road_statistics").collect())
    last = max(row.minute for row in found)
    assert last >= 8
    assert found == [row for row in whole if row.minute <= last]

    expected = judge(reports).accidents
    news = sorted(tuple(row) for row in spark.table("road_accidents").where("until IS NULL").collect())
    assert news == sorted((*accident[:-1], None) for accident in expected)
    over = sorted(tuple(row) for row in spark.table("road_accidents").where("until IS NOT NULL").collect())
    assert over == sorted(tuple(accident) for accident in expected if accident.until is not None)
    assert over
