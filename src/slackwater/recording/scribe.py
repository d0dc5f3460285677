"""From what the scheduler saw and decided to records of a trace."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from slackwater.policies.assembly import parameters_of
from slackwater.recording.records import (
    Batch,
    Gone,
    Granted,
    Head,
    Host,
    Input,
    Learnt,
    Places,
    Query,
    Switched,
    Worked,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from slackwater.core.engine import Engine
    from slackwater.core.model import BatchReport, Commands, QueryFacts, QueryReport, Report
    from slackwater.core.records import Ran
    from slackwater.recording.records import Plain, Record

SAMPLE_EVERY_S = 1.0
_LEARNT_EVERY_S = 10.0
_MOST_REASON = 100


def tells(report: Report, commands: Commands) -> bool:
    """Whether something happened, rather than that time went by."""
    return bool(commands.grants) or any(
        query.batches or query.worked or query.facts is not None or not query.alive for query in report.queries
    )


class Scribe:
    """Gives queries their numbers, and writes down each report and the answer to it. For one thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ran = 0
        self._numbers: dict[str, int] = {}
        self._described = 0
        self._places: dict[str, tuple[tuple[str, ...], str | None]] = {}
        self._policy = _policy_of(engine)
        self._learnt_wall_ts = self._sampled_wall_ts = -math.inf

    def head(
        self,
        wall_ts: float,
        *,
        version: str,
        application: str,
        spark: str,
        master: str,
        session: Mapping[str, Plain],
    ) -> Head:
        engine = self._engine
        settings = engine.settings
        return Head(
            wall_ts=rounded(wall_ts),
            version=version,
            application=application,
            spark=spark,
            master=master,
            policy=engine.policy.name,
            enforces=engine.policy.enforces,
            parameters=parameters_of(engine.policy),
            settings={
                "lanes": settings.lanes,
                "max_wait_s": settings.max_wait_s,
                "target_latency_s": settings.target_latency_s,
                "confidence": settings.confidence,
            },
            session=dict(session),
        )

    def records(self, seen: Sequence[tuple[Report, Commands]]) -> Iterator[Record]:
        """Of reports that the engine has answered, in order. What ran is looked up where the engine keeps it."""
        added = self._engine.records.ran.added
        ran = {(one.key, one.batch_id): one for one in self._engine.records.ran.since(self._ran, added)}
        for report, commands in seen:
            if report.wall_ts >= self._sampled_wall_ts + SAMPLE_EVERY_S:
                self._sampled_wall_ts = report.wall_ts
                yield self._host(report)
            for query in report.queries:
                yield from self._of_query(query, report.wall_ts, ran)
            for grant in commands.grants:
                number = self._numbers.get(grant.key)
                if number is not None:
                    yield Granted(rounded(report.wall_ts), number, str(grant.stage), grant.reason[:_MOST_REASON])
        self._ran = added
        if not seen:
            return
        last_ts = seen[-1][0].wall_ts
        if (policy := _policy_of(self._engine)) != self._policy:
            self._policy = policy
            yield Switched(rounded(last_ts), policy[0], policy[1], dict(policy[2]))
        if last_ts >= self._learnt_wall_ts + _LEARNT_EVERY_S:
            self._learnt_wall_ts = last_ts
            yield from self._learnt(last_ts)

    def _of_query(self, query: QueryReport, wall_ts: float, ran: Mapping[tuple[str, int], Ran]) -> Iterator[Record]:
        if query.facts is not None and query.key not in self._numbers:
            self._numbers[query.key] = self._described
            self._described += 1
            yield _query(self._numbers[query.key], query.facts, wall_ts)
        number = self._numbers.get(query.key)
        if number is None:
            return
        for batch in query.batches:
            places = (batch.reads, batch.writes)
            if places != self._places.get(query.key, ((), None)):
                self._places[query.key] = places
                yield Places(number, batch.reads, batch.writes)
            yield _batch(number, batch, ran.get((query.key, batch.batch_id)))
        for time in query.worked:
            yield Worked(number, time.batch_id, round(time.cpu_s, 4), rounded(time.run_s))
        if not query.alive:
            del self._numbers[query.key]
            self._places.pop(query.key, None)
            yield Gone(rounded(wall_ts), number, query.error)

    def _host(self, report: Report) -> Host:
        return Host(
            wall_ts=rounded(report.wall_ts),
            cores=report.cores,
            lanes=self._engine.capacity.lanes,
            cpu_s=_maybe(report.cpu_s),
            processors=report.processors,
            heap_used_bytes=report.heap_used_bytes,
            heap_max_bytes=report.heap_max_bytes,
            heap_live_bytes=report.heap_live_bytes,
            gates_open=report.gates_open,
            ordinary_tasks=report.ordinary_tasks,
            collecting_cpu_s=_maybe(report.collecting_cpu_s),
            compiling_cpu_s=_maybe(report.compiling_cpu_s),
        )

    def _learnt(self, wall_ts: float) -> Iterator[Learnt]:
        for view in self._engine.views:
            number = self._numbers.get(view.key)
            if number is not None:
                yield Learnt(
                    rounded(wall_ts),
                    number,
                    rounded(view.batch_cost_s),
                    float(f"{view.row_cost_s:.4g}"),
                    rounded(view.sweep_cost_s),
                    round(view.rows_per_s, 1),
                    round(view.backlog_rows),
                    rounded(view.swm_wall_ts) if math.isfinite(view.swm_wall_ts) else None,
                    rounded(view.swm_sigma_s) if math.isfinite(view.swm_sigma_s) else None,
                )


