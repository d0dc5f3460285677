"""Topics of a real broker under the scheduler: what waits, what is broken, and a broker that goes away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from slackwater.bench.harness import Listener, run_bench
from slackwater.bench.model import BenchPlan, OnKafka, RunSettings, RunSpec
from slackwater.drivers.spark import wire
from slackwater.errors import KafkaError
from slackwater.kafka import Broker, Screen, from_millis, rejects, tell_delays
from slackwater.translators.processes import Proc
from tests.spark.kafka_support import Topic
from tests.spark.support import eventually, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import slackwater
    from tests.spark.support import Feed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

EVENT = "k STRING, at BIGINT"
WINDOW_MS = 10_000


def counted(events: Any) -> Any:
    """Windows of 10 s with their counts, as (start in ms, rows)."""
    return (
        events.withWatermark("event_time", "1 second")
        .groupBy(F.window("event_time", f"{WINDOW_MS} milliseconds"))
        .count()
        .selectExpr("unix_millis(window.start) AS start", "count")
    )


def windows(spark: Any, name: str) -> dict[int, int]:
    return {row["start"]: row["count"] for row in spark.table(name).collect()}


def with_time(rows: Any) -> Any:
    return rows.withColumn("event_time", from_millis("at"))


def first_ms() -> int:
    """A window's start a minute ago: rows of then are neither ahead nor far behind."""
    return (int(time.time() * 1000) - 60_000) // WINDOW_MS * WINDOW_MS


def test_what_waits_in_a_topic_is_known_to_the_row_from_kafkas_offsets(
    spark: Any, broker: Broker, attach: Callable[..., slackwater.Handle]
):
    topic = Topic(broker, partitions=2)
    topic.put({"k": "a", "at": n} for n in range(100))
    attach()
    query = start(topic.stream(spark, EVENT, maxOffsetsPerTrigger=30), sink="memory", name="limited")
    query.processAllAvailable()
    assert spark.table("limited").count() == 100
    left, told = 100, []
    for progress in query.recentProgress:
        if progress["numInputRows"]:
            left -= progress["numInputRows"]
            told.append((wire._backlog(wire._decode_progress(progress.json).sources), left))
    assert len(told) >= 3
    assert all(backlog == waiting for backlog, waiting in told)


def test_rows_that_are_broken_or_of_an_absurd_time_are_counted_and_kept_and_windows_are_right(
    spark: Any, broker: Broker, attach: Callable[..., slackwater.Handle]
):
    begin = first_ms()
    topic = Topic(broker)
    topic.put({"k": "good", "at": begin + 1000 * n} for n in range(20))
    bad = [b"{not json", b"", b'"text"', {"k": "no time", "at": None}, {"k": "no time"}]
    absurd = [{"k": "year 3000", "at": 32_503_680_000_000}, {"k": "no year", "at": 9 * 10**18}]
    topic.put([*bad, *absurd])
    attach()
    screen = Screen("event_time", ahead_s=60.0)
    query = start(counted(screen.good(with_time(topic.stream(spark, EVENT)))), sink="memory", name="screened")
    query.processAllAvailable()
    topic.put({"k": "good", "at": begin + 20_000 + 1000 * n} for n in range(12))
    query.processAllAvailable()
    assert windows(spark, "screened") == {begin: 10, begin + WINDOW_MS: 10, begin + 2 * WINDOW_MS: 10}
    assert rejects(query.recentProgress) == {"no_event_time": 6, "ahead": 1, "behind": 0}

    kept = screen.rejected(with_time(topic.table(spark, EVENT))).select("rejected", "body").collect()
    assert sorted(row["body"] for row in kept) == sorted(
        row.decode() if isinstance(row, bytes) else json.dumps(row) for row in [*bad, *absurd]
    )
    assert [row["rejected"] for row in kept if "3000" in row["body"]] == ["ahead"]


def test_a_row_of_the_year_3000_is_told_of_and_other_queries_are_unharmed(
    spark: Any,
    broker: Broker,
    feed: Feed,
    attach: Callable[..., slackwater.Handle],
    caplog: pytest.LogCaptureFixture,
):
    begin = first_ms()
    topic = Topic(broker)
    topic.put([{"k": "good", "at": begin}, {"k": "year 3000", "at": 32_503_680_000_000}])
    attach()
    harmed = start(counted(with_time(topic.stream(spark, EVENT))), sink="memory", name="harmed")
    beside = start(counted(feed.stream(spark).withColumnRenamed("ts", "event_time")), sink="memory", name="beside_it")
    harmed.processAllAvailable()
    eventually(lambda: "query harmed: its watermark stands at 2999-12-31" in caplog.text)
    feed.put([(1.0, "a", 1), (2.0, "a", 1), (30.0, "a", 1)])
    beside.processAllAvailable()
    assert windows(spark, "beside_it") == {0: 2}
    assert harmed.isActive


