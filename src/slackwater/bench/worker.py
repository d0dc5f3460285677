"""One run of one policy in a fresh Spark: `python -m slackwater.bench.worker < spec.json > result.json`.

Protocol. Queries start one after the other, each once the previous one has finished its first batch or
after `start_wait_s` (the first one, on a cold JVM, gets longer). Warm-up lasts until two consecutive spans
look alike. Windows with a deadline in the measured span are due; they are waited for, for `drain_s` after it
at most. CPU and heap are taken within the span only. All figures come from Spark's own progress reports and
the emitted rows, read after the queries have stopped, in the same way for every policy.

What is under way goes to stderr, one JSON object a line.
"""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from slackwater.bench.accuracy import CONFIDENCES, Ranges
from slackwater.bench.beside import start_beside
from slackwater.bench.child import answer, kept_warnings, now_ms, report
from slackwater.bench.cpu import HeapSampler, adopt_orphans, tree_cpu_s
from slackwater.bench.dying import ALARMS, SUPERVISION, DyingQuery
from slackwater.bench.live import live_row
from slackwater.bench.measure import batches_of, is_steady, last_end_ms, swept
from slackwater.bench.members import members_of, workload_of
from slackwater.bench.model import Contender, RunResult, RunSpec, WorkerResult, contender
from slackwater.bench.on_cluster import BenchCluster
from slackwater.bench.on_kafka import BenchKafka
from slackwater.bench.outcome import Observed, Snapshot, outcome_of
from slackwater.bench.run_trace import run_trace
from slackwater.bench.session import bench_session, progress_of
from slackwater.errors import SlackwaterError
from slackwater.workloads.base import start_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from slackwater.bench.measure import Batch
    from slackwater.workloads.base import RunningQuery


def run(spec: RunSpec) -> WorkerResult:
    """Run one policy and measure it; the session lives in this process and is stopped at the end."""
    with ExitStack() as cleanup:
        scratch = Path(spec.scratch or cleanup.enter_context(tempfile.TemporaryDirectory(prefix="slackwater-")))
        chosen = contender(spec.policy)
        gc_log = scratch / "gc.log"
        cluster = None
        if spec.cluster is not None:
            report("cluster")
            adopt_orphans()
            cluster = BenchCluster(spec.cluster, scratch / "cluster", cleanup)
        kafka = None
        if spec.kafka is not None:
            report("kafka")
            kafka = BenchKafka(spec.kafka, workload_of(spec)[1], spec, scratch / "kafka", cleanup)
        report("spark")
        settings = spec.settings
        spark = bench_session(
            scratch,
            gc_log,
            cores=settings.cores,
            heap=settings.heap,
            partitions=settings.partitions,
            collector=settings.collector,
            more={
                "spark.scheduler.mode": "FIFO" if chosen.kind == "fifo" else "FAIR",
                "spark.sql.streaming.maxBatchesToRetainInMemory": str(settings.state_versions),
                "spark.sql.streaming.numRecentProgressUpdates": str(settings.recent_progress),
                **({} if kafka is None else kafka.settings()),
            },
            cluster=cluster,
        )
        cleanup.callback(spark.stop)
        warnings = cleanup.enter_context(kept_warnings())
        handle = _attached(spark, chosen, spec, cleanup)
        sampler = HeapSampler(spark.sparkContext._jvm)  # noqa: SLF001  # PySpark has no public way to the JVM
        sampler.start()
        cleanup.callback(sampler.stop)
        return _Run(spec, chosen, spark, handle, sampler, gc_log, scratch, warnings, cluster, kafka).result()


