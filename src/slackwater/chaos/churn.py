"""Queries of several kinds, started and stopped at random; between rounds all are gone, and what is left is counted."""

from __future__ import annotations

import math
import random
import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from slackwater.chaos.leaks import Leaks, growths, ours
from slackwater.drivers.spark.attach import attach
from slackwater.errors import SlackwaterError
from slackwater.sim.experiment import claim

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from slackwater.chaos.leaks import Growth, Sample
    from slackwater.drivers.spark.handle import Handle
    from slackwater.sim.experiment import Claim

KINDS: Final = ("plain", "windows", "interval", "fails", "other session")
WITH_FUNCTIONS: Final = ("batches", *KINDS)
_FATE_S: Final = 2.0
_GONE_S: Final = 60.0


@dataclass(frozen=True)
class ChurnSettings:
    """minutes, starts: whichever is over first. queries: at most so many at once. rounds: with a count after each.

    functions: also queries with a Python function for every batch. Of these Spark itself leaves threads, connections
    and listeners behind when they are stopped in the middle, so only what is ours is held against the bounds.
    plain: nobody is attached.
    """

    minutes: float = 10.0
    queries: int = 50
    starts: int = 1000
    rounds: int = 20
    seed: int = 1
    functions: bool = False
    plain: bool = False


@dataclass
class Churned:
    """What happened: queries that ended though nobody stopped them and they were not made to fail are `lost`."""

    settings: ChurnSettings
    started: int = 0
    failed_by_themselves: int = 0
    lost: list[str] = field(default_factory=list)
    most_at_once: int = 0
    gates_opened: int = 0
    seconds: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    threads: dict[str, int] = field(default_factory=dict)

    @property
    def growths(self) -> list[Growth]:
        return growths(self.samples)

    @property
    def claims(self) -> list[Claim]:
        return [
            claim("queries that ended though nobody stopped them", len(self.lost), "≤", 0),
            claim("queries that were started", self.started, "≥", 1),
            *(
                claim(f"{one.name}: more in the last third than in the first", one.last - one.first, "≤", one.slack)
                for one in self.growths
                if math.isfinite(one.slack) and (ours(one.name) or not self.settings.functions)
            ),
        ]


class Churn:
    def __init__(self, spark: SparkSession, folder: Path, settings: ChurnSettings) -> None:
        self._spark = spark
        self._folder = folder
        self._settings = settings
        self._rng = random.Random(f"churn-{settings.seed}")
        self._running: dict[str, tuple[str, StreamingQuery, float]] = {}
        self._began_s = time.monotonic()
        self._other: Any = spark.newSession()
        self.found = Churned(settings)

    def run(self, told: Callable[[Churned], None] = lambda _: None) -> Churned:
        handle = None if self._settings.plain else attach(self._spark, "klink")
        leaks = Leaks(self._spark, handle)
        try:
            for number in range(self._settings.rounds):
                self._round(number, handle)
                self._await_nothing_left()
                leaks.take()
                self.found.samples = leaks.samples
                self.found.seconds = time.monotonic() - self._began_s
                told(self.found)
                if self._time_is_over:
                    break
            self.found.threads = leaks.thread_names()
        finally:
            self._stop_all()
            leaks.close()
            if handle is not None:
                self.found.gates_opened = handle.stats().gates_opened
                handle.detach()
        return self.found

    @property
    def _time_is_over(self) -> bool:
        return time.monotonic() - self._began_s > 60 * self._settings.minutes

    def _round(self, number: int, handle: Handle | None) -> None:
        """Its share of the starts; each query lives for a random while, and at the end all are stopped."""
        until = self._settings.starts * (number + 1) // self._settings.rounds
        while self.found.started < until and not self._time_is_over:
            self._look()
            room = len(self._running) < self._settings.queries
            if room and self._rng.random() < 0.8:
                self._start(handle)
            elif self._running:
                self._stop(self._rng.choice(sorted(self._running)))
        self._stop_all()

    def _start(self, handle: Handle | None) -> None:
        kinds = WITH_FUNCTIONS if self._settings.functions else KINDS
        number, kind = self.found.started, self._rng.choice(kinds)
        name = f"churn_{number:05d}"
        writer = self._frame(kind).writeStream.queryName(name).option("checkpointLocation", str(self._folder / name))
        if kind == "interval":
            writer = writer.trigger(processingTime="1 second")
        writer = writer.foreachBatch(_count) if kind == "batches" else writer.format("noop")
        self._running[name] = (kind, writer.start(), time.monotonic() + self._rng.random() * _FATE_S)
        self.found.started += 1
        self.found.most_at_once = max(self.found.most_at_once, len(self._running))
        if handle is not None and self._rng.random() < 0.1:
            self._order(handle, name)

    def _frame(self, kind: str) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  # Spark is loaded on use

        session = self._other if kind == "other session" else self._spark
        rates = session.readStream.format("rate").options(rowsPerSecond=10, numPartitions=1).load()
        if kind == "fails":
            return rates.select(F.expr("raise_error('deliberate')"))
        if kind != "windows":
            return rates
        return rates.withWatermark("timestamp", "1 second").groupBy(F.window("timestamp", "2 seconds")).count()

    def _order(self, handle: Handle, name: str) -> None:
        """Somebody pauses it or puts it into another class; it may be gone already, or not there yet."""
        try:
            handle.pause(name) if self._rng.random() < 0.5 else handle.set_class(name, 1)
        except SlackwaterError:
            return

    def _look(self) -> None:
        """Queries whose time is over are stopped; those that ended by themselves are told."""
        now_s = time.monotonic()
        for name, (kind, query, until_s) in list(self._running.items()):
            if not query.isActive or until_s < now_s:
                if not query.isActive and kind != "fails":
                    self.found.lost.append(f"{name} ({kind}): {query.exception()}")
                self._stop(name)

    def _stop(self, name: str) -> None:
        kind, query, _ = self._running.pop(name)
        query.stop()
        self.found.failed_by_themselves += kind == "fails" and query.exception() is not None
        shutil.rmtree(self._folder / name, ignore_errors=True)

    def _stop_all(self) -> None:
        for name in list(self._running):
            self._stop(name)

    def _await_nothing_left(self) -> None:
        """Until no query is known to Spark and no pool of one is left; what stays beyond that is counted."""
        deadline_s = time.monotonic() + _GONE_S
        context = self._spark.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark has no public door
        while time.monotonic() < deadline_s:
            queue = context.taskScheduler().rootPool().schedulableQueue().toArray()
            if not any(str(item.name()).startswith("slackwater-") for item in queue):
                return
            time.sleep(0.1)


def _count(batch: Any, _: int) -> None:
    batch.count()
