"""Whatever breaks, queries go on: a dead or hung scheduler, bad policies, failing queries, slow listeners."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming import StreamingQueryListener

from slackwater import Choice
from tests.spark.support import (
    Feed,
    Hanging,
    batches,
    eventually,
    is_gated,
    jvm_errors,
    rates,
    start,
    stays,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slackwater import Handle, Snapshot

pytestmark = pytest.mark.spark


# ---- the scheduler -----------------------------------------------------------------------------------------------


class Deadly:
    """Takes the scheduler's thread with it when told to."""

    name = "deadly"
    enforces = True
    deadly = False

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        if self.deadly:
            raise SystemExit
        return [Choice(query.key, query.eligible, 0.0, "") for query in snapshot.queries]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_queries_go_on_when_the_scheduler_is_dead(spark: Any, attach: Callable[..., Handle]) -> None:
    policy = Deadly()
    handle = attach(policy=policy, watchdog_s=1)
    queries = [start(rates(spark)), start(rates(spark), every="1 second")]
    eventually(lambda: all(batches(query) >= 1 for query in queries))
    policy.deadly = True
    eventually(lambda: not handle._thread.is_alive())

    seen = [batches(query) for query in queries]
    eventually(lambda: all(batches(q) >= n + 2 for q, n in zip(queries, seen, strict=True)), timeout_s=15)
    late = start(rates(spark))
    eventually(lambda: batches(late) >= 2)


def test_queries_go_on_while_the_scheduler_hangs_and_wait_again_when_it_is_back(
    spark: Any, attach: Callable[..., Handle]
) -> None:
    policy = Hanging()
    handle = attach(policy=policy, watchdog_s=1, max_wait_s=600)
    query = start(rates(spark), name="patient")
    eventually(lambda: batches(query) >= 1)
    policy.go.clear()
    seen = batches(query)
    eventually(lambda: batches(query) >= seen + 3, timeout_s=15)

    policy.grants = False
    policy.go.set()
    eventually(lambda: handle.stats().gates_opened >= 1)
    eventually(lambda: policy.refused > 3)
    seen = batches(query)
    stays(lambda: batches(query) == seen, 1.0)
    policy.grants = True
    eventually(lambda: batches(query) > seen)


