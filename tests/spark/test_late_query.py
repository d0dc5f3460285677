"""Late handling on a real Spark: results on time, then right, also when something breaks in between."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.sql import functions as F  # noqa: N812

from slackwater import late
from slackwater.bench.kills_child import Eager
from slackwater.drivers.spark.sessions import tellers
from slackwater.errors import ConfigurationError
from slackwater.late.buckets import Local
from slackwater.late.errors import StoreError
from slackwater.late.inout import Priority
from slackwater.late.ledger import Emitted
from slackwater.late.parts import NO_WINDOW
from tests.spark.support import eventually, jvm_errors
from tests.spark.test_facts import facts_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.spark.support import Feed, Row

pytestmark = pytest.mark.spark

# Event seconds; windows of 10 s, the watermark 1 s behind, 30 s of lateness.
ROUNDS: list[list[Row]] = [
    [(1, "a", 1), (2, "b", 2), (9, "a", 3), (12, "a", 4)],  # the watermark passes 10
    [(21.5, "a", 5), (3, "a", 6), (4, "b", 7)],  # and 20; two rows for the first window
    [(25, "b", 8), (5, "c", 9), (15, "c", 10)],
    [(41.5, "a", 11), (9.5, "a", 12), (29, "a", 13)],
    [(71.5, "a", 14), (2, "z", 15), (35, "b", 16)],  # 40.5 before: (2, z) is just beyond 30 s of lateness, or not
    [(73, "a", 17), (1, "z", 18), (39, "b", 19)],  # the first two windows are gone
]


def count_and_sum(key: tuple[Any, ...], rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"k": [key[1]], "n": [len(rows)], "total": [int(rows["v"].sum())]})


def windowed(frame: Any, *, slide: str | None = None, **more: Any) -> Any:
    given: dict[str, Any] = {"watermark": "1 second", "allowed_lateness": "30 seconds", "staleness": 0.5} | more
    return late.window(frame, "ts", "10 seconds", slide, **given).groupBy("k")


def by_function(over: Any) -> Any:
    return over.apply(count_and_sum, "k string, n long, total long")


def by_aggregates(over: Any) -> Any:
    return over.agg(F.count("*").alias("n"), F.sum("v").alias("total"))


KINDS: list[Callable[[Any], Any]] = [by_function, by_aggregates]


class Trial:
    """A query over a feed that can be stopped and started again; what left it is read from the sink."""

    def __init__(self, spark: Any, feed: Feed, folder: Path, kind: Callable[[Any], Any], **more: Any) -> None:
        self.spark, self.feed, self.folder = spark, feed, folder
        self._kind, self._more = kind, more
        self.query: Any = None

    def start(self, sink: Any = None, **more: Any) -> Any:
        over = windowed(self.feed.stream(self.spark, files_per_batch=1), **self._more)
        self.query = self._kind(over).start(
            sink or late.Append(self.folder / "out"), self.folder / "checkpoint", name="trial", **more
        )
        return self.query

    def feed_all(self, rounds: list[list[Row]]) -> None:
        for rows in rounds:
            self.feed.put(rows)
            self.query.processAllAvailable()

    def stop(self) -> None:
        self.query.stop()
        assert late.handle(self.query).await_end()

    def results(self) -> Any:
        return self.spark.read.parquet(str(self.folder / "out"))

    def latest(self) -> Counter[tuple[Any, ...]]:
        rows = late.latest(self.results()).selectExpr("unix_seconds(window.start)", "k", "n", "total").collect()
        return Counter(tuple(row) for row in rows)

    def dead(self) -> int:
        return sum(late.handle(self.query).store.dead_counts().values())


def expected(rounds: list[list[Row]], slide: int = 10, *, without: list[Row] | None = None) -> Counter[tuple[Any, ...]]:
    """In plain Python: (window, key) -> count and sum."""
    groups: dict[tuple[int, str], list[int]] = {}
    for ts, key, value in [row for rows in rounds for row in rows if row not in (without or [])]:
        last = int(ts // slide * slide)
        for start in range(last, last - 10, -slide):
            groups.setdefault((start, key), []).append(value)
    return Counter((start, key, len(values), sum(values)) for (start, key), values in groups.items())


def purged(trial: Trial, windows: int) -> bool:
    return bool(late.handle(trial.query).status()["purged_windows"] >= windows)


def test_windows_leave_on_time_and_are_corrected(spark: Any, feed: Feed, tmp_path: Path) -> None:
    for kind in KINDS:
        trial = Trial(spark, type(feed)(tmp_path / kind.__name__ / "feed"), tmp_path / kind.__name__, kind)
        trial.start()
        trial.feed_all(ROUNDS[:2])
        rows = trial.results().selectExpr("unix_seconds(window.start) as start", "k", "n", "total", "revision", "kind")
        assert Counter(tuple(row) for row in rows.collect()) == Counter(
            [(0, "a", 2, 4, 1, "on_time"), (0, "b", 1, 2, 1, "on_time"), (10, "a", 1, 4, 1, "on_time")]
        )
        trial.feed_all(ROUNDS[2:4])
        assert late.handle(trial.query).settle()
        open_windows = [row for row in ROUNDS[3] if row[0] > 40]
        assert trial.latest() == expected(ROUNDS[:4], without=open_windows)
        status = late.handle(trial.query).status()
        assert (status["pending_rows"], status["late_rows"], status["dead_rows"]) == (0, 5, 0)
        trial.stop()
        trial.start()  # from its checkpoint
        trial.feed_all(ROUNDS[4:])
        assert late.handle(trial.query).settle()
        eventually(partial(purged, trial, 2))
        trial.feed_all([[(74, "a", 20), (3, "y", 21)]])
        assert late.handle(trial.query).settle()
        closed = [row for rows in ROUNDS for row in rows if row[0] < 70]
        dead = trial.dead()
        assert sum(n for _, _, n, _ in trial.latest().elements()) + dead == len(closed) + 1
        assert dead >= 1
        kinds = {row[0] for row in trial.results().select("kind").distinct().collect()}
        assert kinds >= {"on_time", "late"}
        trial.stop()


def test_the_scheduler_knows_the_windows_and_that_they_leave_in_the_batch(
    spark: Any, feed: Feed, tmp_path: Path, attach: Any
) -> None:
    handle = attach(policy="klink")
    trial = Trial(spark, feed, tmp_path, by_aggregates)
    trial.start()
    facts = facts_of(handle, trial.query)
    assert [(window.size_s, window.slide_s) for window in facts.windows] == [(10.0, 10.0)]
    assert facts.emits_at_sweep
    assert not facts.stateful
    trial.feed_all(ROUNDS[:2])
    assert trial.latest() == Counter([(0, "a", 2, 4), (0, "b", 1, 2), (10, "a", 1, 4)])
    trial.stop()


class Flaky:
    """A sink that fails at the chosen calls, before or after the result is out."""

    def __init__(self, inner: Any, failing: dict[int, str]) -> None:
        self.inner, self.failing, self.calls = inner, failing, 0

    def write(self, results: Any, emitted: Any) -> None:
        when = self.failing.get(self.calls)
        self.calls += 1
        if when == "before":
            raise RuntimeError("the sink is away")
        self.inner.write(results, emitted)
        if when == "after":
            raise RuntimeError("the sink does not answer")


@pytest.mark.parametrize("slide", [10, 5])
def test_a_batch_that_breaks_is_repeated_with_the_same_results(
    spark: Any, feed: Feed, tmp_path: Path, slide: int
) -> None:
    trial = Trial(spark, feed, tmp_path, by_function, slide=f"{slide} seconds")
    for rows in ROUNDS[:4]:
        feed.put(rows)
    for failing in ({0: "after"}, {1: "before"}, {}):
        trial.start(Flaky(late.Append(tmp_path / "out"), failing))
        if failing:
            eventually(lambda: trial.query.exception() is not None)
        else:
            trial.query.processAllAvailable()
            assert late.handle(trial.query).settle()
            watermark_s = late.handle(trial.query).status()["watermark_ms"] / 1000
        trial.stop()
    wanted = expected(ROUNDS[:4], slide)
    assert trial.latest() == Counter({key: n for key, n in wanted.items() if key[0] + 10 <= watermark_s})
    revisions = Counter(tuple(row) for row in trial.results().select("window", "k", "revision").collect())
    assert set(revisions.values()) == {1}


def test_late_results_that_cannot_leave_are_tried_again_and_once_they_left_the_query_goes_on(
    spark: Any, feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slackwater.late.run._PATIENCE", 2)  # as often as it fails here
    trial = Trial(spark, feed, tmp_path, by_aggregates)
    sink = Flaky(late.Latest(tmp_path / "out"), {2: "before", 3: "after"})
    trial.start(sink)
    trial.feed_all(ROUNDS[:2])  # two results on time
    assert late.handle(trial.query).settle()
    assert sink.calls >= 5
    assert trial.latest() == expected(ROUNDS[:2], without=[(21.5, "a", 5)])
    trial.feed_all(ROUNDS[2:3])
    assert trial.query.isActive
    trial.stop()


def test_rows_without_event_time_are_dead_letters(spark: Any, feed: Feed, tmp_path: Path) -> None:
    trial = Trial(spark, feed, tmp_path, by_aggregates)
    trial.start()
    trial.feed_all([[(1, "a", 1), (None, "a", 2), (12, "a", 3)], [(2, "a", 4), (None, "b", 5)]])  # type: ignore[list-item]
    assert late.handle(trial.query).settle()
    assert trial.latest() == Counter([(0, "a", 2, 5)])
    assert late.handle(trial.query).status()["dead_rows"] == 2
    told = tellers(spark.sparkContext.applicationId)["late"]
    (shown,) = [row for row in told() if row["dead_rows"] == 2]
    assert shown["staleness_bound"] == 0.5
    assert all(isinstance(value, str | float | int | bool | None) for value in shown.values())
    trial.stop()
    assert eventually(lambda: not [row for row in told() if row["dead_rows"] == 2])
    with late.handle(trial.query).store as store:
        store.open(1, read_only=True)
        assert sum(store.dead_counts().values()) == 2


def test_a_query_that_ends_by_itself_leaves_nothing_pending(spark: Any, feed: Feed, tmp_path: Path) -> None:
    trial = Trial(spark, feed, tmp_path, by_function)
    for rows in ROUNDS[:4]:
        feed.put(rows)
    seen: list[int] = []

    def collect(results: Any, number: int) -> None:
        seen.append(number)
        found = results.selectExpr("unix_millis(window.start)", "revision").distinct().collect()
        late.Append(tmp_path / "out").write(results, Emitted(number, {row[0]: row[1] for row in found}))

    run = late.handle(trial.start(collect, trigger={"availableNow": True}))
    assert trial.query.awaitTermination(60)
    eventually(lambda: run.ended)
    assert trial.latest() == expected(ROUNDS[:4], without=[row for row in ROUNDS[3] if row[0] > 40])
    assert seen == sorted(set(seen))
    assert run.status()["pending_rows"] == 0


def test_what_cannot_work_is_said_at_once(spark: Any, feed: Feed, tmp_path: Path) -> None:
    stream = feed.stream(spark)
    static = spark.createDataFrame([], "ts timestamp, k string, v long")
    with pytest.raises(ConfigurationError, match="streaming frame"):
        windowed(static)
    with pytest.raises(ConfigurationError, match="no column; there are: ts, k, v"):
        late.window(stream, "when", "10 seconds", watermark=1, allowed_lateness=30)
    with pytest.raises(ConfigurationError, match="a timestamp is needed"):
        late.window(stream, "v", "10 seconds", watermark=1, allowed_lateness=30)
    with pytest.raises(ConfigurationError, match="is no duration"):
        windowed(stream, watermark="a bit")
    with pytest.raises(ConfigurationError, match="a staleness bound"):
        windowed(stream, staleness=2)
    with pytest.raises(ConfigurationError, match="no such column"):
        windowed(stream).groupBy("nobody")
    with pytest.raises(ConfigurationError, match="'revision'"):
        windowed(stream).apply(count_and_sum, "revision long")
    with pytest.raises(ConfigurationError, match="no sink"):
        by_function(windowed(stream)).start(7, tmp_path / "checkpoint")
    with pytest.raises(ConfigurationError, match="256m"):
        by_function(windowed(stream)).memory("much")


def test_a_store_is_not_shared_nor_taken_over(spark: Any, feed: Feed, tmp_path: Path) -> None:
    trial = Trial(spark, feed, tmp_path, by_aggregates)
    trial.start()
    trial.feed_all(ROUNDS[:1])
    other = by_aggregates(windowed(feed.stream(spark)))
    changed = windowed(feed.stream(spark)).agg(F.count("*").alias("n"), F.sum(-F.col("v")).alias("total"))
    with pytest.raises(StoreError, match="in use"):
        other.start(late.Append(tmp_path / "more"), tmp_path / "new", store=tmp_path / "checkpoint" / "windows")
    trial.stop()
    with pytest.raises(ConfigurationError, match="belongs to query"):
        other.start(late.Append(tmp_path / "more"), tmp_path / "new", store=tmp_path / "checkpoint" / "windows")
    with pytest.raises(ConfigurationError, match="was made for"):
        changed.start(late.Append(tmp_path / "out"), tmp_path / "checkpoint")
    trial.start()  # right after, without waiting
    trial.query.stop()
    trial.start()
    trial.stop()


@pytest.mark.parametrize(
    "memory",
    [
        {"total": 0},
        {"total": "1m", "window": 600},
        {"total": "1m", "policy": Local(rho_min=0.5), "prestage": "at-once"},
        {"total": "1m", "parallel_writes": False, "ordered_io": False},
    ],
    ids=["none", "small-windows", "bootstrap", "one-writer"],
)
def test_results_are_the_same_whatever_is_in_memory(
    spark: Any, feed: Feed, tmp_path: Path, memory: dict[str, Any]
) -> None:
    trial = Trial(spark, feed, tmp_path, lambda over: by_function(over).memory(**memory))
    trial.start()
    for _ in range(4):  # enough executions for staging to be tried
        trial.feed_all([[(1, "a", 1), (12, "a", 2)], [(2, "b", 3), (13, "b", 4)]])
        assert late.handle(trial.query).settle()
    rows: list[list[Row]] = [[(1, "a", 1), (12, "a", 2)], [(2, "b", 3), (13, "b", 4)]] * 4
    assert trial.latest() == expected(rows, without=[(12, "a", 2), (13, "b", 4)])
    held = late.handle(trial.query).status()["memory_bytes"]
    assert held == 0 if memory["total"] == 0 else held <= 1 << 20
    trial.stop()
    assert spark.sparkContext._jsc.sc().getPersistentRDDs().isEmpty()


def test_late_rows_do_not_wait_for_another_batch_after_a_restart(spark: Any, feed: Feed, tmp_path: Path) -> None:
    trial = Trial(spark, feed, tmp_path, by_function, staleness=None)
    trial.start()
    trial.feed_all(ROUNDS[:2])
    trial.stop()
    assert trial.latest() == Counter([(0, "a", 2, 4), (0, "b", 1, 2), (10, "a", 1, 4)])
    trial.start()  # nothing comes
    assert late.handle(trial.query).status()["pending_rows"] == 2
    assert late.handle(trial.query).settle()
    assert trial.latest() == expected(ROUNDS[:2], without=[(21.5, "a", 5)])
    trial.stop()


def test_what_comes_after_the_allowed_lateness_is_a_dead_letter_though_its_window_is_still_there(
    spark: Any, feed: Feed, tmp_path: Path
) -> None:
    trial = Trial(spark, feed, tmp_path, by_aggregates)
    trial.start()
    run, go = late.handle(trial.query), threading.Event()
    run._inout.submit(Priority.PRESTAGE, "hold", lambda: go.wait(200) and None)  # nothing is purged meanwhile
    trial.feed_all(ROUNDS)
    assert run.settle()
    assert run.store.horizon_ms is None
    assert run.store.dead_counts() == {0: 2, 30_000: 1}
    dead: list[Row] = [(2, "z", 15), (1, "z", 18), (39, "b", 19)]
    assert trial.latest() == expected(ROUNDS, without=[*dead, (71.5, "a", 14), (73, "a", 17)])
    go.set()
    eventually(partial(purged, trial, 4))
    trial.stop()


def test_a_row_without_an_event_time_is_one_dead_letter(spark: Any, feed: Feed, tmp_path: Path) -> None:
    trial = Trial(spark, feed, tmp_path, by_function, slide="5 seconds")
    trial.start()
    nowhere: Any = (None, "a", 7)
    trial.feed_all([[(1, "a", 1), nowhere], [(21.5, "a", 2)]])
    assert late.handle(trial.query).settle()
    assert late.handle(trial.query).store.dead_counts() == {NO_WINDOW: 1}
    assert late.handle(trial.query).status()["dead_rows"] == 1
    trial.stop()


def test_a_result_that_is_repeated_after_a_restart_has_the_rows_that_it_had(
    spark: Any, feed: Feed, tmp_path: Path
) -> None:
    def compacted(over: Any) -> Any:
        return by_function(over).memory("64m", compaction=Eager())

    def second() -> list[Any]:
        rows = trial.results().where("unix_seconds(window.start) = 0 AND revision = 2")
        return sorted(tuple(row) for row in rows.select("k", "n", "total", "kind").collect())

    trial = Trial(spark, feed, tmp_path, compacted, staleness=None)
    trial.start()
    run, go = late.handle(trial.query), threading.Event()
    run._inout.submit(Priority.PRESTAGE, "hold", lambda: go.wait(200) and None)
    trial.feed_all(ROUNDS[:2])
    assert run.settle()
    trial.feed_all(ROUNDS[2:3])  # two more late rows, which no result has
    eventually(lambda: run.store.committed == 2)
    go.set()
    eventually(lambda: run.status()["compacted_windows"])
    before = second()
    assert before == [("a", 3, 10, "late"), ("b", 2, 9, "late")]
    trial.stop()
    trial.start()
    eventually(lambda: late.handle(trial.query).status()["repeated_results"])
    assert second() == before
    assert late.handle(trial.query).settle()
    assert trial.latest() == expected(ROUNDS[:3], without=[(21.5, "a", 5), (25, "b", 8)])
    trial.stop()


def held(run: Any, step: str) -> tuple[threading.Event, threading.Event]:
    """Let the next batch wait at a step of its store: an event when it is there, one to let it go on."""
    real, reached, go = getattr(run.store, step), threading.Event(), threading.Event()

    def hold(*arguments: Any, **more: Any) -> Any:
        reached.set()
        assert go.wait(200)
        return real(*arguments, **more)

    setattr(run.store, step, hold)
    return reached, go


def stopped(run: Any) -> bool:
    return not run.alive


def test_a_query_that_is_stopped_in_mid_batch_ends_quietly_and_goes_on_exactly(
    spark: Any, feed: Feed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trial = Trial(spark, feed, tmp_path, by_aggregates)
    with jvm_errors(spark) as logged:
        for rows, steps in ((ROUNDS[0], ("begin", "adopt")), (ROUNDS[1], ("emit",)), (ROUNDS[2], ())):
            put = False
            for step in steps:
                query = trial.start()
                run = late.handle(query)
                reached, go = held(run, step)
                if not put:
                    feed.put(rows)
                    put = True
                assert reached.wait(200)
                stop = threading.Thread(target=query.stop)
                stop.start()
                eventually(partial(stopped, run))
                assert not run.await_end(0.3), "its store is open while the batch runs"
                assert run.store.about
                go.set()
                stop.join(200)
                assert run.await_end()
                assert query.exception() is None, "Spark takes it for the stop that it was"
            trial.start()
            trial.feed_all([] if put else [rows])
            trial.query.processAllAvailable()
            trial.stop()
    trial.start()
    trial.feed_all(ROUNDS[3:4])
    assert late.handle(trial.query).settle()
    assert trial.latest() == expected(ROUNDS[:4], without=[row for row in ROUNDS[3] if row[0] > 40])
    trial.stop()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert "terminated with error" not in logged.toString()
    assert "StackOverflowError" not in logged.toString()


def test_an_error_in_a_batch_is_still_the_query_s(spark: Any, feed: Feed, tmp_path: Path) -> None:
    def broken(_: Any, __: Any) -> None:
        raise RuntimeError("the sink is full")

    trial = Trial(spark, feed, tmp_path, by_aggregates)
    trial.start(broken)
    feed.put(ROUNDS[0])
    eventually(trial.query.exception)
    assert "the sink is full" in str(trial.query.exception())
    assert late.handle(trial.query).await_end()
