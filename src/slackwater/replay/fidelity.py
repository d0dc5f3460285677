"""A trace made ready to be replayed: costs learnt, the recorded policy replayed, and how far that is from the record.

What a trace cannot tell by itself, how much of a batch is tasks that wait for a core and by what rule they get one, is
chosen so that the recorded policy comes out as it was recorded. What is left as a difference widens every prediction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from slackwater.errors import ConfigurationError
from slackwater.replay.costs import Costs, costs_of
from slackwater.replay.measure import Span
from slackwater.replay.run import Outcome, as_recorded, replayed
from slackwater.replay.scenario import Scenario, recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slackwater.recording.reading import Trace

MOST_REPLAYED_S = 900.0
_WARM_SHARE = 0.2
_WARM_S = 20.0
_DRAIN_SHARE = 0.1
_DRAIN_S = 20.0
_LEAST_SPAN_S = 5.0
_MOST_SCALE = 1.5
_LEAST_SCALE = 0.67
_CLOSE = 0.05
_LEARNT_BEFORE_S = 60.0
_ENOUGH = 20
_TASK_SHARES = (0.75, 0.5, 0.35, 0.25, 0.0)


@dataclass(frozen=True)
class Ready:
    """A trace, its costs, and the check: the recorded span as it was and as the same policy replays it."""

    trace: Trace
    span: Span
    costs: Costs
    scenario: Scenario
    recorded: Outcome
    again: Outcome

    @property
    def error_mean(self) -> float:
        """By how much the replay of the recorded policy is off, as a share: of the mean latency, …"""
        return _off(self.again.mean_s, self.recorded.mean_s)

    @property
    def error_p99(self) -> float:
        """… and of the 99th percentile."""
        return _off(self.again.percentile_s(99), self.recorded.percentile_s(99))

    def replay(self, scenario: Scenario, seed: int = 0) -> Outcome:
        if not scenario.policy:
            scenario = scenario.but(
                task_order=self.scenario.task_order if not self.scenario.policy else scenario.task_order
            )
        return replayed(self.trace, self.costs, scenario, self.span, seed)


def span_of(trace: Trace, from_s: float | None = None, to_s: float | None = None) -> Span:
    """What is measured of a trace: without its first fifth, in which code is compiled, and with time to finish."""
    begin = trace.from_wall_ts
    end = trace.to_wall_ts
    first = begin + (
        from_s if from_s is not None else min(max(_WARM_S, _WARM_SHARE * trace.seconds), trace.seconds / 2)
    )
    last = begin + to_s if to_s is not None else end - min(_DRAIN_S, _DRAIN_SHARE * trace.seconds)
    if last - first < _LEAST_SPAN_S or last > end + 1e-6:
        raise ConfigurationError(
            f"the trace lasts {trace.seconds:.0f} s, and from {first - begin:.0f} to {last - begin:.0f} s there is too "
            f"little to measure: {_LEAST_SPAN_S:g} s at least are needed, best some minutes. Record for longer."
        )
    return Span(first, last, end)


def last_seconds(trace: Trace, seconds: float = MOST_REPLAYED_S) -> Trace:
    """The end of a trace: replaying hours would take minutes and tell no more."""
    begin = trace.to_wall_ts - seconds
    if begin <= trace.from_wall_ts:
        return trace
    queries = []
    for query in trace.queries:
        batches = tuple(batch for batch in query.batches if batch.ended_wall_ts >= begin)
        if query.gone is not None and query.gone.wall_ts < begin:
            continue
        about = query.about
        if batches and about.wall_ts < begin:
            about = msgspec.structs.replace(query.about, wall_ts=begin)
        queries.append(replace(query, about=about, batches=batches))
    hosts = tuple(host for host in trace.hosts if host.wall_ts >= begin)
    return replace(trace, queries=tuple(queries), hosts=hosts, from_wall_ts=begin)


def ready(trace: Trace, *, from_s: float | None = None, to_s: float | None = None, seed: int = 0) -> Ready:
    """Learn what batches cost, and find the variant of the model that replays the recorded policy best."""
    if not any(query.batches for query in trace.queries):
        raise ConfigurationError("the trace has no batches: nothing ran while it was recorded.")
    span = span_of(trace, from_s, to_s)
    costs = costs_of(trace, _warm_from(trace, span), span.to_wall_ts)
    truth = as_recorded(trace, costs, span)
    if truth.mean_s is None:
        raise ConfigurationError(
            "no window was due in the measured span of the trace, and no query without windows ran: there is no "
            "latency to compare. Record for longer than the longest window."
        )
    own = recorded(trace)
    best: Ready | None = None
    for tried, scenario in _variants(costs, own):
        found = _rescaled(trace, span, tried, scenario, truth, seed)
        if best is None or _score(found) < _score(best):
            best = found
        if _score(best) < _CLOSE:
            break
    assert best is not None  # noqa: S101  # there is at least one variant
    return best


def _warm_from(trace: Trace, span: Span) -> float:
    """Where a query has few batches in the span, what they cost is learnt from some time before it, too."""
    inside = [
        sum(span.from_wall_ts < batch.ended_wall_ts <= span.to_wall_ts for batch in query.batches)
        for query in trace.queries
        if query.batches
    ]
    if min(inside) >= _ENOUGH:
        return span.from_wall_ts
    last = max((query.about.wall_ts for query in trace.queries if query.about.wall_ts < span.from_wall_ts), default=0.0)
    return min(span.from_wall_ts, max(span.from_wall_ts - _LEARNT_BEFORE_S, last + _WARM_S, trace.from_wall_ts))


def _variants(costs: Costs, own: Scenario) -> Iterator[tuple[Costs, Scenario]]:
    """Slackwater orders tasks itself; for Spark's own way, pools or none, and more or less of a batch in tasks."""
    if own.policy:
        yield costs, own
        return
    other = "arrival" if own.task_order == "name" else "name"
    yield costs, own
    for times in _TASK_SHARES:
        yield replace(costs, task_share=times * costs.task_share), own
    yield costs, own.but(task_order=other)


def _rescaled(trace: Trace, span: Span, costs: Costs, own: Scenario, truth: Outcome, seed: int) -> Ready:
    """Batches as long as they were, on the average: what company costs is a model, and this is what it is off by."""
    found = Ready(trace, span, costs, own, truth, replayed(trace, costs, own, span, seed))
    if costs.by_cpu or found.again.batch_mean_s <= 0 or truth.batch_mean_s <= 0:
        return found
    times = min(_MOST_SCALE, max(_LEAST_SCALE, truth.batch_mean_s / found.again.batch_mean_s))
    if abs(times - 1) < _CLOSE:
        return found
    queries = {key: cost.scaled(times) for key, cost in costs.queries.items()}
    scaled = replace(costs, queries=queries)
    again = Ready(trace, span, scaled, own, truth, replayed(trace, scaled, own, span, seed))
    return min(found, again, key=_score)


def _score(found: Ready) -> float:
    return found.error_mean + found.error_p99 / 2


def _off(replayed_s: float | None, recorded_s: float | None) -> float:
    if replayed_s is None or recorded_s is None or recorded_s <= 0 or replayed_s <= 0:
        return 1.0
    return abs(math.expm1(abs(math.log(replayed_s / recorded_s))))