def _policy_of(engine: Engine) -> tuple[str, bool, tuple[tuple[str, Plain], ...]]:
    policy = engine.policy
    return policy.name, policy.enforces, tuple(sorted(parameters_of(policy).items()))


def _query(number: int, facts: QueryFacts, wall_ts: float) -> Query:
    options = facts.options
    return Query(
        number=number,
        wall_ts=rounded(wall_ts),
        key=facts.key,
        name=facts.name,
        query_id=facts.query_id,
        gated=facts.gated,
        windows=tuple((window.size_s, window.slide_s, window.offset_s) for window in facts.windows),
        input_delays_s=facts.input_delays_s,
        watermark_policy=facts.watermark_policy,
        emits_at_sweep=facts.emits_at_sweep,
        stateful=facts.stateful,
        interval_s=facts.min_interval_s,
        target_latency_s=options.target_latency_s,
        priority_class=options.priority_class,
        deadline_s=options.deadline,
    )


def _batch(number: int, batch: BatchReport, ran: Ran | None) -> Batch:
    return Batch(
        number=number,
        batch_id=batch.batch_id,
        offsets_wall_ts=rounded(batch.offsets_wall_ts),
        ended_wall_ts=rounded(batch.ended_wall_ts),
        duration_s=rounded(batch.duration_s),
        rows=batch.rows,
        watermark_event_ts=rounded(batch.watermark_event_ts),
        inputs=tuple(
            Input(seen.delay_s, seen.rows, _maybe(seen.max_event_ts), _maybe(seen.min_event_ts), seen.delays)
            for seen in batch.inputs
        ),
        stage=str(ran.stage) if ran is not None else "",
        lane=ran.lane if ran is not None else None,
        rows_out=batch.rows_out,
        state_rows=batch.state_rows,
        state_bytes=batch.state_bytes,
        dropped_rows=batch.dropped_rows,
        backlog_rows=batch.backlog_rows,
        limited=batch.limited,
        evicts_event_ts=_maybe(batch.evicts_event_ts),
        state_partitions=batch.state_partitions,
        parts_ms={name: round(1000 * took_s) for name, took_s in batch.parts_s.items() if took_s >= 0.001},
        driver_cpu_s=None if batch.driver_cpu_s is None else round(batch.driver_cpu_s, 4),
    )


def rounded(seconds: float) -> float:
    return round(seconds, 3)


def _maybe(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