def test_delays_that_a_query_tells_are_those_between_event_time_and_kafkas_timestamp(
    spark: Any, broker: Broker, attach: Callable[..., slackwater.Handle]
):
    topic = Topic(broker)
    topic.put({"k": "a", "at": first_ms() + 1000 * n} for n in range(20))
    attach()
    query = start(counted(tell_delays(with_time(topic.stream(spark, EVENT)), "event_time")))
    query.processAllAvailable()
    (told,) = [
        progress["observedMetrics"][f"{wire.DELAYS}0"] for progress in query.recentProgress if progress["numInputRows"]
    ]
    rows = with_time(topic.table(spark, EVENT)).selectExpr("double(timestamp) - double(event_time) AS d").collect()
    assert told["rows"] == 20
    assert told["total_s"] == pytest.approx(sum(row["d"] for row in rows))
    assert told["cubes"] == pytest.approx(sum(row["d"] ** 3 for row in rows))


def test_an_unknown_topic_is_named_when_it_ends_its_query_and_no_other(
    spark: Any, broker: Broker, attach: Callable[..., slackwater.Handle], caplog: pytest.LogCaptureFixture
):
    topic = Topic(broker)
    attach()
    beside = start(topic.stream(spark, EVENT), sink="memory", name="known")
    unknown = spark.readStream.format("kafka").options(**topic.options(subscribe="no-such-topic")).load()
    query = start(unknown, name="lost")
    eventually(lambda: not query.isActive, timeout_s=120)
    assert "UnknownTopicOrPartition" in str(query.exception())
    eventually(lambda: "no such topic: it reads KafkaV2[Subscribe[no-such-topic]]" in caplog.text)
    assert "query 'lost' ended" in caplog.text
    topic.put([{"k": "a", "at": 1}])
    eventually(lambda: spark.table("known").count() == 1)
    assert beside.isActive


def test_a_broker_that_goes_away_and_comes_back_costs_no_row_and_no_other_query(
    spark: Any, broker: Broker, feed: Feed, attach: Callable[..., slackwater.Handle]
):
    topic = Topic(broker)
    attach()
    query = start(topic.stream(spark, EVENT), sink="memory", name="from_topic")
    beside = start(feed.stream(spark), sink="memory", name="from_files")
    topic.put({"k": "before", "at": n} for n in range(10))
    eventually(lambda: spark.table("from_topic").count() == 10)

    assert not broker.stop()
    assert not broker.status().running
    topic.send({"k": "while it was away", "at": n} for n in range(10, 20))
    for second in range(3):
        feed.put([(float(second), "a", 1)])
    eventually(lambda: spark.table("from_files").count() == 3, timeout_s=60)
    broker.start()
    topic.flush()
    topic.put({"k": "after", "at": n} for n in range(20, 30))

    eventually(lambda: spark.table("from_topic").count() >= 30, timeout_s=120)
    assert sorted(row["at"] for row in spark.table("from_topic").collect()) == list(range(30))
    assert query.isActive
    assert beside.isActive


def test_the_command_line_finds_a_broker_by_its_folder_and_a_second_one_is_refused_there(broker: Broker):
    command = [sys.executable, "-m", "slackwater", "kafka", "status", "--dir", str(broker.folder), "--json"]
    told = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=120).stdout)
    assert told["running"]
    assert told["servers"] == broker.servers
    with pytest.raises(KafkaError, match="a broker is there already"):
        Broker(broker.folder).start()


def test_a_broker_ends_in_order_when_its_starter_is_killed(broker: Broker, tmp_path: Path):
    script = (
        "import sys, time, pathlib; from slackwater.kafka import Broker; "
        "broker = Broker(pathlib.Path(sys.argv[1])); print(broker.start().pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        process = Proc().process(pid)
        assert process is not None
        os.kill(starter.pid, signal.SIGKILL)
        eventually(lambda: not Proc().alive(process), timeout_s=60)
    assert not Broker(tmp_path).status().running
    assert not Broker(tmp_path).stop()


def test_a_tiny_benchmark_over_topics_emits_every_window_with_the_counts_of_the_oracle(broker: Broker, tmp_path: Path):
    run = RunSpec(
        workload="ysb",
        policy="",
        seed=0,
        queries=2,
        rate=100,
        window_s=2.0,
        delay_s=1.0,
        seconds=4.0,
        phases="spread",
        payload="json",
        kafka=OnKafka("uniform", 0.5),
        # A slow machine may need long to emit; a quick one leaves the drain as soon as all is out.
        settings=RunSettings(heap="1g", warmup_min_s=2.0, warmup_max_s=2.0, steady_span_s=2.0, drain_s=60.0),
    )
    result = run_bench(BenchPlan(run, policies=("klink",), seeds=(0,)), Listener())
    assert result.failures == []
    (measured,) = result.runs
    assert measured.windows.expected == measured.windows.emitted >= 3
    assert measured.windows.wrong == measured.windows.wrong_outside == 0
    assert measured.propagation_s.count == measured.windows.expected
    assert measured.kafka is not None
    assert measured.kafka.topics == 2
