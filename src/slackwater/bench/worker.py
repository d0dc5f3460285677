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
import logging
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import chain, pairwise
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from slackwater.bench.accuracy import CONFIDENCES, Ranges
from slackwater.bench.cpu import (
    HeapSampler,
    adopt_orphans,
    collections_mb,
    heap_summary,
    live_mb,
    paused_pct,
    tree_cpu_s,
)
from slackwater.bench.dying import ALARMS, SUPERVISION, DyingQuery
from slackwater.bench.measure import (
    Span,
    batches_of,
    distribution,
    is_steady,
    kept_up,
    longest_stall_s,
    mean_lag_ms,
    measure_query,
    swept,
    thirds_lag_ms,
    total,
)
from slackwater.bench.model import (
    Backlog,
    Beside,
    Contender,
    QueryResult,
    RunResult,
    RunSpec,
    SchedulerCost,
    WorkerResult,
    contender,
)
from slackwater.bench.on_cluster import BenchCluster
from slackwater.bench.on_kafka import BenchKafka
from slackwater.bench.session import answer, bench_session, progress_of
from slackwater.bench.slowdown import by_class, by_group, slowdown
from slackwater.errors import SlackwaterError
from slackwater.sim.trace import RunTrace, TracedBatch, TracedQuery
from slackwater.workloads.base import emitted_rows, query_specs, start_query
from slackwater.workloads.late_events import LateSpec
from slackwater.workloads.late_workloads import LATE_WORKLOADS
from slackwater.workloads.registry import Asked, workload_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from slackwater.bench.measure import Batch, QueryOutcome
    from slackwater.workloads.base import QuerySpec, RunningQuery, Workload

HIGH = -1
_LIVE_BATCHES = 120


@dataclass(frozen=True)
class _Snapshot:
    """What is read at both ends of the measured span."""

    wall_ms: int
    cpu_s: float
    scheduler_cpu_s: float
    decisions: int
    gates_opened: int


def query_prefix(spec: RunSpec) -> str:
    return spec.workload.replace("-", "_")


def workload_of(spec: RunSpec) -> tuple[Workload, list[QuerySpec]]:
    """What a run measures: its workload, and each query of it."""
    entry = workload_entry(spec.workload)
    queries = query_specs(
        query_prefix(spec),
        spec.queries,
        rate=spec.rate,
        window_s=spec.window_s,
        slide_s=spec.slide_s,
        delay_s=spec.delay_s,
        phases=spec.phases,
        seed=spec.seed,
        deadline_s=entry.deadline_s(spec.slide_s or spec.window_s),
    )
    workload = entry.make(
        Asked(payload=spec.payload, body_bytes=spec.body_bytes, source_partitions=spec.settings.source_partitions)
    )
    return workload, queries


@dataclass(frozen=True)
class Member:
    """A query of a run, and what it belongs to; group: "" outside a mix."""

    query: QuerySpec
    workload: Workload
    priority_class: int = 0
    group: str = ""


def members_of(spec: RunSpec) -> list[Member]:
    """Every query of a run, in the order in which they start."""
    if not spec.groups:
        workload, queries = workload_of(spec)
        return [Member(query, workload, HIGH if i < spec.high else 0) for i, query in enumerate(queries)]
    found = []
    for group, part in zip(spec.groups, spec.parts(), strict=True):
        workload, queries = workload_of(part)
        names = [f"{group.query_prefix}{query.name.removeprefix(query_prefix(part))}" for query in queries]
        found += [
            Member(replace(query, name=name), workload, group.priority_class, group.name)
            for query, name in zip(queries, names, strict=True)
        ]
    return found


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
        warnings = Warnings()
        logging.getLogger("slackwater").addHandler(warnings)
        cleanup.callback(logging.getLogger("slackwater").removeHandler, warnings)
        handle = _attached(spark, chosen, spec, cleanup)
        sampler = HeapSampler(spark.sparkContext._jvm)  # noqa: SLF001  # PySpark has no public way to the JVM
        sampler.start()
        cleanup.callback(sampler.stop)
        return _Run(spec, chosen, spark, handle, sampler, gc_log, scratch, warnings.texts, cluster, kafka).result()


