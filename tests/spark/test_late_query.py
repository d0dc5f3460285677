"""Late handling on a real Spark: results on time, then right, also when something breaks in between."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import functions as F  # noqa: N812

from slackwater import late
from tests.spark.support import eventually
from tests.spark.test_facts import facts_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.spark.support import Feed, Row

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
        run = late.handle(self.query)
        self.query.stop()
        eventually(lambda: run.ended)

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