class _Run:
    def __init__(
        self,
        spec: RunSpec,
        chosen: Contender,
        spark: SparkSession,
        handle: Any,
        sampler: HeapSampler,
        gc_log: Path,
        scratch: Path,
        warnings: list[str],
        cluster: BenchCluster | None,
        kafka: BenchKafka | None,
    ) -> None:
        self.spec = spec
        self.kafka = kafka
        self.cluster = cluster
        self.contender = chosen
        self.spark = spark
        self.jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
        self.handle = handle
        self.sampler = sampler
        self.gc_log = gc_log
        self.scratch = scratch
        self.members = members_of(spec)
        if kafka is not None:
            self.members = [replace(member, workload=kafka.workload) for member in self.members]
        self.running: list[RunningQuery] = []
        self.beside: Any = None
        self.doomed: DyingQuery | None = None
        self.decisions: list[tuple[int, int]] = []
        self.cpu: list[tuple[int, float]] = []
        self.ranges = [Ranges(confidence) for confidence in CONFIDENCES]
        self.warnings = warnings

    def result(self) -> WorkerResult:
        self._start_all()
        warmed_up, warmup_s = self._warm_up()
        first, last = self._measure()
        end_ms = self._drain(last.wall_ms)
        report("stopping")
        batches = self._stop_and_collect()
        report("checking")
        outcome = self._outcome(first, last, end_ms, batches, warmed_up=warmed_up, warmup_s=warmup_s)
        version = self.jvm.java.lang.System.getProperty("java.version")
        trace = self._trace(first, last) if self.spec.trace else None
        return WorkerResult(run=outcome, spark=self.spark.version, java=version, trace=trace)

    def _start_all(self) -> None:
        count = len(self.members)
        for i, member in enumerate(self.members):
            query = member.query
            report("starting", done=i, of=count)
            if self.contender.kind in ("fair", "fixed"):
                self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", query.name)
            checkpoint = self.scratch / "checkpoints" / query.name
            interval_ms = self.contender.interval_ms(i, count, query.slide_ms / 1000)
            if self.kafka is not None:
                self.kafka.begin(query)
            running = start_query(self.spark, member.workload, query, checkpoint, interval_ms)
            self.running.append(running)
            settings = self.spec.settings
            wait_s = settings.start_wait_s if i else settings.first_start_wait_s
            give_up = time.monotonic() + wait_s
            while time.monotonic() < give_up and not self._batches(running):
                time.sleep(0.1)
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)
        if self.spec.beside is not None:
            self.beside = start_beside(self.spark, self.spec.beside, self.spec.seed, self.scratch)
        if self.spec.doomed is not None:
            self._start_doomed()

    def _start_doomed(self) -> None:
        """One query more than are measured, of the same kind."""
        workload, queries = workload_of(replace(self.spec, queries=self.spec.queries + 1))
        spec = replace(queries[-1], name="doomed")
        self.doomed = DyingQuery(self.spark, workload, spec, self.scratch / "checkpoints" / "doomed", self.handle)
        give_up = time.monotonic() + self.spec.settings.start_wait_s
        while time.monotonic() < give_up and not self.doomed.batches:
            time.sleep(0.1)

    def _warm_up(self) -> tuple[bool, float]:
        spec = self.spec
        # Whole windows, so that where in its window a query stands cancels out.
        span_s = spec.window_s * ceil(max(spec.settings.steady_span_s, spec.window_s) / spec.window_s)
        began = time.monotonic()
        check_s = spec.warmup_min_s
        while True:
            self._sleep(began, check_s, "warming up", of_s=spec.settings.warmup_max_s)
            batches = [self._batches(running) for running in self.running]
            steady = is_steady(batches, now_ms(), round(1000 * span_s), spec.settings.steady_tolerance)
            if steady or check_s >= spec.settings.warmup_max_s:
                return steady, round(time.monotonic() - began, 1)
            check_s = min(check_s + span_s / 2, spec.settings.warmup_max_s)

    def _measure(self) -> tuple[Snapshot, Snapshot]:
        first = self._snapshot()
        if self.cluster is not None:
            self.cluster.begin(self.handle)
        if self.doomed is not None and self.spec.doomed is not None and self.spec.doomed.every_s is not None:
            self.doomed.begin(self.spec.doomed.every_s)
        self._sleep(time.monotonic(), self.spec.seconds, "measuring", of_s=self.spec.seconds)
        last = self._snapshot()
        return first, last

    def _drain(self, to_ms: int) -> int:
        """Wait until every due window is out, or `drain_s`; returns when that was."""
        report("draining", of_s=self.spec.drain_s)
        give_up = time.monotonic() + self.spec.drain_s
        waiting = list(self.running)
        while waiting and time.monotonic() < give_up:
            waiting = [
                running
                for running in waiting
                if not swept(self._newest_batches(running), last_end_ms(running.spec, to_ms))
            ]
            time.sleep(0.2)
        self._check_alive()
        return now_ms()

    def _stop_and_collect(self) -> list[list[Batch]]:
        for running in self.running:
            running.stream.stop()
        if self.kafka is not None:
            self.kafka.end()
        if self.beside is not None:
            self.beside.stream.stop()
        if self.doomed is not None:
            self.doomed.end()
        return [self._batches(running) for running in self.running]

    def _outcome(
        self,
        first: Snapshot,
        last: Snapshot,
        end_ms: int,
        batches: list[list[Batch]],
        *,
        warmed_up: bool,
        warmup_s: float,
    ) -> RunResult:
        observed = Observed(
            spec=self.spec,
            members=self.members,
            running=self.running,
            batches=batches,
            first=first,
            last=last,
            end_ms=end_ms,
            warmed_up=warmed_up,
            warmup_s=warmup_s,
            heap=self.sampler,
            gc_log=self.gc_log.read_text("utf-8") if self.gc_log.exists() else "",
            decisions=self.decisions,
            decision_ms_p99=None if self.handle is None else self.handle.stats().decision_ms_p99,
            ranges=[] if self.handle is None else self.ranges,
            warnings=self.warnings,
        )
        return replace(
            outcome_of(observed, self.spark),
            beside=None if self.beside is None else self.beside.status(),
            doomed=None if self.doomed is None else self.doomed.outcome(),
            recording=self._recording(),
            cluster=None if self.cluster is None else self.cluster.end(),
            kafka=None if self.kafka is None else self.kafka.outcome(observed.span),
        )

    def _recording(self) -> dict[str, Any] | None:
        found = None if self.handle is None else self.handle.recording()
        return None if found is None else asdict(found)

    def _trace(self, first: Snapshot, last: Snapshot) -> Any:
        progress = [self._progress(running) for running in self.running]
        found = run_trace(self.spec, self.running, progress, self.cpu, first, last, scheduled=self.handle is not None)
        return msgspec.to_builtins(found)

    def _snapshot(self) -> Snapshot:
        stats = None if self.handle is None else self.handle.stats()
        return Snapshot(
            wall_ms=now_ms(),
            cpu_s=self._cpu_s(),
            scheduler_cpu_s=stats.cpu_s if stats else 0.0,
            decisions=stats.decisions if stats else 0,
            gates_opened=stats.gates_opened if stats else 0,
        )

    def _cpu_s(self) -> float:
        """Of Spark and the scheduler: who makes the rows, and who keeps them, are not what is measured."""
        return tree_cpu_s(without=() if self.kafka is None else self.kafka.pids)

    def _batches(self, running: RunningQuery) -> list[Batch]:
        return batches_of(self._progress(running))

    def _progress(self, running: RunningQuery) -> list[dict[str, Any]]:
        return progress_of(self.jvm, running.stream)

    def _newest_batches(self, running: RunningQuery) -> list[Batch]:
        """The newest batch alone where it is the newest report: all that a drain needs to look at."""
        report = running.stream._jsq.lastProgress()  # noqa: SLF001
        newest = [] if report is None else batches_of([json.loads(report.json())])
        return newest or self._batches(running)

    def _sleep(self, began: float, until_s: float, state: str, of_s: float) -> None:
        """Sleep until `until_s` after `began`, saying now and then how far it is."""
        while (left_s := began + until_s - time.monotonic()) > 0:
            facts: dict[str, Any] = {"queries": self._live_rows()} if self.spec.settings.live else {}
            report(state, s=round(time.monotonic() - began), of_s=of_s, **facts)
            if self.spec.trace:
                self.cpu.append((now_ms(), self._cpu_s()))
            if self.handle is not None:
                self.decisions.append((now_ms(), self.handle.stats().decisions))
                for ranges in self.ranges:
                    ranges.add(now_ms(), self.handle.expectations(ranges.confidence))
            time.sleep(min(left_s, 1.0))
        self._check_alive()

    def _live_rows(self) -> list[dict[str, Any]]:
        said = {status.name: status for status in self.handle.status()} if self.handle is not None else {}
        return [
            live_row(running.spec, self._batches(running), said.get(running.spec.name), now_ms())
            for running in self.running
        ]

    def _check_alive(self) -> None:
        for running in self.running:
            if not running.stream.isActive:
                raise SlackwaterError(f"query {running.spec.name} ended during the run: {running.stream.exception()}")


def _attached(spark: SparkSession, chosen: Contender, spec: RunSpec, cleanup: ExitStack) -> Any:
    if chosen.kind != "slackwater" and spec.record is None:
        return None
    import slackwater  # noqa: PLC0415  # Spark's own policies must run without the scheduler being loaded

    classes = {
        member.query.name: slackwater.QueryOptions(
            priority_class=member.priority_class, deadline=member.query.deadline_s
        )
        for member in members_of(spec)
    }
    attached = slackwater.attach(
        spark,
        chosen.policy or "observe",
        knob=chosen.knob,
        queries=classes,
        memory_bound=spec.memory_bound,
        serve=spec.serve,
        supervise=SUPERVISION if spec.doomed is not None else False,
        alarms=ALARMS if spec.doomed is not None else False,
        record=spec.record,
    )
    if attached.url is not None:
        report("serving", url=attached.url, token_file=str(attached.token_file))
    return cleanup.enter_context(attached)


def main() -> None:
    answer(RunSpec, run)


if __name__ == "__main__":
    main()
