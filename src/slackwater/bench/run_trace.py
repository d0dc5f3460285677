"""A run as a trace that the simulator can be calibrated from."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from slackwater.bench.measure import batches_of
from slackwater.sim.trace import RunTrace, TracedBatch, TracedQuery

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slackwater.bench.model import RunSpec
    from slackwater.bench.outcome import Snapshot
    from slackwater.workloads.base import RunningQuery


def run_trace(
    spec: RunSpec,
    running: Sequence[RunningQuery],
    progress: Sequence[Iterable[Mapping[str, Any]]],
    cpu: Iterable[tuple[int, float]],
    first: Snapshot,
    last: Snapshot,
    *,
    scheduled: bool,
) -> RunTrace:
    """The measured span of a run. progress: each query's reports; cpu: seconds used so far, with the wall time."""
    cores = spec.settings.cores
    return RunTrace(
        policy=spec.policy,
        seed=spec.seed,
        cores=cores,
        lanes=cores if scheduled else None,
        from_ms=first.wall_ms,
        to_ms=last.wall_ms,
        cpu_s=round(last.cpu_s - first.cpu_s, 3),
        queries=[
            TracedQuery(
                name=query.spec.name,
                phase_ms=query.spec.phase_ms,
                rate=query.spec.rate,
                window_s=query.spec.window_s,
                slide_s=query.spec.slide_s,
                delay_s=query.spec.delay_s,
                interval_s=None if query.interval_ms is None else query.interval_ms / 1000,
            )
            for query in running
        ],
        batches=[
            batch
            for query, reports in zip(running, progress, strict=True)
            for batch in traced(query.spec.name, reports, first.wall_ms, last.wall_ms)
        ],
        cpu=[
            (first.wall_ms, round(first.cpu_s, 3)),
            *((at_ms, round(cpu_s, 3)) for at_ms, cpu_s in cpu if first.wall_ms < at_ms < last.wall_ms),
            (last.wall_ms, round(last.cpu_s, 3)),
        ],
    )


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
