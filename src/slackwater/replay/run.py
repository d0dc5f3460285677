"""A trace again, in virtual time: the same engine and policies as on Spark, over a `ScriptedDriver`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from slackwater.core.engine import EngineSettings
from slackwater.core.model import Commands
from slackwater.policies.assembly import engine_for
from slackwater.replay.measure import measured, passed_by
from slackwater.replay.state import StateModel
from slackwater.replay.streams import recorded_streams
from slackwater.testing import FakeClock, ScriptedDriver, SimulatedQuery, steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from slackwater.core.model import BatchReport, QueryFacts
    from slackwater.recording.reading import Trace, TracedQuery
    from slackwater.replay.costs import Costs
    from slackwater.replay.measure import QueryLatency, Ran, Span
    from slackwater.replay.scenario import Scenario
    from slackwater.replay.streams import RecordedStream


_GRANT_DELAY_S = 0.005  # where nobody granted while it was recorded
_POLL_S = 0.02  # Spark looks every 10 ms; half as often is twice as fast here


@dataclass(frozen=True)
class QueryOutcome:
    """One query: latency, and what it took. Rows are late whose event time a watermark had passed (an estimate)."""

    name: str
    priority_class: int
    latency: QueryLatency
    cpu_s: float
    state_bytes_max: float
    late_rows: float

    @property
    def mean_s(self) -> float | None:
        return _figure(np.mean, self.latency.latencies_s)

    def percentile_s(self, percent: float) -> float | None:
        return _figure(lambda found: np.percentile(found, percent), self.latency.latencies_s)


@dataclass(frozen=True)
class Outcome:
    """A span under one scenario, replayed or recorded. cpu_cores: None where nobody told."""

    scenario: str
    queries: tuple[QueryOutcome, ...]
    cpu_cores: float | None
    batch_mean_s: float
    seconds: float
    batches: tuple[tuple[str, BatchReport], ...] = field(default=(), repr=False, compare=False)

    @property
    def latencies_s(self) -> tuple[float, ...]:
        return tuple(latency for query in self.queries for latency in query.latency.latencies_s)

    @property
    def mean_s(self) -> float | None:
        return _figure(np.mean, self.latencies_s)

    def percentile_s(self, percent: float) -> float | None:
        return _figure(lambda found: np.percentile(found, percent), self.latencies_s)

    @property
    def due(self) -> int:
        return sum(query.latency.due for query in self.queries)

    @property
    def left(self) -> int:
        return sum(query.latency.left for query in self.queries)

    @property
    def state_bytes_max(self) -> float:
        return sum(query.state_bytes_max for query in self.queries)

    @property
    def late_rows(self) -> float:
        return sum(query.late_rows for query in self.queries)


def replayed(trace: Trace, costs: Costs, scenario: Scenario, span: Span, seed: int = 0) -> Outcome:
    """Run the queries of a trace from its start to the end of a span; the same arguments give the same outcome."""
    queries = [query for query in _gated(trace) if query.name not in scenario.without]
    clock = FakeClock(trace.from_wall_ts)
    streams = recorded_streams(queries, trace.from_wall_ts)
    simulated = [
        _simulated(query, stream, place, len(queries), trace, costs, scenario)
        for place, (query, stream) in enumerate(zip(queries, streams, strict=True))
    ]
    spark = not scenario.policy
    driver = ScriptedDriver(
        simulated,
        cores=scenario.cores or costs.cores,
        clock=clock,
        background_cores=costs.background_cores,
        crowding=costs.crowding,
        grant_delay_s=0.0 if spark else costs.grant_delay_s or _GRANT_DELAY_S,
        task_order=scenario.task_order,
        seed=seed,
        poll_s=_POLL_S,
        capacity_cores=costs.besides.capacity_cores * (scenario.cores or costs.cores) / costs.cores,
        garbage=costs.besides.garbage,
        compiling=costs.besides.compiling_at if costs.besides.compiling else None,
    )
    cpu = [(clock.now(), 0.0)]
    rounds = _unscheduled(driver, span) if spark else _scheduled(trace, scenario, driver, span)
    cpu += [(clock.now(), driver.cpu_s) for _ in rounds]
    at, used = np.array(cpu).T
    begun, done = np.interp([span.from_wall_ts, span.to_wall_ts], at, used)
    ran = {one.name: driver.trace.batches_of(one.name) for one in simulated}
    outcomes = [
        _outcome(query, one.facts(), ran[one.name], span, costs) for query, one in zip(queries, simulated, strict=True)
    ]
    inside = [batch.duration_s for _, batch in driver.trace.batches if _in(batch, span)]
    return Outcome(
        scenario=scenario.name,
        queries=tuple(outcomes),
        cpu_cores=float(done - begun) / span.seconds,
        batch_mean_s=float(np.mean(inside)) if inside else 0.0,
        seconds=span.seconds,
        batches=tuple(driver.trace.batches),
    )


def as_recorded(trace: Trace, costs: Costs, span: Span) -> Outcome:
    """What the trace itself tells of a span, measured in the same way."""
    outcomes, lengths = [], []
    for query in _gated(trace):
        facts = query.facts()
        found = measured(facts, query.batches, span, _seen_from(query))
        inside = [batch for batch in query.batches if _in(batch, span)]
        lengths += [batch.duration_s for batch in inside]
        outcomes.append(
            QueryOutcome(
                name=query.name,
                priority_class=query.about.priority_class,
                latency=found,
                cpu_s=_cpu_s(query, inside, costs),
                state_bytes_max=float(max((batch.state_bytes for batch in inside), default=0)),
                late_rows=float(sum(batch.dropped_rows for batch in inside)),
            )
        )
    told = [(host.wall_ts, host.cpu_s) for host in trace.hosts if host.cpu_s is not None]
    cores = None
    if len(told) > 1:
        at, used = np.array(told).T
        begun, done = np.interp([span.from_wall_ts, span.to_wall_ts], at, used)
        cores = float(done - begun) / span.seconds
    return Outcome(
        scenario="recorded",
        queries=tuple(outcomes),
        cpu_cores=cores,
        batch_mean_s=float(np.mean(lengths)) if lengths else 0.0,
        seconds=span.seconds,
    )


def _scheduled(trace: Trace, scenario: Scenario, driver: ScriptedDriver, span: Span) -> Iterator[object]:
    lanes = scenario.lanes if scenario.lanes is not None else trace.head.settings.get("lanes", "auto")
    settings = EngineSettings(
        lanes=lanes if isinstance(lanes, int) and not isinstance(lanes, bool) else "auto",
        max_wait_s=_setting(trace, "max_wait_s", 30.0),
        target_latency_s=_setting(trace, "target_latency_s", 2.0),
        confidence=_setting(trace, "confidence", 0.95),
    )
    engine = engine_for(scenario.policy, settings, knob=scenario.knob, memory_bound=scenario.memory_bound)
    return steps(engine, driver, span.end_wall_ts - trace.from_wall_ts)


def _unscheduled(driver: ScriptedDriver, span: Span) -> Iterator[object]:
    """Queries follow their own triggers: there is nothing to decide."""
    while driver.clock.now() < span.end_wall_ts:
        yield driver.exchange(Commands(enforce=False, wake_after_s=1.0))


def _gated(trace: Trace) -> list[TracedQuery]:
    """Those that a scheduler can hold: the others run as they will, whatever the policy."""
    return [query for query in trace.queries if query.about.gated and query.batches]


def _seen_from(query: TracedQuery) -> float:
    """The event time from which on windows are counted, recorded and replayed.

    What the first recorded batch had passed, others before it may have emitted; one without a watermark is the first.
    """
    first = passed_by(query.batches[0])
    return first if first > 0 else query.about.wall_ts - query.facts().delay_s


def _simulated(
    query: TracedQuery,
    stream: RecordedStream,
    place: int,
    count: int,
    trace: Trace,
    costs: Costs,
    scenario: Scenario,
) -> SimulatedQuery:
    about, start = query.about, trace.from_wall_ts
    cost = costs.queries[about.key].scaled(scenario.cost_times)
    limits = [batch.rows for batch in query.batches if batch.limited]
    behind = [
        batch.watermark_event_ts - batch.evicts_event_ts
        for batch in query.batches
        if batch.evicts_event_ts is not None and batch.watermark_event_ts > 0
    ]
    return SimulatedQuery(
        name=about.name if _unique(trace, about.name) else about.key,
        windows=query.facts().windows,
        stream=stream,
        input_delays_s=about.input_delays_s,
        watermark_policy=query.facts().watermark_policy,
        behind_s=max(0.0, float(np.median(behind))) if behind else 0.0,
        batch_cost_s=cost.batch_s,
        row_cost_s=cost.row_s,
        empty_cost_s=cost.empty_s,
        cpu_share=costs.cpu_share,
        cpu_demand=costs.cpu_demand,
        task_share=costs.task_share,
        factors=costs.factors,
        pace=(lambda now_s: costs.pace_at(start + now_s)) if costs.pace else None,
        # Some that were held back took less than they might have: the largest is the limit.
        max_rows=max(limits) if limits else None,
        stateful=about.stateful,
        emits_at_sweep=about.emits_at_sweep,
        interval_s=scenario.interval_of(about.interval_s, place, count),
        starts_at_s=max(0.0, about.wall_ts - start),
        fails_at_s=query.gone.wall_ts - start if query.gone is not None else float("inf"),
        options=query.facts().options,
    )


def _unique(trace: Trace, name: str) -> bool:
    return sum(query.name == name for query in trace.queries) == 1


def _outcome(
    query: TracedQuery, facts: QueryFacts, batches: Sequence[BatchReport], span: Span, costs: Costs
) -> QueryOutcome:
    inside = [batch for batch in batches if _in(batch, span)]
    state = StateModel(query)
    return QueryOutcome(
        name=query.name,
        priority_class=query.about.priority_class,
        latency=measured(facts, batches, span, _seen_from(query)),
        cpu_s=_cpu_s(query, inside, costs),
        state_bytes_max=max((state.bytes_after(batch) for batch in inside), default=0.0),
        late_rows=state.late_rows(batches, span),
    )


def _cpu_s(query: TracedQuery, batches: Iterable[Ran], costs: Costs) -> float:
    """By what its batches cost alone: CPU time is told for the process as a whole only."""
    rows = np.array([batch.rows for batch in batches], dtype=np.float64)
    return float(costs.queries[query.about.key].alone_s(rows).sum() * costs.cpu_share * costs.cpu_demand)


def _in(batch: Ran, span: Span) -> bool:
    return span.from_wall_ts <= batch.ended_wall_ts < span.to_wall_ts


def _setting(trace: Trace, name: str, usual: float) -> float:
    value = trace.head.settings.get(name, usual)
    return float(value) if isinstance(value, int | float) else usual


def _figure(reckon: object, values: Sequence[float]) -> float | None:
    return float(reckon(values)) if len(values) else None  # type: ignore[operator]