def test_a_scheduler_that_calls_but_cannot_decide_counts_as_silent(
    spark: Any,
    attach: Callable[..., Handle],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    handle = attach()  # its pauses between attempts are shorter than this watchdog's patience
    query = start(rates(spark))
    eventually(lambda: batches(query) >= 1)

    def fail(report: Any) -> Any:
        raise RuntimeError("a bug in the engine")

    with monkeypatch.context() as broken:
        broken.setattr(handle._engine, "step", fail)
        seen = batches(query)
        eventually(lambda: batches(query) >= seen + 2, timeout_s=15)
        late = start(rates(spark), name="late")
        eventually(lambda: batches(late) >= 1)
    # What was told of the new query while nobody understood it is told again.
    eventually(lambda: "late" in {status.name for status in handle.status()})
    seen = batches(late)
    eventually(lambda: batches(late) > seen)
    assert sum("a bug in the engine" in record.message for record in caplog.records) == 1
    caplog.clear()


def test_detach_while_the_scheduler_hangs_gives_plain_spark_back(spark: Any, attach: Callable[..., Handle]) -> None:
    policy = Hanging()
    handle = attach(policy=policy)
    query = start(rates(spark))
    eventually(lambda: batches(query) >= 1)
    policy.go.clear()
    try:
        handle.detach()
    finally:
        policy.go.set()
    seen = batches(query)
    eventually(lambda: batches(query) >= seen + 2 and not is_gated(query))


# ---- policies ----------------------------------------------------------------------------------------------------


def raises(snapshot: Snapshot) -> list[Choice]:
    raise RuntimeError("the policy is broken")


def names_strangers(snapshot: Snapshot) -> list[Choice]:
    return [Choice("nobody", True, 0.0, "")]


def gives_nan(snapshot: Snapshot) -> list[Choice]:
    return [Choice(query.key, True, math.nan, "") for query in snapshot.queries]


def gives_nonsense(snapshot: Snapshot) -> Any:
    return 7


@pytest.mark.parametrize("decide", [raises, names_strangers, gives_nan, gives_nonsense])
def test_a_policy_that_talks_nonsense_is_logged_once_and_queries_go_on(
    spark: Any,
    attach: Callable[..., Handle],
    decide: Callable[[Snapshot], list[Choice]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    policy = type("Broken", (), {"name": "broken", "enforces": True, "decide": staticmethod(decide)})()
    handle = attach(policy=policy)
    query = start(rates(spark))
    eventually(lambda: batches(query) >= 2)
    assert handle.stats().gates_opened == 0
    complaints = [record for record in caplog.records if "policy 'broken' failed" in record.message]
    assert len(complaints) == 1
    assert complaints[0].levelno == logging.WARNING


class Restless:
    """Every query's urgency changes at random with every step."""

    name = "restless"
    enforces = True

    def __init__(self) -> None:
        self._random = random.Random(1)

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        return [Choice(q.key, q.eligible, self._random.uniform(-100, 100), "") for q in snapshot.queries]


def test_forty_queries_whose_priorities_never_rest_all_progress(
    spark: Any, attach: Callable[..., Handle], feed: Feed
) -> None:
    """TimSort throws on an order that changes under it, from 32 pools on; Spark would lose the offer and hang."""
    attach(policy=Restless(), lanes=40, max_wait_s=1)
    feed.put([(0.0, "a", 1)])
    with jvm_errors(spark) as errors:
        queries = [start(feed.stream(spark)) for _ in range(40)]
        eventually(lambda: all(batches(query) >= 1 for query in queries), timeout_s=90)
        assert errors.toString() == ""
    assert [query.exception() for query in queries] == [None] * 40


# ---- queries -----------------------------------------------------------------------------------------------------


def test_a_failing_query_fails_alone_with_its_own_error_and_can_be_restarted(
    spark: Any, attach: Callable[..., Handle], feed: Feed, tmp_path: Path
) -> None:
    attach(lanes=1)
    bystander = start(rates(spark))
    broken = True
    taken: list[int] = []

    def work(batch: Any, _: int) -> None:
        if broken:
            raise ValueError("the user's own mistake")
        taken.extend(row.v for row in batch.collect())

    def begin() -> Any:
        writer = feed.stream(spark).writeStream.option("checkpointLocation", str(tmp_path / "cp"))
        return writer.foreachBatch(work).queryName("fragile").start()

    feed.put([(0.0, "a", 1)])
    query = begin()
    eventually(lambda: not query.isActive)
    assert "the user's own mistake" in str(query.exception())
    seen = batches(bystander)
    eventually(lambda: batches(bystander) >= seen + 2)
    assert bystander.exception() is None

    broken = False
    query = begin()
    query.processAllAvailable()
    assert taken == [1]


def test_a_failing_task_fails_its_query_alone(spark: Any, attach: Callable[..., Handle], feed: Feed) -> None:
    attach()
    bystander = start(rates(spark))
    feed.put([(0.0, "not a number", 1)])
    query = start(feed.stream(spark).select(F.expr("raise_error('deliberate')")))
    eventually(lambda: not query.isActive)
    assert "deliberate" in str(query.exception())
    seen = batches(bystander)
    eventually(lambda: batches(bystander) > seen)


def test_a_query_whose_event_times_no_calendar_knows_does_not_stop_the_others(
    spark: Any, attach: Callable[..., Handle], feed: Feed
) -> None:
    handle = attach()
    feed.put([(4e11, "far", 1)])
    strange = start(feed.stream(spark).withWatermark("ts", "1 second"), name="strange")
    bystander = start(rates(spark), name="bystander")
    eventually(lambda: batches(strange) >= 1 and batches(bystander) >= 3)
    feed.put([(5e11, "farther", 1)])
    eventually(lambda: batches(strange) >= 2)
    assert handle.stats().gates_opened == 0


def test_observed_metrics_that_are_not_numbers_do_no_harm(spark: Any, attach: Callable[..., Handle]) -> None:
    handle = attach()
    strange = rates(spark).observe("odd", F.max(F.lit(float("nan"))).alias("nan"), F.lit("<x>").alias("text"))
    query = start(strange)
    eventually(lambda: batches(query) >= 3)
    assert handle.stats().gates_opened == 0


# ---- waiting for one another -------------------------------------------------------------------------------------


def test_a_batch_that_awaits_another_query_does_not_hold_the_only_lane_for_ever(
    spark: Any, attach: Callable[..., Handle], feed: Feed
) -> None:
    attach(lanes=1)
    feed.put([(0.0, "a", 1)])
    other = start(feed.stream(spark), name="awaited")
    awaited: list[int] = []

    def await_it(batch: Any, _: int) -> None:
        if not awaited:
            other.processAllAvailable()
            awaited.append(batches(other))

    rates(spark).writeStream.foreachBatch(await_it).start()
    eventually(lambda: awaited == [1])


def test_a_batch_that_starts_another_query_gives_it_a_pool_of_its_own(
    spark: Any, attach: Callable[..., Handle], feed: Feed
) -> None:
    attach(lanes=1)
    feed.put([(0.0, "a", 1)])
    pools: dict[str, str] = {}
    started: list[Any] = []

    def note(batch: Any, _: int) -> None:
        pools["inner"] = spark.sparkContext.getLocalProperty("spark.scheduler.pool")

    def start_one(batch: Any, _: int) -> None:
        pools["outer"] = spark.sparkContext.getLocalProperty("spark.scheduler.pool")
        if not started:
            started.append(feed.stream(spark).writeStream.foreachBatch(note).start())
            started[0].processAllAvailable()

    outer = rates(spark).writeStream.foreachBatch(start_one).start()
    eventually(lambda: "inner" in pools)
    assert pools == {"outer": f"slackwater-{outer.runId}", "inner": f"slackwater-{started[0].runId}"}


@pytest.mark.parametrize("policy", ["round-robin", "klink"])
def test_process_all_available_returns_though_the_next_window_is_far_away(
    spark: Any, attach: Callable[..., Handle], feed: Feed, policy: str
) -> None:
    attach(policy=policy)
    now = time.time()
    windows = feed.stream(spark).withWatermark("ts", "1 second").groupBy(F.window("ts", "1 hour")).count()
    query = start(windows, sink="memory", name="far", mode="append")
    for step in range(3):
        feed.put([(now + step, "a", 1)])
        waiter = threading.Thread(target=query.processAllAvailable, daemon=True)
        waiter.start()
        waiter.join(20)
        assert not waiter.is_alive()
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 3


# ---- listeners ---------------------------------------------------------------------------------------------------


class Sluggish(StreamingQueryListener):  # type: ignore[misc]
    def __init__(self, delay_s: float, error: Exception | None = None) -> None:
        self.delay_s = delay_s
        self.error = error
        self.calls = 0

    def _dawdle(self) -> None:
        self.calls += 1
        time.sleep(self.delay_s)
        if self.error is not None:
            raise self.error

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
        self._dawdle()

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._dawdle()

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        self._dawdle()

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self._dawdle()


@pytest.mark.parametrize(
    "listener", [Sluggish(0.5), Sluggish(0.0, ValueError("the listener's own"))], ids=["slow", "raising"]
)
def test_a_users_listener_that_is_slow_or_raises_does_not_hold_up_the_scheduler(
    spark: Any, attach: Callable[..., Handle], listener: Sluggish
) -> None:
    attach()
    spark.streams.addListener(listener)
    try:
        query = start(rates(spark))
        eventually(lambda: batches(query) >= 3)
        assert is_gated(query)
        assert listener.calls >= 1
    finally:
        spark.streams.removeListener(listener)
