"""What a query keeps in Spark's memory: frames of batches whose windows are to come, and past windows brought back.

All of it is on disk too, so nothing is lost when it goes. `buckets` and `staging` decide; here it is done, on Spark.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from pyspark import StorageLevel

from slackwater.late.buckets import BucketPolicy, Buckets, MemoryView, Scarce, Share, share_needed
from slackwater.late.compaction import CompactionRule
from slackwater.late.inout import InOut, Priority
from slackwater.late.staging import Staged, StagingCosts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from slackwater.late.index import Source
    from slackwater.late.past import PastWindow
    from slackwater.late.store import WindowStore

    Read = Callable[[SparkSession, Iterable[Source], Iterable[int]], DataFrame]

log = logging.getLogger(__name__)

# Pre-staging that is planned every second begins up to a second late.
_PLANNED_EVERY_S: Final = 1.0
_WEIGHT: Final = 0.3

Prestage = Literal["predicted", "at-once", "off"]


@dataclass(frozen=True)
class Options:
    """How a query uses memory and the disk; the defaults are meant for use, the rest for measuring.

    memory_bytes: of all windows together; None for `usual_bytes`.
    fold_after: the store's journal is summed up after so many entries.
    """

    memory_bytes: int | None = None
    window_bytes: int | None = None
    policy: BucketPolicy = field(default_factory=Scarce)
    prestage: Prestage = "predicted"
    ordered_io: bool = True
    parallel_writes: bool = True
    compaction: CompactionRule = field(default_factory=CompactionRule)
    fold_after: int = 64


def usual_bytes(spark: SparkSession) -> int:
    """An eighth of what Spark may store: with more, the heap follows what there is to keep, and little is faster."""
    stores = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().valuesIterator()  # noqa: SLF001
    total = 0
    while stores.hasNext():
        total += stores.next()._1()  # noqa: SLF001  # a Scala pair's first
    return total // 8


class Memory:
    """Called by the threads of a query's batches, of its late executions, and of its background work."""

    def __init__(
        self, spark: SparkSession, store: WindowStore, inout: InOut, options: Options, *, blocking: bool
    ) -> None:
        self._spark = spark
        self._store = store
        self._inout = inout
        self._options = options
        self._blocking = blocking
        self._window_bytes = 0.0
        self._budget_bytes = usual_bytes(spark) if options.memory_bytes is None else options.memory_bytes
        self._buckets = Buckets(self._budget_bytes, options.window_bytes or self._budget_bytes)
        self.batch_bytes = 0.0  # what batches leave for windows that are to come, the last ones counting most
        self._staged: dict[int, Staged] = {}
        self._lock = threading.RLock()
        self.costs = StagingCosts()
        self.staged_windows = 0

    @property
    def used_bytes(self) -> int:
        with self._lock:
            return self._buckets.used_bytes + sum(staged.bytes for staged in self._staged.values())

    def held(self, window: int, sources: list[Source]) -> Mapping[str, DataFrame]:
        """The frames that hold the window's rows, by the name of the file that has them, too."""
        with self._lock:
            frames, staged = self._buckets.frames(window), self._staged.get(window)
            found = {
                source.file.name: frames[source.file.batch]
                for source in sources
                if source.file.replaces is None and source.file.batch in frames
            }
            # Files that were merged since are not what was staged: their rows would count twice.
            if staged is not None and staged.names <= {source.file.name for source in sources}:
                found |= dict.fromkeys(staged.names, staged.frame)
            return found

    # Batches

    def cached(self, frame: DataFrame) -> DataFrame | None:
        """The frame of a batch that is about to be written, to be kept as it is; None when there is no room."""
        with self._lock:
            if not self._buckets.room_for(self.batch_bytes):
                return None
        return frame.persist(StorageLevel.MEMORY_AND_DISK)

    def keep(self, batch_id: int, frame: DataFrame | None, shares: Mapping[int, Share]) -> None:
        """What windows that are to come have of a batch, and its frame, if it was cached."""
        with self._lock:
            size = sum(share.bytes for share in shares.values())
            self.batch_bytes += (size - self.batch_bytes) * (_WEIGHT if self.batch_bytes else 1.0)
            if frame is not None and not self._buckets.add(batch_id, frame, shares, time.monotonic()):
                self._destage([frame])

    def executed(self, windows: Iterable[int], through: int) -> None:
        """Windows were executed on time: what they measured is what the next ones will."""
        sizes = [sum(s.group.bytes for s in self._store.sources(window, through=through)) for window in windows]
        with self._lock:
            for size in sizes:
                self._window_bytes += (size - self._window_bytes) * (_WEIGHT if self._window_bytes else 1.0)
            self._size_buckets()

    def _size_buckets(self) -> None:
        """A function that does not block needs no more in memory than hides the reading of the rest (Aion 3.3)."""
        if self._blocking or self._options.window_bytes is not None or not self.costs.known:
            return
        share = share_needed(self._blocking, self.costs.staging.row_s, self.costs.staged.row_s)
        self._buckets.window_bytes = min(self._budget_bytes, round(share * self._window_bytes))

    def let_go(self, past: Sequence[int]) -> None:
        """As the policy says; `past` are windows that were executed."""
        with self._lock:
            views = self._buckets.views(past, time.monotonic())
            if views:
                memory = MemoryView(self.used_bytes, self._budget_bytes, self._available())
                self._destage(self._buckets.release(self._options.policy.keep(views, memory)))

    # Past windows

    def is_staged(self, windows: Iterable[int]) -> bool:
        with self._lock:
            return all(window in self._staged for window in windows)

    def plan_staging(self, past: Iterable[PastWindow], read: Read) -> None:
        """Bring windows back that will be executed soon, where that pays."""
        if self._options.prestage == "off":
            return
        now_s = time.monotonic()
        with self._lock:
            for window in past:
                start = window.start_ms
                info = self._store.window(start) if window.pending else None
                if info is None or start in self._staged or not self.costs.pays(info.rows):
                    continue
                soon = window.next_s(now_s) - now_s <= self.costs.lead_s(info.rows) + _PLANNED_EVERY_S
                room = self.used_bytes + info.bytes <= self._budget_bytes
                if room and (soon or self._options.prestage == "at-once"):
                    self._inout.submit(Priority.PRESTAGE, ("prestage", start), _Staging(self, start, read))

    def stage(self, window: int, read: Read) -> None:
        began_s = time.monotonic()
        with self._store.reading([window]) as sources:
            found = sources[window]
            if not found:
                return
            frame = read(self._spark, found, [window]).persist(StorageLevel.MEMORY_AND_DISK)
            rows = frame.count()
        with self._lock:
            self.costs.staging.observe(rows, time.monotonic() - began_s)
            self.staged_windows += 1
            names = frozenset(source.file.name for source in found)
            self._staged[window] = Staged(names, frame, sum(source.group.bytes for source in found))

    def unstage(self, windows: Iterable[int]) -> None:
        with self._lock:
            self._destage([self._staged.pop(window).frame for window in windows if window in self._staged])

    def clear(self) -> None:
        """At the end, when nobody works in the background any more."""
        with self._lock:
            frames = self._buckets.clear() + [staged.frame for staged in self._staged.values()]
            self._staged.clear()
        for frame in frames:
            try:
                frame.unpersist()
            except Exception as error:
                log.debug("a frame is left to Spark: %s", error)

    def _destage(self, frames: list[Any]) -> None:
        for frame in frames:
            if not self._inout.submit(Priority.DESTAGE, ("destage", id(frame)), frame.unpersist):
                frame.unpersist()

    def _available(self) -> float:
        """The share of Spark's storage memory that is free; of the executor that has least."""
        try:
            status = self._spark.sparkContext._jsc.sc().getExecutorMemoryStatus()  # noqa: SLF001
            shares, entries = [], status.values().iterator()
            while entries.hasNext():
                entry = entries.next()
                shares.append(int(entry._2()) / max(1, int(entry._1())))  # noqa: SLF001 - a tuple: most, left
            return min(shares, default=1.0)
        except Exception as error:
            log.debug("Spark's storage memory is not known: %s", error)
            return 1.0


@dataclass(frozen=True)
class _Staging:
    memory: Memory
    window: int
    read: Read

    def __call__(self) -> None:
        self.memory.stage(self.window, self.read)