class Warnings(logging.Handler):
    """Keeps what Slackwater warns of: it never fails a query, so the log is where trouble shows."""

    def __init__(self, limit: int = 20) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self._limit = limit

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.texts) < self._limit:
            self.texts.append(record.getMessage())


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
        trace = msgspec.to_builtins(self._trace(first, last)) if self.spec.trace else None
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
            self.beside = _start_beside(self.spark, self.spec.beside, self.spec.seed, self.scratch)
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

    def _measure(self) -> tuple[_Snapshot, _Snapshot]:
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
        first: _Snapshot,
        last: _Snapshot,
        end_ms: int,
        batches: Sequence[Sequence[Batch]],
        *,
        warmed_up: bool,
        warmup_s: float,
    ) -> RunResult:
        spec = self.spec
        span = Span(from_ms=first.wall_ms, to_ms=last.wall_ms, end_ms=end_ms)
        oracles = [
            member.workload.oracle(running.spec, running.checkpoint)
            for member, running in zip(self.members, self.running, strict=True)
        ]
        outcomes = [
            measure_query(found, emitted_rows(self.spark, running.spec.name), oracle, span)
            for running, found, oracle in zip(self.running, batches, oracles, strict=True)
        ]
        by_name = {
            running.spec.name: (oracle, running.spec.delay_ms)
            for running, oracle in zip(self.running, oracles, strict=True)
        }
        seconds = (span.to_ms - span.from_ms) / 1000
        in_span = list(chain.from_iterable(outcome.batches for outcome in outcomes))
        latencies_s = list(chain.from_iterable(outcome.latencies_s for outcome in outcomes))
        propagations_s = list(chain.from_iterable(outcome.propagations_s for outcome in outcomes))
        gc_log = self.gc_log.read_text("utf-8") if self.gc_log.exists() else ""
        early_ms, late_ms = thirds_lag_ms(batches, span.from_ms, span.to_ms)
        per_query = [
            QueryResult(
                name=running.spec.name,
                phase_ms=running.spec.phase_ms,
                interval_s=None if running.interval_ms is None else running.interval_ms / 1000,
                latency_mean_s=distribution(outcome.latencies_s).mean,
                batches=len(outcome.batches),
                windows=outcome.windows,
                priority_class=member.priority_class,
                latencies_s=sorted(outcome.latencies_s),
                group=member.group,
                every_s=running.spec.slide_ms / 1000,
            )
            for member, running, outcome in zip(self.members, self.running, outcomes, strict=True)
        ]
        return RunResult(
            policy=spec.policy,
            seed=spec.seed,
            latency_s=distribution(latencies_s),
            propagation_s=distribution(propagations_s),
            windows=total(outcome.windows for outcome in outcomes),
            events_per_s=round(sum(batch.input_rows for batch in in_span) / seconds, 1),
            offered_events_per_s=float(sum(member.query.rate for member in self.members)),
            cpu_cores=round((last.cpu_s - first.cpu_s) / seconds, 4),
            batches=len(in_span),
            batch_s=distribution([batch.duration_ms / 1000 for batch in in_span]),
            heap_mb=heap_summary(
                self.sampler.between(span.from_ms, span.to_ms),
                collections_mb(gc_log, span.from_ms, span.to_ms),
                live_mb(gc_log, span.from_ms, span.to_ms),
                paused_pct(gc_log, span.from_ms, span.to_ms),
            ),
            scheduler=self._scheduler_cost(first, last),
            steady=self._steady(batches, outcomes, span),
            warmed_up=warmed_up,
            warmup_s=warmup_s,
            drain_s=round((span.end_ms - span.to_ms) / 1000, 3),
            seconds=round(seconds, 3),
            backlog=Backlog(
                start_s=_lag_s(batches, span.from_ms),
                end_s=_lag_s(batches, span.to_ms),
                first_third_s=_seconds(early_ms),
                last_third_s=_seconds(late_ms),
            ),
            per_query=per_query,
            latencies_s=sorted(latencies_s),
            estimates=[ranges.accuracy(by_name, span.from_ms, span.to_ms) for ranges in self.ranges]
            if self.handle is not None
            else [],
            warnings=self.warnings,
            beside=None if self.beside is None else self.beside.status(),
            doomed=None if self.doomed is None else self.doomed.outcome(),
            recording=self._recording(),
            cluster=None if self.cluster is None else self.cluster.end(),
            slowdown=slowdown(per_query) if spec.groups else None,
            per_group=by_group(per_query) if spec.groups else [],
            per_class=by_class(per_query) if spec.groups else [],
            kafka=None if self.kafka is None else self.kafka.outcome(span),
        )

    def _recording(self) -> dict[str, Any] | None:
        found = None if self.handle is None else self.handle.recording()
        return None if found is None else asdict(found)

    def _steady(self, batches: Sequence[Sequence[Batch]], outcomes: Sequence[QueryOutcome], span: Span) -> bool:
        """Every due window came out, and the queries lagged no more at the end of the span than at its start."""
        windows = total(outcome.windows for outcome in outcomes)
        tolerance = self.spec.settings.kept_up_tolerance
        return windows.emitted == windows.expected and kept_up(batches, span.from_ms, span.to_ms, tolerance)

    def _scheduler_cost(self, first: _Snapshot, last: _Snapshot) -> SchedulerCost:
        if self.handle is None:
            return SchedulerCost()
        stats = self.handle.stats()
        stalled_s = longest_stall_s(self.decisions, first.wall_ms, last.wall_ms)
        ours = self.contender.kind == "slackwater"
        if ours and stalled_s > min(self.spec.settings.stall_max_s, self.spec.seconds / 2):
            # Slackwater fails open, so everything else looks fine: these would be plain Spark's figures.
            raise SlackwaterError(
                f"the scheduler made no decision for {stalled_s:.1f} s of the measured span, so this run was not "
                f"{self.spec.policy}'s. It logged: {'; '.join(self.warnings) or 'nothing'}"
            )
        used_s = last.cpu_s - first.cpu_s
        share = (last.scheduler_cpu_s - first.scheduler_cpu_s) / used_s if used_s > 0 else 0.0
        return SchedulerCost(
            decision_ms_p99=round(stats.decision_ms_p99, 4),
            overhead_pct=round(100 * share, 3),
            decisions=last.decisions - first.decisions,
            stalled_s=stalled_s,
            gates_opened=last.gates_opened - first.gates_opened,
        )

    def _snapshot(self) -> _Snapshot:
        stats = None if self.handle is None else self.handle.stats()
        return _Snapshot(
            wall_ms=now_ms(),
            cpu_s=self._cpu_s(),
            scheduler_cpu_s=stats.cpu_s if stats else 0.0,
            decisions=stats.decisions if stats else 0,
            gates_opened=stats.gates_opened if stats else 0,
        )

    def _cpu_s(self) -> float:
        """Of Spark and the scheduler: who makes the rows, and who keeps them, are not what is measured."""
        return tree_cpu_s(without=() if self.kafka is None else self.kafka.pids)

    def _trace(self, first: _Snapshot, last: _Snapshot) -> RunTrace:
        cores = self.spec.settings.cores
        return RunTrace(
            policy=self.spec.policy,
            seed=self.spec.seed,
            cores=cores,
            lanes=None if self.handle is None else cores,
            from_ms=first.wall_ms,
            to_ms=last.wall_ms,
            cpu_s=round(last.cpu_s - first.cpu_s, 3),
            queries=[
                TracedQuery(
                    name=running.spec.name,
                    phase_ms=running.spec.phase_ms,
                    rate=running.spec.rate,
                    window_s=running.spec.window_s,
                    slide_s=running.spec.slide_s,
                    delay_s=running.spec.delay_s,
                    interval_s=None if running.interval_ms is None else running.interval_ms / 1000,
                )
                for running in self.running
            ],
            batches=[
                batch
                for running in self.running
                for batch in traced(running.spec.name, self._progress(running), first.wall_ms, last.wall_ms)
            ],
            cpu=[
                (first.wall_ms, round(first.cpu_s, 3)),
                *((at_ms, round(cpu_s, 3)) for at_ms, cpu_s in self.cpu if first.wall_ms < at_ms < last.wall_ms),
                (last.wall_ms, round(last.cpu_s, 3)),
            ],
        )

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
        """Where each query stands: the scheduler's word on state and slack, Spark's own on the rest."""
        said = {status.name: status for status in self.handle.status()} if self.handle is not None else {}
        return [self._live_row(running, said.get(running.spec.name)) for running in self.running]

    def _live_row(self, running: RunningQuery, said: Any) -> dict[str, Any]:
        spec = running.spec
        batches = self._batches(running)[-_LIVE_BATCHES:]
        moved = [b for b in batches if b.watermark_ms]
        latency_s = None
        for before, after in pairwise(moved):
            end_ms = _next_end_ms(spec, before.watermark_ms or 0)
            if end_ms <= (after.watermark_ms or 0):
                latency_s = (after.committed_ms - end_ms) / 1000
        watermark_ms = moved[-1].watermark_ms if moved else None
        return {
            "name": spec.name,
            "state": said.stage if said is not None else "as soon as possible",
            "slack_s": said.slack_s if said is not None else None,
            "watermark_lag_s": None if watermark_ms is None else (now_ms() - watermark_ms) / 1000,
            "latency_s": latency_s,
            "batches": len(self._batches(running)),
        }

    def _check_alive(self) -> None:
        for running in self.running:
            if not running.stream.isActive:
                raise SlackwaterError(f"query {running.spec.name} ended during the run: {running.stream.exception()}")


