"""What is read from real plans and real batches."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from slackwater.core.model import BatchReport, QueryFacts, Window
from tests.spark.support import Feed, eventually, rates, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slackwater import Handle
    from slackwater.core.query import QueryState

pytestmark = pytest.mark.spark


def state_of(handle: Handle, query: Any) -> QueryState:
    state: QueryState = eventually(lambda: handle._engine.state(str(query.runId)))
    return state


def facts_of(handle: Handle, query: Any) -> QueryFacts:
    return state_of(handle, query).facts


class Overheard:
    """Every batch of one query that the scheduler hears of from now on."""

    def __init__(self, handle: Handle) -> None:
        self.batches: list[tuple[str, BatchReport]] = []
        exchange = handle._bridge.exchange

        def overhear(commands: Any, **how: Any) -> Any:
            report = exchange(commands, **how)
            self.batches.extend((query.key, batch) for query in report.queries for batch in query.batches)
            return report

        handle._bridge.exchange = overhear  # type: ignore[method-assign]

    def inputs(self, query: Any) -> list[tuple[float, int, float | None]]:
        """Delay, rows and largest event time per input of the query's first batch."""
        first: BatchReport = eventually(lambda: [b for key, b in self.batches if key == str(query.runId)])[0]
        return [(seen.delay_s, seen.rows, seen.max_event_ts) for seen in first.inputs]


def watermarked(spark: Any, delay: str = "2 seconds") -> Any:
    return rates(spark).withWatermark("timestamp", delay)


WINDOWS = {
    "tumbling": (("10 seconds",), Window(10, 10)),
    "sliding": (("10 seconds", "5 seconds"), Window(10, 5)),
    "shifted": (("10 seconds", "10 seconds", "3 seconds"), Window(10, 10, 3)),
    "sliding-and-shifted": (("1 minute", "15 seconds", "2500 milliseconds"), Window(60, 15, 2.5)),
    "daily": (("1 day",), Window(86_400, 86_400)),
}


@pytest.mark.parametrize(("arguments", "window"), WINDOWS.values(), ids=WINDOWS.keys())
def test_a_window_is_read_from_its_plan(
    spark: Any, attach: Callable[..., Handle], arguments: tuple[str, ...], window: Window
) -> None:
    handle = attach()
    counted = watermarked(spark).groupBy(F.window("timestamp", *arguments)).count()
    facts = facts_of(handle, start(counted))
    assert facts.windows == (window,)
    assert facts.input_delays_s == (2.0,)
    assert facts.emits_at_sweep
    assert facts.stateful
    assert facts.gated


def test_of_chained_windows_the_outermost_is_read(spark: Any, attach: Callable[..., Handle]) -> None:
    handle = attach()
    small = watermarked(spark).groupBy(F.window("timestamp", "5 seconds"), F.col("value") % 3).count()
    large = small.groupBy(F.window(F.window_time("window"), "20 seconds")).sum("count")
    facts = facts_of(handle, start(large))
    assert facts.windows == (Window(20, 20),)
    assert facts.input_delays_s == (2.0,)


def test_update_mode_does_not_wait_for_a_sweep(spark: Any, attach: Callable[..., Handle]) -> None:
    handle = attach()
    counted = watermarked(spark).groupBy(F.window("timestamp", "10 seconds")).count()
    facts = facts_of(handle, start(counted, mode="update"))
    assert facts.windows == (Window(10, 10),)
    assert not facts.emits_at_sweep
    assert facts.stateful


def test_a_stateless_query_and_a_trigger_are_read(spark: Any, attach: Callable[..., Handle]) -> None:
    handle = attach()
    facts = facts_of(handle, start(rates(spark), name="plain", every="7 seconds"))
    assert facts.name == "plain"
    assert facts.windows == ()
    assert not facts.stateful
    assert facts.min_interval_s == 7.0


def test_a_batch_aggregate_in_a_stream_static_join_is_not_taken_for_state(
    spark: Any, attach: Callable[..., Handle]
) -> None:
    handle = attach()
    static = spark.range(10).groupBy((F.col("id") % 5).alias("value")).count()
    facts = facts_of(handle, start(rates(spark).join(static, "value")))
    assert not facts.stateful


