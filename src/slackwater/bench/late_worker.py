"""One run of one contender in a fresh Spark: `python -m slackwater.bench.late_worker < spec.json > result.json`.

Protocol. The query starts and warms up for as long as plain Spark needs to fill its state. Windows whose end plus the
watermark's delay lies in the measured span are due, and are waited for after it. Results are collected in the driver,
and the time at which they are there counts. Then late handling settles, the query stops, and every window is compared
with the oracle over the rows that the checkpoint says were processed. A query that ends before is reported as it is.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from slackwater.bench.child import answer, kept_warnings, now_ms, report
from slackwater.bench.cpu import MB, tree_cpu_s
from slackwater.bench.late_measure import (
    Emitted,
    LateBatch,
    batch_times,
    due_windows,
    first_latencies_s,
    is_behind,
    judged_last,
    judged_once,
    late_batches,
    live_heap,
    until_last_s,
)
from slackwater.bench.late_model import (
    OUR_OPTIONS,
    STATE_STORES,
    LateRun,
    LateRunSpec,
    LateWindows,
    LateWorkerResult,
    OurFigures,
    Outcome,
    Resident,
)
from slackwater.bench.late_pandas_state import swept_rows
from slackwater.bench.measure import cause_of_end, distribution
from slackwater.bench.session import bench_session, progress_of
from slackwater.errors import SlackwaterError
from slackwater.late.checkpoint import last_committed
from slackwater.workloads import average
from slackwater.workloads.late_events import event_times_ms
from slackwater.workloads.late_workloads import LATE_WORKLOADS
from slackwater.workloads.rate_source import rate_rows, read_creation_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from slackwater.workloads.base import Payload
    from slackwater.workloads.late_events import LateWorkload

_SETTLE_S = 60.0
_FIRST_BATCH_S = 60.0


def run(spec: LateRunSpec) -> LateWorkerResult:
    with ExitStack() as cleanup:
        scratch = Path(spec.scratch or cleanup.enter_context(tempfile.TemporaryDirectory(prefix="slackwater-")))
        gc_log = scratch / "gc.log"
        report("spark")
        settings = spec.settings
        more = {"spark.scheduler.mode": "FAIR", "spark.sql.streaming.numRecentProgressUpdates": "100000"}
        if not spec.is_ours:
            more["spark.sql.streaming.stateStore.providerClass"] = STATE_STORES[spec.contender]
        spark = bench_session(
            scratch,
            gc_log,
            cores=settings.cores,
            heap=settings.heap,
            partitions=settings.partitions,
            collector=settings.collector,
            more=more,
        )
        cleanup.callback(_stop, spark)
        warnings = cleanup.enter_context(kept_warnings())
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  # PySpark has no public way to the JVM
        watch = _Watch(jvm, min(settings.live_every_s, max(3.0, spec.seconds / 3)))
        watch.start()
        cleanup.callback(watch.stop)
        found = _Run(spec, spark, jvm, watch, scratch, gc_log, warnings).result()
        return LateWorkerResult(run=found, spark=spark.version, java=jvm.java.lang.System.getProperty("java.version"))


def _stop(spark: SparkSession) -> None:
    try:
        spark.stop()
    except Exception as error:  # its JVM is gone, which has been said by then
        print(f"Spark did not stop: {error}", file=sys.stderr)


@dataclass
class _Sample:
    at_ms: int
    driver_mb: float
    jvm_mb: float
    all_mb: float


class _Watch:
    """Once a second, how much memory the processes hold; now and then, a full collection; ends with its parent."""

    def __init__(self, jvm: Any, live_every_s: float) -> None:
        self._system = jvm.java.lang.System
        self._live_every_s = live_every_s
        self._stop = threading.Event()
        self._parent = os.getppid()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self.samples: list[_Sample] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def between(self, from_ms: int, to_ms: int) -> Resident:
        found = [sample for sample in self.samples if from_ms <= sample.at_ms < to_ms]
        return Resident(
            driver=max((sample.driver_mb for sample in found), default=None),
            jvm=max((sample.jvm_mb for sample in found), default=None),
            all=max((sample.all_mb for sample in found), default=None),
        )

    def _run(self) -> None:
        collected_s = time.monotonic()
        while not self._stop.wait(1.0):
            if os.getppid() != self._parent:
                # An orphan's measurement helps nobody, and it would disturb the next one.
                os._exit(1)
            self.samples.append(_sample())
            if time.monotonic() - collected_s >= self._live_every_s:
                collected_s = time.monotonic()
                try:
                    self._system.gc()
                except Exception:  # the JVM is gone: the run will say so
                    return


def _sample() -> _Sample:
    me = psutil.Process()
    driver = me.memory_info().rss / MB
    jvm = others = 0.0
    for process in me.children(recursive=True):
        try:
            size, is_jvm = process.memory_info().rss / MB, "java" in process.name()
        except psutil.NoSuchProcess:
            continue
        jvm, others = (jvm + size, others) if is_jvm else (jvm, others + size)
    return _Sample(now_ms(), round(driver, 1), round(jvm, 1), round(driver + jvm + others, 1))


@dataclass
class _Results:
    """What came out; filled on Spark's threads."""

    found: list[Emitted] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(
        self, rows: list[Any], described: Callable[[int, Any], tuple[int, str, int]], first: int, last: int
    ) -> None:
        """Rows begin with the window's start; their payload is [first, last)."""
        wall_ms = now_ms()
        by_window: dict[int, list[Any]] = {}
        for row in rows:
            by_window.setdefault(row[0], []).append(row)
        with self.lock:
            for start, members in by_window.items():
                revision, kind, through = described(start, members[0])
                payload = [tuple(row[first:last]) for row in members]
                self.found.append(Emitted(start, wall_ms, revision, kind, through, payload))

    def so_far(self) -> list[Emitted]:
        with self.lock:
            return list(self.found)


