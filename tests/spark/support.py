"""What the tests on a real Spark share: waiting for a condition, rows for a stream, a look into the JVM."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from slackwater import Choice, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

SCHEMA = "ts timestamp, k string, v long"
Row = tuple[float, str, int]

# How many times as long everything may take; `make compat` asks whether a version works, not whether it is quick.
PATIENCE = float(os.environ.get("TEST_PATIENCE", "1"))

_names = itertools.count()


def spark_version() -> tuple[int, int]:
    """Major and minor of the PySpark that the tests run on; `make compat` has others than the newest."""
    major, minor = pyspark.__version__.split(".")[:2]
    return int(major), int(minor)


def eventually(condition: Callable[[], Any], timeout_s: float = 30.0) -> Any:
    """Poll until the condition holds, and return what it said. The bound is for a machine that is busy.

    Asking takes a fourth of the time at most: many conditions have Spark run a job, or write out all its progress, and
    would take the cores from what they wait for.
    """
    deadline = time.monotonic() + timeout_s * PATIENCE
    while True:
        asked = time.monotonic()
        said = condition()
        if said:
            return said
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"did not come true within {timeout_s} s; it last said {said!r}")
        time.sleep(max(0.05, 3 * (now - asked)))


def stays(condition: Callable[[], Any], seconds: float) -> None:
    """The condition holds all the time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert condition()
        time.sleep(0.05)


class Feed:
    """A stream of rows (event second, key, value) from files, each of which appears whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._inbox = folder / "inbox"
        self._inbox.mkdir(parents=True)
        self._count = 0
        self._first_wall_ts = time.time() - 10_000

    def put(self, rows: Iterable[Row]) -> None:
        draft = self._folder / "draft"
        draft.write_text("".join(json.dumps({"ts": ts, "k": k, "v": v}) + "\n" for ts, k, v in rows))
        # Spark takes files in the order of their times, which a fast test would leave equal.
        written_ts = self._first_wall_ts + self._count
        os.utime(draft, (written_ts, written_ts))
        draft.rename(self._inbox / f"{self._count:05d}.json")
        self._count += 1

    def stream(self, spark: Any, files_per_batch: int | None = None) -> Any:
        reader = spark.readStream.schema("ts double, k string, v long")
        if files_per_batch:
            reader = reader.option("maxFilesPerTrigger", files_per_batch)
        return reader.json(str(self._inbox)).withColumn("ts", F.col("ts").cast("timestamp"))


def rates(spark: Any, rows_per_s: int = 10) -> Any:
    return spark.readStream.format("rate").options(rowsPerSecond=rows_per_s, numPartitions=1).load()


def start(
    stream: Any,
    *,
    sink: str = "noop",
    name: str | None = None,
    every: str | None = None,
    mode: str = "append",
) -> Any:
    """Start a query, under some name if none is given."""
    writer = stream.writeStream.format(sink).outputMode(mode).queryName(name or f"q{next(_names)}")
    if every is not None:
        writer = writer.trigger(processingTime=every)
    return writer.start()


def batches(query: Any) -> int:
    """How many micro-batches have run; triggers without data do not count."""
    return sum("addBatch" in progress["durationMs"] for progress in query.recentProgress)


def batch_starts(query: Any) -> list[str]:
    return [p["timestamp"] for p in query.recentProgress if "addBatch" in p["durationMs"]]


# ---- the inside of Spark -----------------------------------------------------------------------------------------


def execution(query: Any) -> Any:
    return query._jsq.streamingQuery()


def field(target: Any, name: str) -> Any:
    """A private field of a JVM object, by reflection."""
    kind = target.getClass()
    while kind is not None:
        for declared in kind.getDeclaredFields():
            if declared.getName() == name:
                declared.setAccessible(True)
                return declared.get(target)
        kind = kind.getSuperclass()
    raise LookupError(name)


def trigger_fields(query: Any) -> tuple[str, int, str]:
    """What Spark's trigger executor goes by: the kind of its clock, its interval; and the query's trigger."""
    executor = field(execution(query), "triggerExecutor")
    clock = field(executor, "clock").getClass().getSimpleName()
    return clock, field(executor, "intervalMs"), field(execution(query), "trigger").toString()


def is_gated(query: Any) -> bool:
    try:
        return trigger_fields(query)[0] == "Gate"
    except AttributeError:  # its executor is not built yet
        return False


def task_order(spark: Any) -> str:
    """The kind of the algorithm that orders tasks of different pools."""
    root = spark.sparkContext._jsc.sc().taskScheduler().rootPool()
    return str(field(root, "taskSetSchedulingAlgorithm").getClass().getSimpleName())


def pools(spark: Any) -> set[str]:
    queue = spark.sparkContext._jsc.sc().taskScheduler().rootPool().schedulableQueue()
    return {pool.name() for pool in queue.toArray()}


def our_pools(spark: Any) -> set[str]:
    return {name for name in pools(spark) if name.startswith("slackwater-")}


@contextmanager
def jvm_errors(spark: Any) -> Iterator[Any]:
    """What Spark logs as an error meanwhile, as a Java writer."""
    jvm = spark._jvm
    written = jvm.java.io.StringWriter()
    log4j = jvm.org.apache.logging.log4j
    context = log4j.LogManager.getContext(False)
    root = context.getConfiguration().getRootLogger()
    appender = log4j.core.appender.WriterAppender.createAppender(
        log4j.core.layout.PatternLayout.createDefaultLayout(), None, written, "slackwater-test", False, True
    )
    appender.start()
    root.addAppender(appender, log4j.Level.ERROR, None)
    context.updateLoggers()
    try:
        yield written
    finally:
        root.removeAppender("slackwater-test")
        context.updateLoggers()
        appender.stop()


def our_listeners(spark: Any) -> int:
    return sum(
        listener.getClass().getName().startswith("Slackwater")
        for listener in spark._jsparkSession.streams().listListeners()
    )


# ---- policies ----------------------------------------------------------------------------------------------------


class OnRequest:
    """Starts only what it was told to start: the tests' hand on the gate."""

    name = "on-request"
    enforces = True

    def __init__(self) -> None:
        self.everything = False
        self.seen: set[str] = set()

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        self.seen.update(view.name for view in snapshot.queries if view.eligible)
        return [Choice(q.key, self.everything and q.eligible, 0.0, "as told") for q in snapshot.queries]


class Hanging:
    """Grants everything, or refuses it, until it is told to hang."""

    name = "hanging"
    enforces = True

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.grants = True
        self.refused = 0

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        self.go.wait()
        eligible = [query for query in snapshot.queries if query.eligible]
        self.refused += len(eligible) * (not self.grants)
        return [Choice(query.key, self.grants, 0.0, "") for query in eligible]
