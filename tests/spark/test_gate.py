"""Where queries wait: the first batch, the user's trigger, stopping, queries that ran before, detaching."""

from __future__ import annotations

import threading
import time
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

import slackwater
from slackwater import AttachError
from tests.spark.support import (
    Feed,
    OnRequest,
    batch_starts,
    batches,
    eventually,
    is_gated,
    our_pools,
    pools,
    rates,
    start,
    stays,
    task_order,
    trigger_fields,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slackwater import Handle

pytestmark = pytest.mark.spark

PLAIN = ("SystemClock", 0, "ProcessingTimeTrigger(0)")
STOP_S = 2.0


# ---- waiting for a turn ------------------------------------------------------------------------------------------


def test_a_query_runs_no_batch_before_a_policy_object_grants_its_first(
    spark: Any, attach: Callable[..., Handle], feed: Feed
) -> None:
    policy = OnRequest()
    attach(policy=policy, max_wait_s=600)
    feed.put([(0.0, "a", 1)])
    query = start(feed.stream(spark), name="held")
    eventually(lambda: "held" in policy.seen)
    stays(lambda: batches(query) == 0, 1.0)

    policy.everything = True
    eventually(lambda: batches(query) == 1)


def test_nobody_waits_longer_than_the_longest_wait_whatever_the_policy_says(
    spark: Any, attach: Callable[..., Handle]
) -> None:
    attach(policy=OnRequest(), max_wait_s=0.5)
    query = start(rates(spark))
    eventually(lambda: batches(query) >= 2)


def test_the_users_trigger_interval_is_the_least_spacing_between_turns(
    spark: Any, attach: Callable[..., Handle]
) -> None:
    attach()
    query = start(rates(spark), every="1500 milliseconds")
    eventually(lambda: batches(query) >= 4)
    starts = [datetime.fromisoformat(text) for text in batch_starts(query)]
    assert min((later - sooner).total_seconds() for sooner, later in pairwise(starts)) > 1.3


def test_a_query_with_the_default_trigger_gets_turn_after_turn(spark: Any, attach: Callable[..., Handle]) -> None:
    attach()
    query = start(rates(spark))
    eventually(lambda: batches(query) >= 3)
    assert is_gated(query)


# ---- stopping ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", ["first", "later"])
def test_a_waiting_query_stops_at_once_and_without_an_error(
    spark: Any, attach: Callable[..., Handle], wait: str
) -> None:
    policy = OnRequest()
    attach(policy=policy, max_wait_s=600)
    policy.everything = wait == "later"
    query = start(rates(spark), name="waiting")
    if wait == "later":
        eventually(lambda: batches(query) >= 1)
        policy.everything = False
        policy.seen.clear()
    eventually(lambda: "waiting" in policy.seen)
    assert not query.awaitTermination(1)

    begun = time.monotonic()
    query.stop()
    assert time.monotonic() - begun < STOP_S
    assert query.awaitTermination(1)
    assert query.exception() is None
    assert not query.isActive


def test_a_query_stopped_in_its_batch_ends_without_an_error(
    spark: Any, attach: Callable[..., Handle], feed: Feed
) -> None:
    attach()
    feed.put([(0.0, "a", 1)])
    begun = threading.Event()

    def dawdle(batch: Any, _: int) -> None:
        begun.set()
        time.sleep(0.5)
        batch.collect()

    query = feed.stream(spark).writeStream.foreachBatch(dawdle).start()
    assert begun.wait(30)
    query.stop()
    assert query.exception() is None


# ---- queries that ran before us ----------------------------------------------------------------------------------


def test_a_running_query_with_the_default_trigger_is_scheduled_after_attach(
    spark: Any, attach: Callable[..., Handle]
) -> None:
    query = start(rates(spark), name="before")
    eventually(lambda: batches(query) >= 1)
    policy = OnRequest()
    attach(policy=policy, max_wait_s=600)
    eventually(lambda: "before" in policy.seen)
    seen = batches(query)
    stays(lambda: batches(query) == seen, 0.7)

    policy.everything = True
    eventually(lambda: batches(query) > seen + 1)


def test_a_query_asleep_until_its_trigger_joins_when_that_comes(spark: Any, attach: Callable[..., Handle]) -> None:
    query = start(rates(spark), name="asleep", every="3 seconds")
    eventually(lambda: batches(query) >= 1)
    policy = OnRequest()
    attach(policy=policy, max_wait_s=600)
    eventually(lambda: "asleep" in policy.seen)
    seen = batches(query)
    stays(lambda: batches(query) == seen, 1.0)

    policy.everything = True
    eventually(lambda: batches(query) > seen)


# ---- detaching ---------------------------------------------------------------------------------------------------


def test_detach_gives_plain_spark_back_and_queries_go_on(spark: Any, attach: Callable[..., Handle]) -> None:
    policy = OnRequest()
    handle = attach(policy=policy, max_wait_s=600)
    assert task_order(spark) == "TaskOrder"
    eager = start(rates(spark), name="eager")
    hourly = start(rates(spark), name="hourly", every="1 hour")
    policy.everything = True
    eventually(lambda: batches(eager) >= 1 and batches(hourly) >= 1)
    policy.everything = False
    policy.seen.clear()
    eventually(lambda: "eager" in policy.seen)
    assert len(our_pools(spark)) == 2

    handle.detach()
    handle.detach()

    assert not handle.attached
    assert task_order(spark) == "FairSchedulingAlgorithm"
    assert trigger_fields(hourly) == ("SystemClock", 3_600_000, "ProcessingTimeTrigger(3600000)")
    assert trigger_fields(eager) == PLAIN
    seen, slept = batches(eager), batches(hourly)
    eventually(lambda: batches(eager) >= seen + 2)
    assert batches(hourly) == slept
    eventually(lambda: our_pools(spark) == set())


def test_a_query_detached_in_its_batch_is_plain_when_that_is_over(spark: Any, attach: Callable[..., Handle]) -> None:
    in_batch, go = threading.Event(), threading.Event()
    seen_pools: list[str | None] = []

    def linger(batch: Any, _: int) -> None:
        seen_pools.append(spark.sparkContext.getLocalProperty("spark.scheduler.pool"))
        in_batch.set()
        go.wait(30)
        batch.collect()

    handle = attach()
    query = rates(spark).writeStream.trigger(processingTime="1 second").foreachBatch(linger).start()
    assert in_batch.wait(30)
    handle.detach()
    go.set()

    eventually(lambda: trigger_fields(query) == ("SystemClock", 1000, "ProcessingTimeTrigger(1000)"))
    eventually(lambda: batches(query) >= 3)
    assert seen_pools[0] == f"slackwater-{query.runId}"
    assert set(seen_pools[1:]) == {None}
    eventually(lambda: our_pools(spark) == set())


def test_attaching_again_in_the_middle_of_a_batch_keeps_the_users_trigger(
    spark: Any, attach: Callable[..., Handle]
) -> None:
    in_batch, go = threading.Event(), threading.Event()

    def linger(batch: Any, _: int) -> None:
        in_batch.set()
        go.wait(30)
        batch.collect()

    first = attach()
    query = rates(spark).writeStream.trigger(processingTime="1 second").foreachBatch(linger).start()
    assert in_batch.wait(30)
    first.detach()
    second = attach()
    eventually(lambda: [s for s in second.status() if s.key == str(query.runId)])
    go.set()
    eventually(lambda: batches(query) >= 3)
    state = second._engine.state(str(query.runId))
    assert state is not None
    assert state.facts.min_interval_s == 1.0
    assert is_gated(query)

    second.detach()
    eventually(lambda: trigger_fields(query) == ("SystemClock", 1000, "ProcessingTimeTrigger(1000)"))
    seen = batches(query)
    eventually(lambda: batches(query) > seen)


def test_detach_and_attach_again_and_again(spark: Any, attach: Callable[..., Handle]) -> None:
    query = start(rates(spark))

    def attach_for_a_batch() -> None:
        handle = attach()
        seen = batches(query)
        eventually(lambda: is_gated(query) and batches(query) > seen)
        handle.detach()
        eventually(lambda: trigger_fields(query) == PLAIN)

    for _ in range(3):
        attach_for_a_batch()


def test_leaving_the_with_block_detaches(spark: Any) -> None:
    with slackwater.attach(spark) as handle:
        assert handle.attached
        assert handle.policy == "klink"
    assert not handle.attached


# ---- sessions that cannot be attached to -------------------------------------------------------------------------


def test_attaching_twice_is_refused_until_the_first_has_detached(spark: Any, attach: Callable[..., Handle]) -> None:
    first = attach()
    with pytest.raises(AttachError, match="attached to this Spark application already"):
        attach()
    with pytest.raises(AttachError, match="attached to this Spark application already"):
        attach(spark.newSession())
    first.detach()
    attach()


def test_a_spark_connect_session_is_refused_with_advice() -> None:
    connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(AttachError, match="Spark Connect"):
        slackwater.attach(connect)


def test_something_that_is_no_session_is_refused() -> None:
    with pytest.raises(AttachError, match="needs a SparkSession, but got dict"):
        slackwater.attach({})


# ---- pools, partitions, ordinary jobs ----------------------------------------------------------------------------


def test_a_query_has_its_own_pool_and_a_pool_that_the_user_chose_is_kept(
    spark: Any, attach: Callable[..., Handle]
) -> None:
    seen: dict[str, str | None] = {}

    def note_pool(name: str) -> Any:
        def note(batch: Any, _: int) -> None:
            seen[name] = spark.sparkContext.getLocalProperty("spark.scheduler.pool")
            batch.collect()

        return rates(spark).writeStream.foreachBatch(note).queryName(name).start()

    attach()
    own = note_pool("own")
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "mine")
    try:
        chosen = note_pool("chosen")
    finally:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)
    eventually(lambda: {"own", "chosen"} <= seen.keys())
    assert seen == {"own": f"slackwater-{own.runId}", "chosen": "mine"}
    assert is_gated(chosen)
    eventually(lambda: "mine" in pools(spark))

    own.stop()
    chosen.stop()
    eventually(lambda: our_pools(spark) == set())
    assert "mine" in pools(spark)


