"""Queries with several inputs under the real scheduler: the last input decides, and a silent one costs little."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tests.spark.support import Feed, batches, eventually, rates, start
from tests.spark.test_facts import state_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slackwater import Handle

pytestmark = pytest.mark.spark


def stream(spark: Any, name: str, delay: str) -> Any:
    return (
        rates(spark)
        .select(F.col("timestamp").alias(f"ts_{name}"), F.col("value").alias(name))
        .withWatermark(f"ts_{name}", delay)
    )


def joined(left: Any, right: Any) -> Any:
    """Windows over an interval join: what Spark emits of them waits for the join's watermark, which lags."""
    near = F.expr("a = b and ts_b between ts_a - interval 2 seconds and ts_a + interval 2 seconds")
    return left.join(right, near).groupBy(F.window("ts_a", "2 seconds")).count()


def emitted(spark: Any, name: str) -> list[float]:
    return sorted(
        row.ended.timestamp() for row in spark.table(name).select(F.col("window.end").alias("ended")).collect()
    )


def test_windows_over_a_join_leave_when_the_last_inputs_watermark_has_passed_them(
    spark: Any, attach: Callable[..., Handle]
) -> None:
    handle = attach(policy="klink")
    query = start(joined(stream(spark, "a", "1 second"), stream(spark, "b", "3 seconds")), sink="memory", name="joined")
    state = state_of(handle, query)
    ends = eventually(lambda: len(found := emitted(spark, "joined")) >= 4 and found, timeout_s=60)
    assert all(later - sooner == 2.0 for sooner, later in pairwise(ends))
    assert state.facts.input_delays_s == (1.0, 3.0)
    # The later input decides when the next window can be swept.
    end = state.next_window_end()
    assert end is not None
    arrivals = [
        estimator.arrival(end + state._behind_s + delay_s).wall_ts
        for estimator, delay_s in zip(state._inputs.estimators, (1.0, 3.0), strict=True)
    ]
    assert state.swm_arrival(end).wall_ts == max(arrivals)
    # An interval join holds its watermark back by the interval.
    assert state._behind_s == pytest.approx(2.0, abs=0.1)


def test_windows_over_a_union_leave_when_the_later_inputs_watermark_has_passed_them(
    spark: Any, attach: Callable[..., Handle]
) -> None:
    handle = attach(policy="klink")
    both = stream(spark, "a", "1 second").toDF("ts", "v").union(stream(spark, "b", "4 seconds").toDF("ts", "v"))
    query = start(both.groupBy(F.window("ts", "2 seconds")).count(), sink="memory", name="union")
    state = state_of(handle, query)
    ends = eventually(lambda: len(found := emitted(spark, "union")) >= 4 and found, timeout_s=60)
    assert all(later - sooner == 2.0 for sooner, later in pairwise(ends))
    assert state.facts.delay_s == 4.0
    assert state._behind_s == 0.0


def test_a_silent_input_of_a_join_takes_few_turns_and_leaves_the_lanes_to_others(
    spark: Any, attach: Callable[..., Handle], tmp_path: Path
) -> None:
    handle = attach(policy="klink", lanes=1)
    silent = Feed(tmp_path / "silent")
    silent.put([(time.time() - 5, "x", 1)])
    right = (
        silent.stream(spark).select(F.col("ts").alias("ts_b"), F.col("v").alias("b")).withWatermark("ts_b", "1 second")
    )
    halted = start(joined(stream(spark, "a", "1 second"), right), sink="memory", name="halted")
    lively = rates(spark).withWatermark("timestamp", "1 second").groupBy(F.window("timestamp", "1 second")).count()
    other = start(lively, sink="memory", name="lively")
    # While the join's next sweep is awaited it may run as often as the other; then it rests longer each time.
    eventually(lambda: len(emitted(spark, "lively")) >= 6, timeout_s=60)
    before = batches(halted), batches(other)
    eventually(lambda: batches(other) >= before[1] + 16, timeout_s=90)
    assert batches(halted) - before[0] < 8
    assert emitted(spark, "halted") == []
    assert handle.attached
