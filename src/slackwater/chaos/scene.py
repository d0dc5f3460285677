"""Queries with an oracle that run attached, and what is asked about them while a trouble lasts and when it is over."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from slackwater.chaos.bridge import put_between
from slackwater.chaos.disk import FullDisk
from slackwater.chaos.wayward import Wayward
from slackwater.chaos.workload import LATE, Crowd
from slackwater.drivers.spark.attach import attach
from slackwater.errors import SlackwaterError
from slackwater.policies.registry import create
from slackwater.verify.compare import compare, places
from slackwater.verify.feed import Feed
from slackwater.verify.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from slackwater.chaos.bridge import FaultyBridge, FaultyGate
    from slackwater.drivers.spark.handle import Handle
    from slackwater.verify.model import Differences

_POLL_S = 0.05
_ROWS_A_FILE = 20


class Scene:
    """`files` is how many troubles it can be put through: each has a file of input, which must be taken meanwhile."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        *,
        queries: int = 3,
        files: int = 16,
        seed: int = 1,
        policy: str = "klink",
        watchdog_s: float = 1.0,
        max_wait_s: float = 5.0,
        timeout_s: float = 120.0,
    ) -> None:
        self.spark = spark
        self.folder = folder
        self.workload = Crowd(queries)
        self.timeout_s = timeout_s
        self._policy, self._settings = policy, {"watchdog_s": watchdog_s, "max_wait_s": max_wait_s}
        self._rows = self.workload.generate(seed, files * _ROWS_A_FILE)
        self._feed = Feed(folder / "feed", self._rows, self.workload.closing(self._rows), files)
        self._flag = folder / "disk-is-full"
        self.pipeline = Pipeline(spark, self.workload, self._feed, folder, lambda root: FullDisk(root, self._flag))
        self.files_given = 0
        self.handle: Handle
        self.policy: Wayward
        self.bridge: FaultyBridge
        self.gate: FaultyGate

    def attach(self, **more: Any) -> None:
        """Also again, after the last handle was detached."""
        self.policy = Wayward(create(self._policy))
        self.handle = attach(self.spark, self.policy, serve=True, **(self._settings | more))
        self.bridge, self.gate = put_between(self.handle)

    def begin(self) -> None:
        self.attach()
        self.pipeline.start()

    def close(self) -> None:
        """Whatever state it is in: a scheduler that hangs is let go first."""
        self.fill_disk(full=False)
        with suppress(AttributeError):  # never attached
            self.policy.come_back()
            self.bridge.go.set()
        self.pipeline.stop()
        with suppress(AttributeError):
            self.handle.detach()

    # ---- what must hold -----------------------------------------------------------------------------------------

    def take_a_file(self, but: Iterable[str] = ()) -> int:
        """The next file comes, and every query, but those, takes it. Returns how many batches ran meanwhile."""
        self.files_given += 1
        self._feed.arrive(self.files_given)
        names = [stage.name for stage in self.workload.stages if stage.name not in set(but)]
        before = sum(self.pipeline.batches().values())

        def taken() -> bool:
            self.nobody_stopped(but)
            found = self.pipeline.files_taken()
            return all(found[name] >= self.files_given for name in names)

        self.until(taken, lambda: f"not every query took file {self.files_given}: {self.pipeline.files_taken()}")
        return sum(self.pipeline.batches().values()) - before

    def nobody_stopped(self, but: Iterable[str] = ()) -> None:
        for stage in self.workload.stages:
            if stage.name in but:
                continue
            query = self.pipeline.query(stage.name)
            if not query.isActive:
                raise SlackwaterError(f"query {stage.name} was stopped: {query.exception() or 'without an error'}")

    def in_charge(self) -> None:
        """The scheduler decides, the gates are closed, and every query is one of those that it knows."""
        decisions = self.handle.stats().decisions
        names = {f"{self.workload.name}:{stage.name}" for stage in self.workload.stages}

        def again() -> bool:
            last = self.bridge.last
            decides = self.handle.stats().decisions >= decisions + 2
            known = {status.name for status in self.handle.status()}
            return decides and last is not None and not last.gates_open and names <= known

        self.until(again, lambda: "the scheduler is not in charge again")

    def finish(self) -> dict[str, Differences]:
        """All input is there and taken; what came out, against the oracle."""
        self._feed.arrive()
        self.pipeline.finish(time.monotonic() + self.timeout_s)
        expected = self.workload.expected(self._rows)
        found = {}
        for stage in self.workload.stages:
            columns, rows = self.pipeline.answer(stage.name)
            found[stage.name] = compare(expected[stage.name], rows, places(stage.keys, columns))
        return found

    def until(self, holds: Callable[[], bool], otherwise: Callable[[], str]) -> None:
        deadline_s = time.monotonic() + self.timeout_s
        while not holds():
            if time.monotonic() > deadline_s:
                raise SlackwaterError(f"after {self.timeout_s:g} s: {otherwise()}")
            time.sleep(_POLL_S)

    # ---- levers -------------------------------------------------------------------------------------------------

    def fill_disk(self, *, full: bool) -> None:
        if full:
            self._flag.touch()
        else:
            self._flag.unlink(missing_ok=True)

    @property
    def late(self) -> str:
        return LATE
