"""A running query with late handling: what each batch does, and what is done between batches.

In a batch, on Spark's thread: rows become durable, the watermark moves, and windows that it passes are executed and
leave. All of it is repeated as it was if the batch is. Between batches, on a thread of their own: past windows are
executed again when their results become stale, and purged when no more rows may come. One more thread reads and frees
memory (`inout`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from slackwater.drivers.spark.sessions import room_for
from slackwater.late.buckets import Share
from slackwater.late.checkpoint import is_committed, next_watermark_ms
from slackwater.late.errors import LateExecutionError
from slackwater.late.execution import Executor
from slackwater.late.inout import InOut, Priority
from slackwater.late.memory import Memory
from slackwater.late.naming import LATENESS
from slackwater.late.parts import NO_WINDOW, write_parts
from slackwater.late.past import PastWindows
from slackwater.late.staleness import fewest
from slackwater.late.stopping import Batches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from slackwater.late.bounds import Bound
    from slackwater.late.functions import WindowFunction
    from slackwater.late.index import DataFile, Source
    from slackwater.late.memory import Options
    from slackwater.late.past import PastWindow
    from slackwater.late.sinks import Sink
    from slackwater.late.staleness import Kind
    from slackwater.late.store import WindowStore
    from slackwater.late.windows import Windows

log = logging.getLogger(__name__)

POOL: Final = "late"
_PATIENCE: Final = 5
_LOOK_S: Final = 1.0
_COMMIT_LOOK_S: Final = 0.1
_INTERVAL_MOST_S: Final = 30.0
_GIVES_WAY_MOST_S: Final = 10.0
_ONE_PART_BYTES: Final = 4 << 20
_BATCH_ENDS_S: Final = 30.0


class Run:
    def __init__(
        self,
        spark: SparkSession,
        name: str,
        windows: Windows,
        delay_ms: int,
        function: WindowFunction,
        kept_schema: StructType,
        bound: Bound,
        staleness: float | None,
        store: WindowStore,
        sink: Sink,
        checkpoint: str,
        options: Options,
    ) -> None:
        self.spark = spark
        self.application_id = str(spark.sparkContext.applicationId)
        self.name = name
        self.store = store
        self._windows = windows
        self._delay_ms = delay_ms
        self._function = function
        self._bound = bound
        self._checkpoint = checkpoint
        self._options = options
        self.stream: Any = None
        self._settle_at_end = False
        self.ended = False
        self._watermark_ms = 0
        self._open: set[int] = set()
        self._past = PastWindows(staleness)
        self._executing: set[int] = set()  # past windows whose results are on their way
        self._arrivals: dict[int, dict[int, int]] = {}  # by batch that is not known to be committed: events by window
        self._events: Counter[int] = Counter()  # by window, of windows that are not executed yet
        self._batch_s: float | None = None
        self._interval_s = 0.0
        self._gave_way_s: float | None = None  # since when late windows wait for a free lane
        self._again: list[tuple[str, int, list[int]]] = []
        self._counts: Counter[str] = Counter()
        self._failures = 0
        self._failure: Exception | None = None
        self._settled = threading.Event()
        self._settling = False
        self._lock = threading.RLock()  # guards the fields above
        self._routing = threading.Lock()  # a batch is being written, or windows are being purged
        self._changed = threading.Condition(self._lock)
        self._batches = Batches(name, lambda: self.stream is not None and not self.alive)
        self._inout = InOut(f"late-io {name}", self._prepare_thread, ordered=options.ordered_io)
        self._memory = Memory(spark, store, self._inout, options, blocking=function.blocking)
        self._executor = Executor(store, function, kept_schema, windows.size_ms, sink, self._memory.held)
        self._thread = threading.Thread(target=self._look_after_the_past, name=f"late {name}", daemon=True)

    def start(self, stream: Any, *, settle_at_end: bool) -> None:
        """Once Spark runs the query. The threads end when the query does.

        settle_at_end: before that, execute what still waits: of a query that ends by itself.
        """
        self.stream, self._settle_at_end = stream, settle_at_end
        self._inout.start()
        self._thread.start()

    # In a batch

    def on_batch(self, frame: DataFrame, batch_id: int) -> None:
        with self._batches.running(batch_id):
            self._batch(frame, batch_id)

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        if self._failure is not None:
            raise LateExecutionError(self.name, self._failure)
        began_ms = self._watermark_ms
        self._committed(batch_id - 1)
        self.store.begin(batch_id)
        kept = self._function.kept(frame)
        if not self._options.parallel_writes or (
            self._function.kind == "aggregates" and self._memory.batch_bytes < _ONE_PART_BYTES
        ):
            kept = kept.coalesce(1)  # a file and a Python worker for each partition cost more than they save
        with self._lock:
            closed_ms = self._line_ms(self._past.taking(began_ms))
        cached = self._memory.cached(kept)
        try:
            with self._routing:
                files = write_parts(kept, self.store, batch_id, closed_ms)
                swept = self._take_in(batch_id, cached, files, began_ms)
        except BaseException:
            if cached is not None:
                cached.unpersist()
            raise
        if swept:
            self._execute_on_time(frame.sparkSession, swept, batch_id)
        with self._changed:
            self._memory.let_go([window.start_ms for window in self._past])
            self._learn_interval()
            self._changed.notify_all()

    def _take_in(self, batch_id: int, cached: DataFrame | None, files: list[DataFile], began_ms: int) -> list[int]:
        """The rows are durable: note what came, move the watermark. Returns the windows that it passes."""
        events: Counter[int] = Counter()
        shares: dict[int, Share] = {}
        dead = 0
        latest_ms = began_ms + self._delay_ms
        for file in files:
            for group in file.groups:
                if group.event_ms_max is not None:
                    latest_ms = max(latest_ms, group.event_ms_max)
                if group.window == NO_WINDOW:
                    dead += group.events
                    continue
                events[group.window] += group.events
                if file.name.startswith("dead/"):
                    dead += group.events
                    continue
                share = shares.get(group.window, Share(0, 0))
                shares[group.window] = Share(share.rows + group.rows, share.bytes + group.bytes)
        lateness: Counter[float] = Counter()
        for window, count in events.items():
            lateness[max(0, began_ms - self._windows.end(window)) / 1000 if began_ms else 0.0] += count
        with self._lock:
            self._watermark_ms = max(began_ms, latest_ms - self._delay_ms)
            if events:
                self._bound.seen(lateness, began_ms)
            past = {w: events[w] for w in shares if w in self._past or (began_ms and self._windows.swept(w, began_ms))}
            coming = {window: share for window, share in shares.items() if window not in past}
            self._arrivals[batch_id] = past
            self._open |= coming.keys()
            self._events.update({window: events[window] for window in coming})
            self._counts.update(batches=1, rows=sum(events.values()), dead_rows=dead, late_rows=sum(past.values()))
            self._memory.keep(batch_id, cached, coming)
            return sorted(window for window in self._open if self._windows.swept(window, self._watermark_ms))

    def _execute_on_time(self, spark: SparkSession, windows: list[int], batch_id: int) -> None:
        self._executor.execute(spark, windows, "on_time", batch_id)
        self._memory.executed(windows, batch_id)
        now_s = time.monotonic()
        with self._lock:
            sketch, span_s = self._bound.sketch(), self._bound.span_s
            self._past.replan(sketch)
            for window in windows:
                self._open.discard(window)
                on_time = self._events.pop(window, 0)
                end_ms = self._windows.end(window)
                self._past.add(window, end_ms, span_s, on_time, sketch, now_s=now_s, through=batch_id)
            self._counts.update(on_time_results=len(windows))

    def _learn_interval(self) -> None:
        """How long it is from batch to batch, while they come."""
        now_s = time.monotonic()
        if self._batch_s is not None:
            since_s = min(now_s - self._batch_s, _INTERVAL_MOST_S)
            self._interval_s = since_s if not self._interval_s else 0.7 * self._interval_s + 0.3 * since_s
        self._batch_s = now_s

    # Between batches

    def _look_after_the_past(self) -> None:
        self._prepare_thread()
        while True:
            with self._changed:
                if not self._again and not self._settling:
                    self._changed.wait(self._wait_s())
            ending = not self.alive
            if ending and not self._settles_now():
                break
            try:
                self._look()
                self._failures, self._failure = 0, None  # a disk that had room again ends no query
            except Exception as error:
                if ending:
                    log.warning("late windows of %s wait for its next start: %s", self.name, error)
                    break
                if not self.alive:
                    log.info("late windows of %s were cut short when the query was stopped: %s", self.name, error)
                    continue
                self._failures += 1
                log.warning("late windows of %s: attempt %d failed: %s", self.name, self._failures, error)
                if self._failures >= _PATIENCE:
                    self._failure = error
                time.sleep(min(10.0, 0.2 * 2**self._failures))
        self._end()

    def _settles_now(self) -> bool:
        """The query has ended by itself, and rows wait."""
        if not self._settle_at_end or self.stream.exception() is not None:
            return False
        with self._lock:
            self._settling = bool(self._arrivals or self._again or any(window.pending for window in self._past))
            return self._settling

    def _wait_s(self) -> float:
        if self._arrivals or self._gave_way_s is not None:
            return _COMMIT_LOOK_S
        now_s = time.monotonic()
        return min(_LOOK_S, max(0.01, self._past.wake_s(now_s) - self._interval_s - now_s))

    def _look(self) -> None:
        with self._lock:
            waiting = max(self._arrivals, default=None)
        if waiting is not None and is_committed(self._checkpoint, waiting):
            self._committed(waiting)
        while self._again:
            self._execute_again(*self._again[0])
            self._again.pop(0)
        now_s = time.monotonic()
        with self._lock:
            settle = self._settling and not self._arrivals
            due = self._past.due(now_s, self._watermark_ms, self._interval_s)
            if settle:
                taken = {window.start_ms for found in due.values() for window in found}
                left = [window for window in self._past if window.pending and window.start_ms not in taken]
                if left:
                    due.setdefault("late", []).extend(left)
            if due and not settle and self._gives_way(due, now_s):
                return
        kinds: tuple[Kind, ...] = ("final", "late")
        for kind in kinds:
            if kind in due:
                self._execute_late(kind, due[kind])
        with self._lock:
            self._memory.plan_staging(self._past, self._executor.read)
        self._plan_cleanup()
        if settle:
            with self._lock:
                self._settling = False
                self._settled.set()

    def _gives_way(self, due: dict[Kind, list[PastWindow]], now_s: float) -> bool:
        """Results on time go first, of all queries: wait for a lane that stays free, but not beyond the bound."""
        rows = sum(info.rows for found in due.values() for w in found if (info := self.store.window(w.start_ms)))
        if room_for(self.spark, self._memory.costs.execution_s(rows)):
            self._gave_way_s = None
            return False
        self._gave_way_s = now_s if self._gave_way_s is None else self._gave_way_s
        overdue = "late" in self._past.due(now_s, self._watermark_ms) or now_s - self._gave_way_s > _GIVES_WAY_MOST_S
        if overdue:
            self._gave_way_s = None
        return not overdue

    def _execute_late(self, kind: str, windows: list[PastWindow]) -> None:
        """All that are due together, in one Spark job."""
        now_s = time.monotonic()
        with self._lock:
            through = self.store.committed
            waiting = {window.start_ms: window.pending for window in windows}
            for window in windows:
                window.executed(now_s, through)
            starts = sorted(waiting)
            self._executing.update(starts)
        staged = self._memory.is_staged(starts)
        try:
            self._executor.execute(self.spark, starts, kind, through)
        except BaseException:
            with self._lock:
                for window in windows:
                    window.not_executed(waiting[window.start_ms], now_s)
                self._executing.difference_update(starts)
            raise
        rows = sum(info.rows for start in starts if (info := self.store.window(start)) is not None)
        with self._lock:
            self._memory.costs.executed(time.monotonic() - now_s, rows, staged=staged)
            self._counts.update({f"{kind}_results": len(starts)})
            self._executing.difference_update(starts)
        self._memory.unstage(starts)
        for start in starts:
            self._plan_compaction(start, through)

    def _execute_again(self, kind: str, through: int, windows: list[int]) -> None:
        """A late result that a crash may have kept from going out: the same numbers, the same rows."""
        alive = [window for window in windows if self.store.window(window) is not None]
        if alive:
            self._executor.execute(self.spark, alive, kind, through)
            self._counts.update(repeated_results=len(alive))

    def _committed(self, batch_id: int) -> None:
        """Spark has committed a batch: its late rows count."""
        self.store.commit(batch_id)
        now_s = time.monotonic()
        with self._lock:
            for batch in sorted(batch for batch in self._arrivals if batch <= batch_id):
                for start, events in self._arrivals.pop(batch).items():
                    window = self._past.get(start)
                    if window is None:  # nothing came on time
                        end_ms, span_s = self._windows.end(start), self._bound.span_s
                        sketch = self._bound.sketch()
                        window = self._past.add(start, end_ms, span_s, 0, sketch, now_s=now_s, through=-1)
                    window.arrived(events, now_s)

    # Cleaning up

    def _plan_compaction(self, start: int, through: int) -> None:
        """After an execution up to `through`; not beyond it, for it is repeated over the same rows after a crash."""
        with self._lock:
            window = self._past.get(start)
            if window is None:
                return
            cdf = self._bound.sketch().cdf(window.span_s)
            planned = len(fewest(cdf, window.trigger.bound)) if window.corrected else 1
            to_come = planned - window.executions
        if self.store.worth_compacting(start, to_come):
            self._inout.submit(Priority.CLEANUP, ("compact", start), lambda: self._compact(start, through))

    def _compact(self, start: int, through: int) -> None:
        if self.store.compact(start, through=through) is not None:
            self._counts.update(compacted_windows=1)

    def _plan_cleanup(self) -> None:
        before_ms, known_ms = self._gone_before_ms(), self.store.horizon_ms
        if before_ms is not None and (known_ms is None or before_ms > known_ms):
            self._inout.submit(Priority.CLEANUP, "purge", self._purge)

    def _line_ms(self, needed: Iterable[int]) -> int | None:
        """Where the windows begin that take rows or are needed: those before are beyond the allowed lateness."""
        after_s = self._bound.purge_after_s
        if after_s is None or not self._watermark_ms:
            return None
        over_ms = self._watermark_ms - round(after_s * 1000) - self._windows.size_ms
        return self._windows.first_start_after(min([over_ms + 1, *needed, *self._open]))

    def _gone_before_ms(self) -> int | None:
        """Windows that start before can be purged: their results are out, with all rows that they took."""
        with self._lock:
            arrived = (start for windows in self._arrivals.values() for start in windows)
            return self._line_ms([*self._past.kept(self._watermark_ms), *self._executing, *arrived])

    def _purge(self) -> None:
        with self._routing:
            before_ms = self._gone_before_ms()  # now: rows may have come since it was planned
            if before_ms is None or not self.store.purge_before(before_ms):
                return
        with self._lock:
            gone = self._past.purged_before(before_ms)
            self._counts.update(purged_windows=len(gone))
            learnt = self._bound.to_json()
        self._memory.unstage(window.start_ms for window in gone)
        self.store.files.put(LATENESS, lambda stream: stream.write(learnt) and None)

    # Beginning and end

    def recover(self) -> None:
        """What the store and Spark's checkpoint say of earlier runs.

        Before the first batch, which may be long in coming: results that a crash kept back must not wait for it.
        """
        watermark_ms = next_watermark_ms(self._checkpoint, self.store.committed)
        try:
            self._bound.restore(self.store.files.read(LATENESS))
        except FileNotFoundError:
            pass
        except ValueError as error:
            log.warning("%s: what was learnt of lateness is lost: %s", self.name, error)
        now_s, committed = time.monotonic(), self.store.committed
        sketch, span_s = self._bound.sketch(), self._bound.span_s
        again: dict[tuple[str, int], list[int]] = {}
        with self._lock:
            self._watermark_ms = watermark_ms
            for info in self.store.windows():
                start, end_ms = info.start_ms, self._windows.end(info.start_ms)
                if not (watermark_ms and self._windows.swept(start, watermark_ms)):
                    self._open.add(start)
                    self._events[start] = info.events
                    continue
                emissions = [(e.kind, _through(e.execution)) for e in self.store.emissions(start)]
                kind, through = next(((k, t) for k, t in reversed(emissions) if t <= committed), ("", -1))
                if kind in ("late", "final"):
                    again.setdefault((kind, through), []).append(start)
                window = self._past.add(start, end_ms, span_s, info.events, sketch, now_s=now_s, through=through)
                pending = sum(
                    rows for source in self.store.sources(start) for batch, rows in _batches(source) if batch > through
                )
                if pending:
                    window.arrived(pending, now_s)
            self._again = [(kind, through, starts) for (kind, through), starts in sorted(again.items())]

    @property
    def alive(self) -> bool:
        """Is the query running?"""
        try:
            return bool(self.stream.isActive)
        except Exception:
            return False

    def _prepare_thread(self) -> None:
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)

    def settle(self, timeout_s: float = 60.0) -> bool:
        """Execute every window with rows that no result has, now. False: not done in time."""
        with self._changed:
            self._settled.clear()
            self._settling = True
            self._changed.notify_all()
        return self._settled.wait(timeout_s)

    def await_end(self, timeout_s: float = 60.0) -> bool:
        """After the query has ended: until everything is put away."""
        with self._changed:
            self._changed.notify_all()
        self._thread.join(timeout_s)
        return self.ended

    def _end(self) -> None:
        if not self._batches.end(_BATCH_ENDS_S):
            log.warning(
                "a batch of %s still runs %.0f s after the query was stopped; it fails when it next needs its windows, "
                "and runs again at the next start.",
                self.name,
                _BATCH_ENDS_S,
            )
        self._inout.close()
        with self._lock:
            self.ended = True
            self._settled.set()
        self._memory.clear()
        self.store.close()

    def status(self) -> dict[str, Any]:
        with self._lock:
            past = list(self._past)
            return {
                "name": self.name,
                "watermark_ms": self._watermark_ms,
                "open_windows": len(self._open),
                "past_windows": len(past),
                "pending_rows": sum(window.pending for window in past)
                + sum(sum(found.values()) for found in self._arrivals.values()),
                "stalest": max([self._past.stalest, *(window.stalest() for window in past)]),
                "staleness_bound": self._past.bound,
                "allowed_lateness_s": self._bound.span_s,
                "memory_bytes": self._memory.used_bytes,
                "disk_bytes": self.store.disk_bytes,
                "staged_windows": self._memory.staged_windows,
                "staging_s": self._memory.costs.staging.batch_s(0),
                "staging_saves_s": self._memory.costs.saved_s(0),
                **{name: self._counts[name] for name in _COUNTED},
            }


_COUNTED: Final = (
    "batches",
    "rows",
    "late_rows",
    "dead_rows",
    "on_time_results",
    "late_results",
    "final_results",
    "repeated_results",
    "compacted_windows",
    "purged_windows",
)


def _through(execution: str) -> int:
    """The last batch whose rows an execution took in; its id ends with it."""
    last = execution.rpartition(":")[2]
    return int(last) if last.isdigit() else -1


def _batches(source: Source) -> list[tuple[int, int]]:
    if source.file.replaces is not None:
        return list(source.file.replaces.items())
    return [(source.file.batch, source.group.events)]
