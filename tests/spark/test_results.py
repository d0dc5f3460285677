"""Scheduling changes when a batch runs, never what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tests.spark.support import Feed, Row, batches, eventually, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slackwater import Handle

pytestmark = pytest.mark.spark

ENFORCING = ("round-robin", "fcfs", "edf", "klink")
T0 = 1_700_000_000.0 // 60 * 60
DELAY_S = 4


@dataclass(frozen=True)
class Shape:
    size_s: int
    slide_s: int

    def aggregate(self, stream: Any) -> Any:
        window = F.window("ts", f"{self.size_s} seconds", f"{self.slide_s} seconds")
        counted = stream.withWatermark("ts", f"{DELAY_S} seconds").groupBy(window, "k")
        totals = counted.agg(F.count("*").alias("n"), F.sum("v").alias("total"))
        return totals.select(F.col("window.start").cast("double").alias("start"), "k", "n", "total")

    def expected(self, files: list[list[Row]], upto: float) -> list[tuple[float, str, int, int]]:
        """What the windows that end by a given event time hold: computed here, without Spark."""
        found: dict[tuple[float, str], tuple[int, int]] = {}
        for ts, k, v in (row for file in files for row in file):
            first = (ts // self.slide_s) * self.slide_s
            for step in range(self.size_s // self.slide_s):
                begin = first - step * self.slide_s
                if begin + self.size_s <= upto:
                    n, total = found.get((begin, k), (0, 0))
                    found[begin, k] = (n + 1, total + v)
        return sorted((begin, k, n, total) for (begin, k), (n, total) in found.items())


TUMBLING, SLIDING = Shape(10, 10), Shape(10, 5)


def disordered_files() -> list[list[Row]]:
    """Six files whose rows are up to the delay, but never more, behind the largest event time before them."""
    files: list[list[Row]] = [
        [(T0 + 6 * f + i % 6 - (DELAY_S - 1) * (i % 3 == 0 and f > 0), f"k{i % 2}", i) for i in range(24)]
        for f in range(6)
    ]
    return [*files, [(T0 + 1000, "sentinel", 0)]]


def sweepable(shape: Shape, files: list[list[Row]]) -> list[tuple[float, str, int, int]]:
    return shape.expected(files, upto=T0 + 1000 - DELAY_S)


def written(spark: Any, out: Path) -> list[tuple[float, str, int, int]]:
    if not (out / "_spark_metadata").exists():
        return []
    rows = spark.read.schema("start double, k string, n long, total long").parquet(str(out)).collect()
    return sorted(tuple(row) for row in rows)


def to_files(shape: Shape, stream: Any, at: Path, **trigger: Any) -> Any:
    writer = shape.aggregate(stream).writeStream.format("parquet").option("checkpointLocation", str(at / "cp"))
    return (writer.trigger(**trigger) if trigger else writer).start(str(at / "out"))


@pytest.mark.parametrize("shape", [TUMBLING, SLIDING], ids=["tumbling", "sliding"])
def test_plain_spark_gives_the_rows_that_the_other_tests_expect(
    spark: Any, feed: Feed, tmp_path: Path, shape: Shape
) -> None:
    files = disordered_files()
    for rows in files:
        feed.put(rows)
    to_files(shape, feed.stream(spark, 1), tmp_path, availableNow=True).awaitTermination(60)

    assert written(spark, tmp_path / "out") == sweepable(shape, files)


@pytest.mark.parametrize("policy", ENFORCING)
def test_gated_append_results_equal_plain_sparks_row_for_row_across_a_restart(
    spark: Any, attach: Callable[..., Handle], feed: Feed, tmp_path: Path, policy: str
) -> None:
    shape = SLIDING if policy == "klink" else TUMBLING
    files = disordered_files()
    attach(policy=policy)
    for rows in files[:3]:
        feed.put(rows)
    query = to_files(shape, feed.stream(spark, 1), tmp_path)
    eventually(lambda: batches(query) >= 2)
    query.stop()
    for rows in files[3:]:
        feed.put(rows)
    query = to_files(shape, feed.stream(spark, 1), tmp_path)

    expected = sweepable(shape, files)
    eventually(lambda: len(written(spark, tmp_path / "out")) >= len(expected))
    assert written(spark, tmp_path / "out") == expected


def test_gated_update_mode_ends_with_the_values_of_all_rows(
    spark: Any, attach: Callable[..., Handle], feed: Feed
) -> None:
    files = disordered_files()
    attach(policy="klink")
    latest: dict[tuple[float, str], tuple[int, int]] = {}

    def remember(batch: Any, _: int) -> None:
        latest.update({(row.start, row.k): (row.n, row.total) for row in batch.collect()})

    for rows in files[:3]:
        feed.put(rows)
    writer = TUMBLING.aggregate(feed.stream(spark)).writeStream.outputMode("update")
    query = writer.foreachBatch(remember).start()
    query.processAllAvailable()
    for rows in files[3:]:
        feed.put(rows)
    query.processAllAvailable()

    found = sorted((begin, k, n, total) for (begin, k), (n, total) in latest.items())
    assert found == TUMBLING.expected(files, upto=T0 + 2000)


def test_no_row_within_the_declared_delay_is_dropped(spark: Any, attach: Callable[..., Handle], feed: Feed) -> None:
    """Each file's rows are exactly as late as the delay allows, the worst case for a batch that comes late."""
    attach(policy="klink")
    query = start(TUMBLING.aggregate(feed.stream(spark, 1)), sink="memory", name="late")
    for f in range(4):
        feed.put([(T0 + 10 * f + DELAY_S, "ahead", 1)])
        feed.put([(T0 + 10 * f, "behind", 1), (T0 + 10 * f + DELAY_S, "ahead", 1)])
    feed.put([(T0 + 1000, "sentinel", 0)])
    query.processAllAvailable()

    dropped = sum(
        operator["numRowsDroppedByWatermark"]
        for progress in query.recentProgress
        for operator in progress["stateOperators"]
    )
    rows = {(row.start - T0, row.k): row.n for row in spark.table("late").collect()}
    assert dropped == 0
    assert rows == {(10.0 * f, k): n for f in range(4) for k, n in (("ahead", 2), ("behind", 1))}