def test_the_number_of_state_partitions_stays_the_users(spark: Any, attach: Callable[..., Handle], feed: Feed) -> None:
    attach()
    feed.put([(0.0, "a", 1)])
    query = start(feed.stream(spark).groupBy("k").count(), sink="memory", name="counted", mode="complete")
    query.processAllAvailable()
    [operator] = query.lastProgress["stateOperators"]
    assert operator["numShufflePartitions"] == 2
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_ordinary_jobs_are_not_starved_by_streams(spark: Any, attach: Callable[..., Handle]) -> None:
    attach(lanes=4)
    busy = [start(rates(spark, 1000).groupBy(F.col("value") % 10).count(), mode="update") for _ in range(4)]
    eventually(lambda: all(batches(query) >= 1 for query in busy))
    assert spark.range(0, 100_000, numPartitions=8).selectExpr("sum(id)").first()[0] == 4_999_950_000
    assert all(query.isActive for query in busy)


# ---- names -------------------------------------------------------------------------------------------------------

WEIRD = ['it\'s "quoted"', "<b>bold</b> & \\ /", "Füße 水 🌊", "x" * 3000, "new\nline\ttab", "{}", "%s"]


def test_names_that_are_missing_or_weird_do_no_harm(spark: Any, attach: Callable[..., Handle], feed: Feed) -> None:
    handle = attach()
    feed.put([(0.0, "a", 1)])
    stream = feed.stream(spark)
    queries = [start(stream, name=name) for name in WEIRD]
    queries.append(stream.writeStream.format("noop").start())
    eventually(lambda: all(batches(query) >= 1 for query in queries))
    names = {status.name for status in handle.status()}
    assert names == {*WEIRD, str(queries[-1].id)}
    assert {entry.key for entry in handle.story(WEIRD[0])} <= {str(queries[0].runId), ""}


