"""What Spark makes of a late workload's generator and function is what the oracle says, row for row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from slackwater.workloads.late_events import LateSpec
from slackwater.workloads.late_workloads import LATE_WORKLOADS
from slackwater.workloads.rate_source import read_creation_ms
from tests.spark.support import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slackwater.workloads.late_events import LateWorkload

pytestmark = pytest.mark.spark

CREATED_MS = 1_700_000_000_123


def numbered(spark: Any, spec: LateSpec, numbers: range) -> Any:
    """The rate source's rows, all there at once."""
    within = f"CAST(floor((id % {spec.rate}) * (1000D / {spec.rate}) + 0.5D) AS BIGINT)"
    return spark.range(numbers.start, numbers.stop, 1, 2).selectExpr(
        "id AS value", f"timestamp_millis({CREATED_MS} + id div {spec.rate} * 1000 + {within}) AS timestamp"
    )


def with_window_start(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def of_group(key: Any, rows: Any) -> Any:
        return function(rows).assign(start=key[0]["start"])

    return of_group


def windows(workload: LateWorkload, spec: LateSpec, events: Any) -> dict[int, list[tuple[Any, ...]]]:
    window = F.window("event_time", f"{spec.window_ms} milliseconds", f"{spec.slide_ms} milliseconds")
    rows = (
        events.groupBy(window, *workload.keys)
        .applyInPandas(with_window_start(workload.function), f"{workload.schema}, start TIMESTAMP")
        .withColumn("start", F.unix_millis("start"))
        .collect()
    )
    found: dict[int, list[tuple[Any, ...]]] = {}
    for *payload, start in sorted(rows):
        found.setdefault(start, []).append(tuple(payload))
    return found


# Enough rows for what a workload looks for to be there: warnings in prices, tolls and accidents on roads.
@pytest.mark.parametrize("slide_share", [None, 0.5, 0.4])
@pytest.mark.parametrize(
    ("name", "rate", "window_s", "seconds", "payload_bytes"),
    [
        ("average", 100, 5.0, 40, 100),
        ("bigrams", 50, 5.0, 30, 500),
        ("stock-market", 300, 30.0, 90, 100),
        ("linear-road", 1000, 60.0, 90, 40),
    ],
)
def test_every_window_is_what_the_oracle_says(spark, name, rate, window_s, seconds, payload_bytes, slide_share):
    slide_s = None if slide_share is None else slide_share * window_s
    spec = LateSpec(name, rate, window_s, 3, payload_bytes, seed=11, slide_s=slide_s)
    workload, numbers = LATE_WORKLOADS[name], range(rate * seconds)
    expected = workload.expected(spec, CREATED_MS, numbers)
    assert windows(workload, spec, workload.from_numbers(numbered(spark, spec, numbers), spec)) == expected
    if name == "stock-market":
        assert any(row[4] for rows in expected.values() for row in rows)
        assert any(row[6] > 0.2 for rows in expected.values() for row in rows)
    if name == "linear-road":
        assert any(row[7] > 0 for rows in expected.values() for row in rows)
        assert any(row[6] > 0 for rows in expected.values() for row in rows)


@pytest.mark.parametrize("name", LATE_WORKLOADS)
def test_bursts_and_far_late_rows_fall_into_the_windows_that_the_oracle_says(spark, name):
    spec = LateSpec(name, 100, 2.0, 10, 64, seed=3, bursts=True)
    workload, numbers = LATE_WORKLOADS[name], range(4000, 16_000)
    events = workload.from_numbers(numbered(spark, spec, numbers), spec)
    counted = events.groupBy(F.window("event_time", "2 seconds")).count()
    found = {row[0]: row[1] for row in counted.select(F.unix_millis("window.start"), "count").collect()}
    assert found == workload.window_counts(spec, CREATED_MS, numbers)


@pytest.mark.parametrize("name", LATE_WORKLOADS)
def test_the_function_runs_on_plain_spark_as_it_is(spark, name):
    spec = LateSpec(name, 100, 20.0, 1, 64, seed=3)
    workload = LATE_WORKLOADS[name]
    events = workload.from_numbers(numbered(spark, spec, range(1000)), spec)
    found = events.groupBy(F.window("event_time", "20 seconds"), *workload.keys).applyInPandas(
        workload.function, workload.schema
    )
    expected = workload.expected(spec, CREATED_MS, range(1000))
    assert sorted(map(tuple, found.collect())) == sorted(row for rows in expected.values() for row in rows)


@pytest.mark.parametrize("name", LATE_WORKLOADS)
def test_payloads_are_as_long_as_asked_for_and_differ(spark, name):
    workload = LATE_WORKLOADS[name]
    spec = LateSpec(name, 100, 20.0, 1, workload.payload_bytes, seed=3)
    payloads = [row.payload for row in workload.from_numbers(numbered(spark, spec, range(500)), spec).collect()]
    assert len(set(payloads)) > 490
    assert sum(map(len, payloads)) / 500 == pytest.approx(workload.payload_bytes, rel=0.05)


def test_the_stream_offers_the_rows_of_the_oracle(spark, tmp_path: Path):
    """The live rate source arrives as the static frame of the other tests does."""
    workload = LATE_WORKLOADS["average"]
    spec = LateSpec("late_average_live", 100, 2.0, 3, 64, seed=5)
    query = (
        workload.events(spark, spec)
        .writeStream.format("memory")
        .queryName(spec.name)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    eventually(lambda: spark.table(spec.name).count() >= 400)
    query.stop()
    events = spark.table(spec.name)
    created_ms = read_creation_ms(tmp_path)
    assert windows(workload, spec, events) == workload.expected(spec, created_ms, range(events.count()))
    assert events.where("event_time > arrival").count() == 0