class _Run:
    def __init__(
        self,
        spec: LateRunSpec,
        spark: SparkSession,
        jvm: Any,
        watch: _Watch,
        scratch: Path,
        gc_log: Path,
        warnings: list[str],
    ) -> None:
        self.spec = spec
        self.events = spec.events
        self.spark = spark
        self.jvm = jvm
        self.watch = watch
        self.checkpoint = scratch / "checkpoint"
        self.gc_log = gc_log
        self.warnings = warnings
        self.workload: LateWorkload = LATE_WORKLOADS[spec.workload]
        self.results = _Results()
        self.stream: Any = None
        self.handle: Any = None
        self.handle_there = threading.Event()
        self.began_ms = 0
        self.behind_s: list[float] = []
        self.others_s = 0.0

    def result(self) -> LateRun:
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", "query")
        self.began_ms = now_ms()
        self.stream = self._start_ours() if self.spec.is_ours else self._start_spark()
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)
        from_ms = to_ms = now_ms()
        used_s, reason, settle_s, settled = 0.0, "", None, -1
        try:
            self._first_batch()
            self._sleep(self.spec.warming_s, "warming up", [])
            from_ms, used_s, busy_s = now_ms(), tree_cpu_s(), _busy_s()
            self._sleep(self.spec.seconds, "measuring", self.behind_s)
            to_ms, used_s = now_ms(), tree_cpu_s() - used_s
            self.others_s = _busy_s() - busy_s - used_s
            self._drain(from_ms, to_ms)
            settled = last_committed(self.checkpoint)
            if self.handle is not None:
                settle_s = self._settle()
        except _EndedError as ended:
            reason = str(ended)
            to_ms = now_ms()
        end_ms = now_ms()
        status = None if self.handle is None else self.handle.status()
        results = self.results.so_far()
        report("stopping")
        self.stream.stop()
        report("checking")
        return self._figures(results, from_ms, to_ms, end_ms, used_s, reason, settled, settle_s, status)

    # The two ways to keep late rows

    def _events(self) -> DataFrame:
        numbered = rate_rows(self.spark, self.spec.rate, self.spec.settings.source_partitions)
        found = self.workload.from_numbers(numbered, self.events).drop("arrival")
        return average.keyed(found) if self.spec.kind == "aggregates" else found

    def _start_ours(self) -> Any:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        from slackwater import late  # noqa: PLC0415

        spec = self.spec
        windowed = late.window(
            self._events(),
            "event_time",
            spec.window_s,
            watermark=spec.watermark_s,
            allowed_lateness=spec.allowed_lateness_s,
            staleness=spec.staleness,
        )
        if spec.kind == "aggregates":
            query = windowed.groupBy("key").agg(*average.aggregates())
        else:
            query = windowed.groupBy(*self.workload.keys).apply(self.workload.function, self.workload.schema)
        query = query.memory(spec.settings.memory, **OUR_OPTIONS[spec.contender])

        def note(frame: DataFrame, _number: int) -> None:
            values = [name for name in frame.columns if name != "window"]
            rows = frame.select(F.unix_millis("window.start"), *values).collect()
            self.handle_there.wait()
            self.results.add(rows, lambda start, row: (row[-2], row[-1], self._through(start, row[-2])), 1, -2)

        stream = query.start(
            late.Function(note, concurrent=True), self.checkpoint, name="late", trigger=self._trigger()
        )
        self.handle = late.handle(stream)
        self.handle_there.set()
        return stream

    def _through(self, start_ms: int, revision: int) -> int:
        """The last batch whose rows a result has, from the store's journal."""
        made = next(e for e in self.handle.store.emissions(start_ms) if e.revision == revision)
        return int(made.execution.rpartition(":")[2])

    def _start_spark(self) -> Any:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        spec, workload = self.spec, self.workload
        events = self._events()
        keys = ("key",) if spec.kind == "aggregates" else workload.keys
        window = F.window("event_time", f"{self.events.window_ms} milliseconds").alias("window")
        salt = [F.pmod(F.xxhash64("event_time"), F.lit(spec.salts)).alias("salt")] if spec.salts else []
        grouped = events.withWatermark("event_time", f"{round(1000 * spec.delay_s)} milliseconds").groupBy(
            window, *keys, *salt
        )
        if spec.kind == "aggregates":
            swept = grouped.agg(*average.aggregates())
        elif spec.pandas_state:
            swept = swept_rows(events, self.events.window_ms, round(1000 * spec.delay_s), keys, spec.salts)
        else:
            swept = grouped.agg(F.collect_list(F.struct(*events.columns)).alias("rows"))
        function, schema = workload.function, f"start_ms BIGINT, {workload.schema}"

        def of_window(key: tuple[Any, ...], rows: Any) -> Any:
            found = function(rows.drop(columns=["start_ms"])).copy(deep=False)
            found.insert(0, "start_ms", key[0])
            return found

        def note(frame: DataFrame, batch_id: int) -> None:
            start = F.unix_millis("window.start").alias("start_ms")
            if spec.kind == "aggregates":
                results = frame.select(start, *[name for name in frame.columns if name != "window"])
            else:
                rows = frame if spec.pandas_state else frame.select(start, F.inline("rows"))
                results = rows.groupBy("start_ms", *keys).applyInPandas(of_window, schema)
            self.results.add(results.collect(), lambda _start, _row: (1, "on_time", batch_id), 1, len(results.columns))

        writer = swept.writeStream.outputMode("append").foreachBatch(note).queryName("plain")
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(**self._trigger()).start()

    def _trigger(self) -> dict[str, str]:
        return {"processingTime": f"{round(1000 * self.spec.trigger_s)} milliseconds"}

    # The run

    def _first_batch(self) -> None:
        """On a cold JVM it takes long."""
        give_up = time.monotonic() + _FIRST_BATCH_S
        while time.monotonic() < give_up and not late_batches(progress_of(self.jvm, self.stream)):
            report("starting")
            self._check_alive()
            time.sleep(0.2)

    def _sleep(self, seconds: float, state: str, behind_s: list[float]) -> None:
        began = time.monotonic()
        while (left_s := began + seconds - time.monotonic()) > 0:
            self._check_alive()
            behind_s.append(self._behind_s())
            report(
                state,
                s=round(time.monotonic() - began),
                of_s=seconds,
                lived_s=round((now_ms() - self.began_ms) / 1000),
                results=len(self.results.found),
                behind_s=round(behind_s[-1], 1),
            )
            time.sleep(min(left_s, 1.0))
        self._check_alive()

    def _drain(self, from_ms: int, to_ms: int) -> None:
        """Wait until every window that was due in the span has come out."""
        give_up = time.monotonic() + self.spec.draining_s
        while time.monotonic() < give_up:
            report("draining", of_s=self.spec.draining_s)
            self._check_alive()
            due = due_windows(self._starts(to_ms), self.events.window_ms, self._delay_ms, from_ms, to_ms)
            if not first_latencies_s(self.results.so_far(), due, self.events.window_ms, now_ms())[1]:
                return
            time.sleep(0.2)

    def _settle(self) -> float:
        report("settling")
        began = time.monotonic()
        if not self.handle.settle(_SETTLE_S):
            self.warnings.append(f"not settled after {_SETTLE_S:g} s")
        return round(time.monotonic() - began, 2)

    def _check_alive(self) -> None:
        try:
            if self.stream.isActive:
                return
            error = self.stream.exception()
        except Exception as lost:
            raise SlackwaterError(f"Spark's JVM ended: {type(lost).__name__}") from lost
        raise _EndedError(cause_of_end(str(error)))

    def _behind_s(self) -> float:
        """How long the oldest row that the source offers and no committed batch has, has been waiting."""
        progress = self.stream._jsq.lastProgress()  # noqa: SLF001
        batches = [] if progress is None else late_batches([json.loads(progress.json())])
        done_s = batches[-1].end_offset if batches else self._done_s
        self._done_s = done_s
        return max(0.0, (now_ms() - self._created_ms()) / 1000 - 1 - done_s)

    _done_s = 0

    def _created_ms(self) -> int:
        try:
            return read_creation_ms(self.checkpoint)
        except (FileNotFoundError, ValueError):
            return now_ms()

    @property
    def _delay_ms(self) -> int:
        return round(1000 * self.spec.delay_s)

    def _starts(self, to_ms: int) -> list[int]:
        """Windows that have rows of their own time, not late ones alone."""
        size_ms = self.events.window_ms
        first = self._created_ms() // size_ms * size_ms
        return list(range(first, to_ms, size_ms))

    # What it comes to

    def _figures(
        self,
        results: list[Emitted],
        from_ms: int,
        to_ms: int,
        end_ms: int,
        used_s: float,
        reason: str,
        settled: int,
        settle_s: float | None,
        status: dict[str, Any] | None,
    ) -> LateRun:
        spec, size_ms = self.spec, self.events.window_ms
        batches = late_batches(progress_of(self.jvm, self.stream))
        in_span = [batch for batch in batches if from_ms <= batch.committed_ms < to_ms]
        due = due_windows(self._starts(to_ms), size_ms, self._delay_ms, from_ms, to_ms)
        latencies_s, overdue = first_latencies_s(results, due, size_ms, end_ms)
        windows = None if settled < 0 else self._judged(results, batches, settled)
        measured = not reason and to_ms > from_ms
        seconds = (to_ms - from_ms) / 1000
        outcome: Outcome = "died" if reason else "behind" if is_behind(self.behind_s, spec.trigger_s) else "ok"
        gc_log = self.gc_log.read_text("utf-8") if self.gc_log.exists() else ""
        return LateRun(
            contender=spec.contender,
            past_windows=spec.past_windows,
            outcome=outcome,
            reason=reason,
            latency_s=distribution(latencies_s),
            windows=windows,
            overdue=overdue,
            live_heap_mb=live_heap(gc_log, from_ms if measured else self.began_ms, to_ms),
            resident_mb=self.watch.between(from_ms if measured else self.began_ms, to_ms),
            cpu_cores=round(used_s / seconds, 3) if measured else None,
            other_cores=round(self.others_s / seconds, 3) if measured else None,
            batch_s=batch_times([batch.trigger_ms for batch in in_span]),
            add_batch_s=batch_times([batch.add_ms for batch in in_span]),
            rows_per_s=_rows_per_s(batches, from_ms, to_ms, spec.rate) if measured else None,
            offered_rows_per_s=float(spec.rate),
            behind_rows=round(self.behind_s[-1]) * spec.rate if self.behind_s and measured else None,
            lived_s=round((to_ms - self.began_ms) / 1000, 1),
            seconds=round(seconds, 3),
            ours=None if status is None else self._ours(status, results, settle_s),
            latencies_s=[round(value, 3) for value in latencies_s],
            behind_s=[round(value, 2) for value in self.behind_s],
            warnings=self.warnings,
        )

    def _ours(self, status: dict[str, Any], results: list[Emitted], settle_s: float | None) -> OurFigures:
        closed_ms = (status["watermark_ms"] or 0) - round(1000 * self.spec.allowed_lateness_s)
        last_s = until_last_s(results, self.events.window_ms, closed_ms)
        counted = ("on_time_results", "late_results", "final_results", "late_rows", "dead_rows")
        return OurFigures(
            **{name: status[name] for name in (*counted, "staged_windows", "compacted_windows")},
            stalest=round(status["stalest"], 4),
            until_last_s=distribution(last_s),
            settle_s=settle_s,
        )

    def _judged(self, results: list[Emitted], batches: list[LateBatch], settled: int) -> LateWindows:
        created_ms, spec = read_creation_ms(self.checkpoint), self.spec
        oracle = average.expected_aggregates if spec.kind == "aggregates" else self.workload.expected

        @cache
        def over(offset: int) -> dict[int, list[Payload]]:
            return oracle(self.events, created_ms, range(offset * spec.rate))

        if not spec.is_ours:
            committed = [batch for batch in batches if batch.batch_id <= settled]
            last = committed[-1]
            kept = [result for result in results if result.through <= settled]
            return judged_once(kept, over(last.end_offset), self.events.window_ms, last.watermark_ms)
        at = self._offset(settled)
        numbers = np.arange(max(0, at - 1) * spec.rate, at * spec.rate, dtype=np.int64)
        latest_ms = int(event_times_ms(self.events, created_ms, numbers).max()) if numbers.size else 0
        return judged_last(
            results,
            lambda batch: over(self._offset(batch)),
            self.events.window_ms,
            settled,
            latest_ms - round(1000 * spec.watermark_s),
        )

    def _offset(self, batch_id: int) -> int:
        """Seconds of the source that are processed with a batch, from Spark's offset log."""
        return int((self.checkpoint / "offsets" / str(batch_id)).read_text("utf-8").splitlines()[2])


def _busy_s() -> float:
    """CPU time of the whole machine so far."""
    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice)


class _EndedError(Exception):
    """The query ended by itself, for a reason that is its own."""


def _rows_per_s(batches: list[LateBatch], from_ms: int, to_ms: int, rate: int) -> float | None:
    """From commit to commit, so that where in a batch the span's ends fall does not matter."""
    inside = [batch for batch in batches if from_ms <= batch.committed_ms < to_ms]
    if len(inside) < 2:
        return None
    first, last = inside[0], inside[-1]
    return round((last.end_offset - first.end_offset) * rate / ((last.committed_ms - first.committed_ms) / 1000), 1)


def main() -> None:
    answer(LateRunSpec, run)


if __name__ == "__main__":
    main()