# ---- triggers that are not ours to gate --------------------------------------------------------------------------


@pytest.mark.parametrize("trigger", ["availableNow", "once"])
def test_a_query_that_ends_by_itself_does_so_and_is_noted_once(
    spark: Any,
    attach: Callable[..., Handle],
    feed: Feed,
    trigger: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    handle = attach(policy=OnRequest(), max_wait_s=600)
    feed.put([(0.0, "a", 1)])
    feed.put([(0.0, "b", 2)])
    writer = feed.stream(spark, 1).writeStream.format("memory").queryName("ends")
    query = writer.trigger(**{trigger: True}).start()
    assert query.awaitTermination(30)
    assert query.exception() is None
    assert spark.table("ends").count() == 2
    eventually(lambda: "'ends' has a trigger of kind" in caplog.text)
    eventually(lambda: handle.status() == [])
    assert caplog.text.count("'ends'") == 1


def test_a_continuous_query_is_left_alone(
    spark: Any, attach: Callable[..., Handle], caplog: pytest.LogCaptureFixture
) -> None:
    handle = attach(policy=OnRequest(), max_wait_s=600)
    stream = rates(spark).drop("timestamp")
    writer = stream.writeStream.format("memory").queryName("flows").trigger(continuous="1 second")
    query = writer.start()
    eventually(lambda: spark.table("flows").count() > 0)
    [status] = eventually(handle.status)
    assert status.stage == "not gated"
    query.stop()
    assert query.exception() is None
    assert caplog.text.count("'flows'") == 1


def test_a_query_with_asynchronous_progress_tracking_is_gated_and_goes_on(
    spark: Any, attach: Callable[..., Handle], tmp_path: Path
) -> None:
    policy = OnRequest()
    handle = attach(policy=policy, max_wait_s=600)
    writer = rates(spark).writeStream.format("noop").queryName("async").option("asyncProgressTrackingEnabled", True)
    query = writer.option("checkpointLocation", str(tmp_path / "cp")).start()
    eventually(lambda: "async" in policy.seen)
    stays(lambda: batches(query) == 0, 0.5)
    policy.everything = True
    eventually(lambda: batches(query) >= 3)
    handle.detach()
    eventually(lambda: trigger_fields(query) == PLAIN)
    seen = batches(query)
    eventually(lambda: batches(query) > seen)


def test_a_checkpoint_made_under_the_gate_serves_plain_spark_and_back(
    spark: Any, attach: Callable[..., Handle], feed: Feed, tmp_path: Path
) -> None:
    def run() -> list[int]:
        taken: list[int] = []

        def take(batch: Any, _: int) -> None:
            taken.extend(row.v for row in batch.collect())

        writer = feed.stream(spark).writeStream.option("checkpointLocation", str(tmp_path / "cp"))
        query = writer.foreachBatch(take).start()
        query.processAllAvailable()
        query.stop()
        return taken

    handle = attach()
    feed.put([(0.0, "a", 1)])
    assert run() == [1]
    handle.detach()
    feed.put([(0.0, "a", 2)])
    assert run() == [2]
    attach()
    feed.put([(0.0, "a", 3)])
    assert run() == [3]
