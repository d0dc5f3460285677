"""Queries that die come back from their checkpoints, by themselves, and people are told; the others go on."""

from __future__ import annotations

import logging
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.readwriter import DataStreamWriter

import slackwater
from slackwater import Alarms, Supervision, late
from tests.spark.support import Feed, batches, eventually, rates, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slackwater import Handle

pytestmark = pytest.mark.spark

SOON = Supervision(base_s=0.05, factor=1.5, cap_s=0.5, limit=50)


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLACKWATER_RUNTIME_DIR", str(tmp_path / "run"))


class Fragile:
    """A sink that keeps rows by batch id, and dies in chosen batches after it has taken their rows."""

    def __init__(self, deaths: dict[int, int]) -> None:
        self.deaths = deaths
        self.rows: dict[int, list[int]] = {}
        self.died = 0

    def take(self, batch: Any, batch_id: int) -> None:
        self.rows[batch_id] = sorted(row.v for row in batch.collect())
        if self.deaths.get(batch_id, 0) > 0:
            self.deaths[batch_id] -= 1
            self.died += 1
            raise ValueError(f"deliberate, in batch {batch_id}")

    @property
    def all_rows(self) -> list[int]:
        return sorted(value for rows in self.rows.values() for value in rows)


def start_fragile(stream: Any, sink: Fragile, name: str, checkpoint: Path | None) -> Any:
    writer = stream.writeStream.foreachBatch(sink.take).queryName(name)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.start()


def of(handle: Handle, name: str) -> Any:
    return next(one for one in handle.supervised() if one.name == name)


def all_grew(queries: list[Any], seen: list[int]) -> bool:
    return all(batches(query) > before for query, before in zip(queries, seen, strict=True))


def test_one_of_several_queries_dies_again_and_again_and_every_row_comes_out_once(
    spark: Any, attach: Callable[..., Handle], feed: Feed, tmp_path: Path
) -> None:
    told: list[Any] = []
    handle = attach(supervise=SOON, alarms=Alarms(tell=told.append), serve=True)
    others = [start(rates(spark), name=f"bystander{number}") for number in range(3)]
    eventually(lambda: all(batches(query) >= 1 for query in others))
    sink = Fragile({0: 2, 2: 1, 3: 2})
    first = start_fragile(feed.stream(spark, files_per_batch=1), sink, "fragile", tmp_path / "checkpoint")

    def took(step: int) -> bool:
        return len(sink.rows) > step and not any(sink.deaths.get(batch_id) for batch_id in range(step + 1))

    for step in range(5):
        seen = [batches(query) for query in others]
        feed.put([(float(step), "a", 10 * step + number) for number in range(3)])
        eventually(partial(took, step))
        eventually(partial(all_grew, others, seen))

    assert sink.died == 5
    eventually(lambda: of(handle, "fragile").restarts == 5)
    assert sink.all_rows == sorted(10 * step + number for step in range(5) for number in range(3))
    supervised = of(handle, "fragile")
    assert supervised.state == "running"
    assert supervised.query.isActive
    assert supervised.query.id == first.id
    assert not first.isActive
    assert "deliberate" in supervised.last_error
    assert all(query.isActive and query.exception() is None for query in others)

    eventually(lambda: told)
    assert (told[0].event, told[0].alarm.kind, told[0].alarm.query) == ("raised", "dead query", "fragile")
    assert [notice.alarm.query for notice in told if notice.event == "raised"] == ["fragile"]
    served = httpx2.get(f"{handle.url}/api/alarms", trust_env=False).json()
    assert [(alarm["kind"], alarm["query"]) for alarm in served["active"]] == [("dead query", "fragile")]
    status = httpx2.get(f"{handle.url}/api/status", trust_env=False).json()
    (row,) = [row for row in status["told"]["supervision"] if row["name"] == "fragile"]
    assert row["restarts"] == 5


def test_what_cannot_or_should_not_be_restarted_is_left_alone(
    spark: Any, attach: Callable[..., Handle], feed: Feed, tmp_path: Path
) -> None:
    handle = attach(supervise=SOON)
    feed.put([(0.0, "a", 1)])
    stopped = start_fragile(feed.stream(spark), Fragile({}), "stopped", tmp_path / "stopped")
    homeless = start_fragile(feed.stream(spark), Fragile({0: 99}), "homeless", None)
    eventually(lambda: not homeless.isActive and batches(stopped) >= 1)
    stopped.stop()
    eventually(lambda: of(handle, "homeless").state == "dead, and cannot be started again")
    eventually(lambda: "stopped" not in {one.name for one in handle.supervised()})
    (alarm,) = eventually(lambda: handle.alarms().active)
    assert alarm.query == "homeless"
    assert "checkpointLocation" in alarm.what_to_do
    assert spark.streams.active == []


def test_one_that_never_runs_well_is_given_up_and_a_user_may_start_it_again(
    spark: Any, attach: Callable[..., Handle], feed: Feed, tmp_path: Path
) -> None:
    handle = attach(supervise=Supervision(base_s=0.05, cap_s=0.1, limit=2))
    feed.put([(0.0, "a", 1)])
    sink = Fragile({0: 3})
    start_fragile(feed.stream(spark), sink, "hopeless", tmp_path / "checkpoint")
    eventually(lambda: of(handle, "hopeless").state == "given up")
    assert sink.died == 3
    eventually(lambda: {alarm.kind for alarm in handle.alarms().active} == {"dead query", "given up"})
    mended = start_fragile(feed.stream(spark), sink, "hopeless", tmp_path / "checkpoint")
    eventually(lambda: batches(mended) >= 1)
    assert of(handle, "hopeless").state == "running"
    assert sink.all_rows == [1]
    eventually(lambda: "given up" not in {alarm.kind for alarm in handle.alarms().active})


