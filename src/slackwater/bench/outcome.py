"""The figures of a run, from what it left: read in the same way whoever competed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from slackwater.bench.cpu import collections_mb, heap_summary, live_mb, paused_pct
from slackwater.bench.measure import (
    Span,
    distribution,
    kept_up,
    longest_stall_s,
    mean_lag_ms,
    measure_query,
    thirds_lag_ms,
    total,
)
from slackwater.bench.model import Backlog, QueryResult, RunResult, SchedulerCost, contender
from slackwater.bench.slowdown import by_class, by_group, slowdown
from slackwater.errors import SlackwaterError
from slackwater.workloads.base import emitted_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from slackwater.bench.accuracy import Ranges
    from slackwater.bench.cpu import HeapSampler
    from slackwater.bench.measure import Batch, QueryOutcome
    from slackwater.bench.members import Member
    from slackwater.bench.model import RunSpec
    from slackwater.workloads.base import RunningQuery


@dataclass(frozen=True)
class Snapshot:
    """What is read at both ends of the measured span."""

    wall_ms: int
    cpu_s: float
    scheduler_cpu_s: float
    decisions: int
    gates_opened: int


@dataclass(frozen=True)
class Observed:
    """What a run leaves once its queries have stopped; members, running and batches are those of the same queries.

    end_ms: until when results were waited for. gc_log: the text of it.
    decisions: how many the scheduler had made, with the wall time; ranges: what it expected.
    decision_ms_p99: None when nobody scheduled.
    """

    spec: RunSpec
    members: Sequence[Member]
    running: Sequence[RunningQuery]
    batches: Sequence[Sequence[Batch]]
    first: Snapshot
    last: Snapshot
    end_ms: int
    warmed_up: bool
    warmup_s: float
    heap: HeapSampler
    gc_log: str
    decisions: Sequence[tuple[int, int]]
    decision_ms_p99: float | None
    ranges: Sequence[Ranges]
    warnings: list[str]

    @property
    def span(self) -> Span:
        return Span(from_ms=self.first.wall_ms, to_ms=self.last.wall_ms, end_ms=self.end_ms)


def outcome_of(run: Observed, spark: SparkSession) -> RunResult:
    """The measured queries in figures; `spark` has the tables that they wrote to."""
    spec, first, last, span, batches = run.spec, run.first, run.last, run.span, run.batches
    oracles = [
        member.workload.oracle(running.spec, running.checkpoint)
        for member, running in zip(run.members, run.running, strict=True)
    ]
    outcomes = [
        measure_query(found, emitted_rows(spark, running.spec.name), oracle, span)
        for running, found, oracle in zip(run.running, batches, oracles, strict=True)
    ]
    by_name = {
        running.spec.name: (oracle, running.spec.delay_ms) for running, oracle in zip(run.running, oracles, strict=True)
    }
    seconds = (span.to_ms - span.from_ms) / 1000
    in_span = list(chain.from_iterable(outcome.batches for outcome in outcomes))
    latencies_s = list(chain.from_iterable(outcome.latencies_s for outcome in outcomes))
    propagations_s = list(chain.from_iterable(outcome.propagations_s for outcome in outcomes))
    per_query = [
        _query_result(member, running, outcome)
        for member, running, outcome in zip(run.members, run.running, outcomes, strict=True)
    ]
    return RunResult(
        policy=spec.policy,
        seed=spec.seed,
        latency_s=distribution(latencies_s),
        propagation_s=distribution(propagations_s),
        windows=total(outcome.windows for outcome in outcomes),
        events_per_s=round(sum(batch.input_rows for batch in in_span) / seconds, 1),
        offered_events_per_s=float(sum(member.query.rate for member in run.members)),
        cpu_cores=round((last.cpu_s - first.cpu_s) / seconds, 4),
        batches=len(in_span),
        batch_s=distribution([batch.duration_ms / 1000 for batch in in_span]),
        heap_mb=heap_summary(
            run.heap.between(span.from_ms, span.to_ms),
            collections_mb(run.gc_log, span.from_ms, span.to_ms),
            live_mb(run.gc_log, span.from_ms, span.to_ms),
            paused_pct(run.gc_log, span.from_ms, span.to_ms),
        ),
        scheduler=_scheduler_cost(run),
        steady=_steady(run, outcomes),
        warmed_up=run.warmed_up,
        warmup_s=run.warmup_s,
        drain_s=round((span.end_ms - span.to_ms) / 1000, 3),
        seconds=round(seconds, 3),
        backlog=_backlog(batches, span),
        per_query=per_query,
        latencies_s=sorted(latencies_s),
        estimates=[ranges.accuracy(by_name, span.from_ms, span.to_ms) for ranges in run.ranges],
        warnings=run.warnings,
        slowdown=slowdown(per_query) if spec.groups else None,
        per_group=by_group(per_query) if spec.groups else [],
        per_class=by_class(per_query) if spec.groups else [],
    )


def _query_result(member: Member, running: RunningQuery, outcome: QueryOutcome) -> QueryResult:
    return QueryResult(
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


def _steady(run: Observed, outcomes: Sequence[QueryOutcome]) -> bool:
    """Every due window came out, and the queries lagged no more at the end of the span than at its start."""
    windows = total(outcome.windows for outcome in outcomes)
    tolerance = run.spec.settings.kept_up_tolerance
    return windows.emitted == windows.expected and kept_up(run.batches, run.span.from_ms, run.span.to_ms, tolerance)


def _scheduler_cost(run: Observed) -> SchedulerCost:
    if run.decision_ms_p99 is None:
        return SchedulerCost()
    spec, first, last = run.spec, run.first, run.last
    stalled_s = longest_stall_s(run.decisions, first.wall_ms, last.wall_ms)
    ours = contender(spec.policy).kind == "slackwater"
    if ours and stalled_s > min(spec.settings.stall_max_s, spec.seconds / 2):
        # Slackwater fails open, so everything else looks fine: these would be plain Spark's figures.
        raise SlackwaterError(
            f"the scheduler made no decision for {stalled_s:.1f} s of the measured span, so this run was not "
            f"{spec.policy}'s. It logged: {'; '.join(run.warnings) or 'nothing'}"
        )
    used_s = last.cpu_s - first.cpu_s
    share = (last.scheduler_cpu_s - first.scheduler_cpu_s) / used_s if used_s > 0 else 0.0
    return SchedulerCost(
        decision_ms_p99=round(run.decision_ms_p99, 4),
        overhead_pct=round(100 * share, 3),
        decisions=last.decisions - first.decisions,
        stalled_s=stalled_s,
        gates_opened=last.gates_opened - first.gates_opened,
    )


def _backlog(queries: Sequence[Sequence[Batch]], span: Span) -> Backlog:
    early_ms, late_ms = thirds_lag_ms(queries, span.from_ms, span.to_ms)
    return Backlog(
        start_s=_seconds(mean_lag_ms(queries, span.from_ms, span.from_ms)),
        end_s=_seconds(mean_lag_ms(queries, span.to_ms, span.to_ms)),
        first_third_s=_seconds(early_ms),
        last_third_s=_seconds(late_ms),
    )


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else round(ms / 1000, 3)