# ---- sinks -------------------------------------------------------------------------------------------------------


def test_a_noop_sink_takes_every_row(spark: Any, attach: Callable[..., Handle], feed: Feed) -> None:
    attach()
    feed.put([(T0, "a", 1), (T0, "b", 2)])
    query = start(feed.stream(spark))
    query.processAllAvailable()
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 2


def test_a_memory_sink_takes_every_row(spark: Any, attach: Callable[..., Handle], feed: Feed) -> None:
    attach()
    feed.put([(T0, "a", 1), (T0, "b", 2)])
    start(feed.stream(spark), sink="memory", name="kept").processAllAvailable()
    assert sorted(row.v for row in spark.table("kept").collect()) == [1, 2]


def test_a_file_sink_takes_every_row(spark: Any, attach: Callable[..., Handle], feed: Feed, tmp_path: Path) -> None:
    attach()
    feed.put([(T0, "a", 1), (T0, "b", 2)])
    writer = feed.stream(spark).writeStream.option("checkpointLocation", str(tmp_path / "cp"))
    writer.format("parquet").start(str(tmp_path / "out")).processAllAvailable()
    assert sorted(row.v for row in spark.read.parquet(str(tmp_path / "out")).collect()) == [1, 2]


def test_a_table_takes_every_row(spark: Any, attach: Callable[..., Handle], feed: Feed, tmp_path: Path) -> None:
    attach()
    feed.put([(T0, "a", 1), (T0, "b", 2)])
    writer = feed.stream(spark).writeStream.option("checkpointLocation", str(tmp_path / "cp"))
    try:
        writer.toTable("taken", format="parquet").processAllAvailable()
        assert sorted(row.v for row in spark.table("taken").collect()) == [1, 2]
    finally:
        spark.sql("drop table if exists taken")


def test_foreach_batch_takes_every_row(spark: Any, attach: Callable[..., Handle], feed: Feed) -> None:
    attach()
    feed.put([(T0, "a", 1), (T0, "b", 2)])
    taken: list[int] = []

    def take(batch: Any, _: int) -> None:
        taken.extend(row.v for row in batch.collect())

    feed.stream(spark).writeStream.foreachBatch(take).start().processAllAvailable()
    assert sorted(taken) == [1, 2]