def two_feeds(spark: Any, folder: Path) -> tuple[Feed, Feed, Any, Any]:
    left, right = Feed(folder / "left"), Feed(folder / "right")
    watermarked_left = left.stream(spark).withWatermark("ts", "2 seconds")
    watermarked_right = right.stream(spark).withWatermark("ts", "5 seconds")
    return left, right, watermarked_left, watermarked_right


def test_a_join_of_two_streams_has_two_inputs_with_their_maxima(
    spark: Any, attach: Callable[..., Handle], tmp_path: Path
) -> None:
    handle = attach()
    overheard = Overheard(handle)
    left, right, a, b = two_feeds(spark, tmp_path)
    now = float(int(time.time()))
    left.put([(now - 3, "x", 1), (now - 1, "y", 1)])
    right.put([(now - 7, "x", 1)])
    near = F.expr("l.k = r.k and r.ts between l.ts - interval 10 seconds and l.ts + interval 10 seconds")
    query = start(a.alias("l").join(b.alias("r"), near))
    query.processAllAvailable()

    state = state_of(handle, query)
    assert state.facts.input_delays_s == (2.0, 5.0)
    assert state.facts.stateful
    assert overheard.inputs(query) == [(2.0, 2, now - 1), (5.0, 1, now - 7)]


def test_a_union_of_two_watermarked_streams_has_two_inputs_with_their_maxima(
    spark: Any, attach: Callable[..., Handle], tmp_path: Path
) -> None:
    handle = attach()
    overheard = Overheard(handle)
    left, right, a, b = two_feeds(spark, tmp_path)
    now = float(int(time.time()))
    left.put([(now - 3, "x", 1), (now - 1, "y", 1)])
    right.put([(now - 7, "x", 1)])
    query = start(a.union(b).groupBy(F.window("ts", "10 seconds")).count())
    query.processAllAvailable()

    state = state_of(handle, query)
    assert state.facts.input_delays_s == (2.0, 5.0)
    assert state.facts.windows == (Window(10, 10),)
    assert state.facts.delay_s == 5.0
    assert overheard.inputs(query) == [(2.0, 2, now - 1), (5.0, 1, now - 7)]


def test_the_watermark_policy_is_the_sessions(spark: Any, attach: Callable[..., Handle], tmp_path: Path) -> None:
    handle = attach()
    _, _, a, b = two_feeds(spark, tmp_path)
    spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", "max")
    try:
        facts = facts_of(handle, start(a.union(b).groupBy(F.window("ts", "10 seconds")).count()))
    finally:
        spark.conf.unset("spark.sql.streaming.multipleWatermarkPolicy")
    assert facts.watermark_policy == "max"
    assert facts.delay_s == 2.0


def test_a_stateless_query_under_adaptive_execution_tells_its_event_times(
    spark: Any, attach: Callable[..., Handle], feed: Feed
) -> None:
    overheard = Overheard(attach())
    now = float(int(time.time()))
    feed.put([(now - 4, "x", 1)])
    query = start(feed.stream(spark).withWatermark("ts", "3 seconds").repartition(2))
    query.processAllAvailable()
    assert overheard.inputs(query) == [(3.0, 1, now - 4)]


def test_a_query_that_reads_what_another_one_writes_is_found_downstream_of_it(
    spark: Any, attach: Callable[..., Handle], feed: Feed, tmp_path: Path
):
    handle = attach(policy="hr")
    table = tmp_path / "bronze"
    feed.put([(1.0, "a", 1), (2.0, "b", 2)])
    bronze = feed.stream(spark).writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "ck"))
    first = bronze.queryName("bronze").start(str(table))
    first.processAllAvailable()
    silver = spark.readStream.schema("ts timestamp, k string, v long").parquet(str(table))
    second = start(silver, name="silver")
    second.processAllAvailable()

    def downstream() -> dict[str, tuple[str, ...]]:
        return {view.name: view.downstream for view in handle._engine.views}

    eventually(lambda: downstream().get("bronze") == (str(second.runId),))
    assert downstream()["silver"] == ()