def test_detaching_ends_supervision_and_leaves_pyspark_as_it_was(
    spark: Any, attach: Callable[..., Handle], feed: Feed, tmp_path: Path
) -> None:
    before = DataStreamWriter.start, DataStreamWriter.toTable
    handle = attach(supervise=Supervision(base_s=30))
    assert DataStreamWriter.start is not before[0]
    feed.put([(0.0, "a", 1)])
    sink = Fragile({0: 1})
    query = start_fragile(feed.stream(spark), sink, "left", tmp_path / "checkpoint")
    eventually(lambda: not query.isActive)
    eventually(lambda: of(handle, "left").next_try_wall_ts is not None)
    handle.detach()
    assert (DataStreamWriter.start, DataStreamWriter.toTable) == before
    assert not [one for one in threading.enumerate() if one.name in ("slackwater-supervisor", "slackwater-alarms")]
    again = start_fragile(feed.stream(spark), sink, "left", tmp_path / "checkpoint")
    eventually(lambda: batches(again) >= 1)
    assert sink.all_rows == [1]


def test_a_late_query_comes_back_by_its_own_start(
    spark: Any, attach: Callable[..., Handle], feed: Feed, tmp_path: Path
) -> None:
    handle = attach(supervise=SOON)
    out: dict[tuple[int, str], int] = {}
    dies = [True]

    def sink(results: Any, _: int) -> None:
        rows = results.selectExpr("unix_seconds(window.start) AS start", "k", "total").collect()
        out.update({(row.start, row.k): row.total for row in rows})
        if dies:
            dies.clear()
            raise ValueError("deliberate")

    query = (
        late.window(feed.stream(spark), "ts", "10 seconds", watermark="1 second", allowed_lateness="30 seconds")
        .groupBy("k")
        .agg(F.sum("v").alias("total"))
        .start(sink, tmp_path / "checkpoint", name="revenue")
    )
    feed.put([(1.0, "a", 1), (2.0, "a", 2), (12.0, "a", 4)])
    eventually(lambda: not query.isActive)
    eventually(lambda: of(handle, "revenue").restarts == 1)
    feed.put([(25.0, "a", 8)])
    eventually(lambda: out == {(0, "a"): 3, (10, "a"): 4})
    assert late.handle(of(handle, "revenue").query).name == "revenue"


class Deadly:
    """Takes the scheduler's thread with it when told to."""

    name = "deadly"
    enforces = True
    deadly = False

    def decide(self, snapshot: slackwater.Snapshot) -> list[slackwater.Choice]:
        if self.deadly:
            raise SystemExit
        return [slackwater.Choice(query.key, query.eligible, 0.0, "") for query in snapshot.queries]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_queries_are_brought_back_though_the_scheduler_is_dead(
    spark: Any, attach: Callable[..., Handle], feed: Feed, tmp_path: Path
) -> None:
    policy = Deadly()
    handle = attach(policy=policy, watchdog_s=1, supervise=SOON, alarms=Alarms(scheduler_s=1))
    sink = Fragile({1: 1})
    start_fragile(feed.stream(spark, files_per_batch=1), sink, "fragile", tmp_path / "checkpoint")
    feed.put([(0.0, "a", 1)])
    eventually(lambda: sink.rows)
    policy.deadly = True
    eventually(lambda: not handle._thread.is_alive())
    feed.put([(1.0, "a", 2)])
    eventually(lambda: sink.died == 1)
    eventually(lambda: of(handle, "fragile").restarts == 1)
    feed.put([(2.0, "a", 3)])
    eventually(lambda: sink.all_rows == [1, 2, 3])
    eventually(lambda: {"scheduler not in charge", "dead query"} <= {a.kind for a in handle.alarms().active})


def test_a_changed_file_takes_effect_and_a_broken_one_does_not(
    spark: Any, attach: Callable[..., Handle], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="slackwater")
    file = tmp_path / "slackwater.toml"
    file.write_text("policy = 'round-robin'\nlanes = 1\n[queries.urgent]\npriority_class = -1\n")
    spark.conf.set("spark.slackwater.max_wait_s", "20")
    try:
        handle = attach(policy=None, config=file)
    finally:
        spark.conf.unset("spark.slackwater.max_wait_s")
    assert handle.policy == "round-robin"
    assert handle._engine.settings.max_wait_s == 20
    query = start(rates(spark), name="urgent")
    eventually(lambda: batches(query) >= 1)
    assert handle._engine.find("urgent").facts.options.priority_class == -1

    def rewrite(text: str) -> None:
        file.write_text(text)
        later = file.stat().st_mtime + 10
        os.utime(file, (later, later))

    rewrite("polcy = 'fcfs'")
    eventually(lambda: "Did you mean 'policy'?" in caplog.text)
    assert handle.policy == "round-robin"
    rewrite("policy = 'fcfs'\nlanes = 2\nalarms = true\n[queries.urgent]\npriority_class = 5\n")
    eventually(lambda: handle.policy == "fcfs")
    eventually(lambda: handle._engine.find("urgent").facts.options.priority_class == 5)
    eventually(lambda: handle.alarms().watched)
    assert "lanes is 2 instead of 1" in caplog.text
    file.unlink()
    seen = batches(query)
    eventually(lambda: batches(query) >= seen + 2)
    assert handle.policy == "fcfs"
