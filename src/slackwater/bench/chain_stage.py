"""One application of a chain: `python -m slackwater.bench.chain_stage`, its spec as the first line of stdin.

Further lines are what `chain_worker` asks; answers are lines on stdout.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from slackwater.bench.chain_model import Ask, Stage, StageTold
from slackwater.bench.child import kept_warnings, lone_stdout, now_ms
from slackwater.bench.measure import Span, batches_of, distribution, last_end_ms, measure_query, swept, total
from slackwater.bench.session import bench_session, progress_of
from slackwater.workloads import ysb
from slackwater.workloads.base import emitted_rows, start_frame
from slackwater.workloads.ysb_chain import start_enriching, windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from slackwater.bench.chain_model import ChainSpec
    from slackwater.bench.measure import Batch
    from slackwater.workloads.base import QuerySpec, RunningQuery

_FIRST_BATCH_S = 60.0


class _Application:
    def __init__(self, stage: Stage, cleanup: ExitStack) -> None:
        self.spec, self.role = stage.spec, stage.role
        self.folder = Path(stage.folder)
        chosen = self.spec.chosen
        scratch = self.folder / self.role
        scratch.mkdir()
        self.spark: SparkSession = bench_session(
            scratch,
            scratch / "gc.log",
            cores=self.spec.cores,
            heap=self.spec.heap,
            partitions=1,
            collector="g1",
            more={
                "spark.app.name": f"slackwater-bench-{self.role}",
                "spark.scheduler.mode": "FIFO" if chosen.kind == "fifo" else "FAIR",
                "spark.sql.streaming.numRecentProgressUpdates": "100000",
            },
        )
        cleanup.callback(self.spark.stop)
        self.jvm: Any = self.spark.sparkContext._jvm  # noqa: SLF001  # PySpark has no public way to the JVM
        self.warnings = cleanup.enter_context(kept_warnings())
        self.handle = self._attached(cleanup)
        self.workload = ysb.Ysb(payload=self.spec.payload)
        self.running: list[RunningQuery] = []
        self.marks: list[tuple[int, int]] = []

    def _attached(self, cleanup: ExitStack) -> Any:
        chosen = self.spec.chosen
        if chosen.kind != "slackwater":
            return None
        import slackwater  # noqa: PLC0415  # Spark's own policies run without the scheduler being loaded

        attached = slackwater.attach(self.spark, chosen.policy, knob=chosen.knob, forward=self.spec.forwards)
        return cleanup.enter_context(attached)

    def start(self) -> None:
        """Queries one after the other, each once the last one has had its first batch."""
        chosen = self.spec.chosen
        specs = specs_of(self.spec)
        for index, query in enumerate(specs):
            if chosen.kind in ("fair", "fixed"):
                self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", query.name)
            running = self._start(query, chosen.interval_ms(index, len(specs), query.slide_ms / 1000))
            self.running.append(running)
            give_up = time.monotonic() + _FIRST_BATCH_S
            while not self._batches(running) and time.monotonic() < give_up:
                _check_alive(running)
                time.sleep(0.1)

    def _start(self, query: QuerySpec, interval_ms: int | None) -> RunningQuery:
        lake = self.folder / "lake" / query.name
        checkpoint = self.folder / "checkpoints" / self.role / query.name
        if self.role == "enrich":
            return start_enriching(self.spark, self.workload, query, lake, checkpoint, interval_ms)
        return start_frame(windows(self.spark, query, lake), query, checkpoint, interval_ms)

    def mark(self) -> None:
        stats = self.handle.stats() if self.handle is not None else None
        self.marks.append((stats.decisions, stats.gates_opened) if stats is not None else (0, 0))

    def end(self, ask: Ask) -> StageTold:
        give_up = time.monotonic() + ask.drain_s
        waiting = list(self.running) if self.role == "windows" else []
        while waiting and time.monotonic() < give_up:
            waiting = [r for r in waiting if not swept(self._batches(r), last_end_ms(r.spec, ask.to_ms))]
            time.sleep(0.2)
        for running in self.running:
            _check_alive(running)
        span = Span(ask.from_ms, ask.to_ms, now_ms())
        exchanges, failures = self.handle.forwarded() if self.handle is not None else (0, 0)
        for running in self.running:
            running.stream.stop()
        found = [self._batches(running) for running in self.running]
        in_span = [batch for batches in found for batch in batches if span.holds(batch.committed_ms)]
        (decisions, opened), (decisions_after, opened_after) = self.marks[0], self.marks[-1]
        told = StageTold(
            batches=len(in_span),
            batch_s=distribution([batch.duration_ms / 1000 for batch in in_span]),
            decisions=decisions_after - decisions,
            gates_opened=opened_after - opened,
            exchanges=exchanges,
            failures=failures,
            spark=self.spark.version,
            java=str(self.jvm.java.lang.System.getProperty("java.version")),
            warnings=self.warnings,
            end_ms=span.end_ms,
        )
        return told if self.role == "enrich" else self._measured(told, found, span)

    def _measured(self, told: StageTold, found: list[list[Batch]], span: Span) -> StageTold:
        outcomes = []
        for running, batches in zip(self.running, found, strict=True):
            source = self.folder / "checkpoints" / "enrich" / running.spec.name
            oracle = self.workload.oracle(running.spec, source)
            outcomes.append(measure_query(batches, emitted_rows(self.spark, running.spec.name), oracle, span))
        return replace(
            told,
            latencies_s=[value for outcome in outcomes for value in outcome.latencies_s],
            end_to_end_s=[value for outcome in outcomes for value in outcome.propagations_s],
            windows=total(outcome.windows for outcome in outcomes),
        )

    def _batches(self, running: RunningQuery) -> list[Batch]:
        return batches_of(progress_of(self.jvm, running.stream))


def specs_of(spec: ChainSpec) -> list[QuerySpec]:
    return ysb.specs(
        spec.pipelines,
        rate=spec.rate,
        window_s=spec.window_s,
        delay_s=spec.delay_s,
        phases="spread",
        seed=spec.seed,
    )


def _check_alive(running: RunningQuery) -> None:
    error = running.stream.exception()
    if error is not None:
        raise error


def serve(lines: BinaryIO, out: BinaryIO) -> None:
    def say(what: Any) -> None:
        out.write(msgspec.json.encode(what) + b"\n")
        out.flush()

    with ExitStack() as cleanup:
        application = _Application(msgspec.json.decode(lines.readline(), type=Stage), cleanup)
        application.start()
        say({"ready": True})
        for line in lines:
            ask = msgspec.json.decode(line, type=Ask)
            if ask.do == "mark":
                application.mark()
                say({"marked": True})
            else:
                say(application.end(ask))
                return


def main() -> None:
    serve(sys.stdin.buffer, lone_stdout())


if __name__ == "__main__":
    main()