def _start_beside(spark: SparkSession, beside: Beside, seed: int, scratch: Path) -> Any:
    """A late query whose results are collected and forgotten: what counts is what it takes from the others."""
    from slackwater import late  # noqa: PLC0415  # its dependencies are optional

    workload = LATE_WORKLOADS["average"]
    spec = LateSpec(
        "beside", beside.rate, beside.window_s, beside.past_windows, beside.payload_bytes, seed, bursts=False
    )
    query = (
        late.window(
            workload.events(spark, spec),
            "event_time",
            beside.window_s,
            watermark=1,
            allowed_lateness=beside.window_s * beside.past_windows + 2,
            staleness=beside.staleness,
        )
        .apply(workload.function, workload.schema)
        .start(lambda results, _: results.collect(), scratch / "checkpoints" / "beside", name="beside")
    )
    return late.handle(query)


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


def traced(query: str, progress: Iterable[Mapping[str, Any]], from_ms: int, to_ms: int) -> list[TracedBatch]:
    """The batches in a query's progress reports that ran at some time in [from_ms, to_ms), oldest first."""
    found = []
    for report in progress:
        largest = report.get("eventTime", {}).get("max")
        found += [
            TracedBatch(
                query=query,
                batch_id=int(report["batchId"]),
                start_ms=batch.started_ms,
                duration_ms=batch.duration_ms,
                rows=batch.input_rows,
                watermark_ms=batch.watermark_ms,
                event_max_ms=None if largest is None else round(datetime.fromisoformat(largest).timestamp() * 1000),
                parts_ms={part: int(ms) for part, ms in report["durationMs"].items() if part != "triggerExecution"},
            )
            for batch in batches_of([report])
            if batch.started_ms < to_ms and batch.committed_ms > from_ms
        ]
    return sorted(found, key=lambda batch: batch.start_ms)


def last_end_ms(spec: QuerySpec, to_ms: int) -> int:
    """The end of the last window whose deadline lies before `to_ms`."""
    first_ms = spec.phase_ms + spec.window_ms
    return first_ms + (to_ms - 1 - spec.delay_ms - first_ms) // spec.slide_ms * spec.slide_ms


def _next_end_ms(spec: QuerySpec, watermark_ms: int) -> int:
    """The first window end after a watermark."""
    first_ms = spec.phase_ms + spec.window_ms
    return first_ms + ((watermark_ms - first_ms) // spec.slide_ms + 1) * spec.slide_ms


def _lag_s(queries: Sequence[Sequence[Batch]], at_ms: int) -> float | None:
    return _seconds(mean_lag_ms(queries, at_ms, at_ms))


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else round(ms / 1000, 3)


def now_ms() -> int:
    return round(time.time() * 1000)


def report(state: str, **facts: Any) -> None:
    print(json.dumps({"state": state, **facts}), file=sys.stderr, flush=True)


def main() -> None:
    answer(RunSpec, run)


if __name__ == "__main__":
    main()
