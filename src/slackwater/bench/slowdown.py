"""How queries that differ fared together: latency relative to what each of them is asked for. Pure.

Slowdown is a window's latency divided by the time from one result of its query to the next, which is the slide, or the
length of windows that tumble. At 1 a result leaves when the next one is due; beyond, it is overtaken.

Every query counts the same: one that gives a result each second would else outvote ten that give one every ten. So a
window weighs one over the number of windows that its query was due to give.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from slackwater.bench.measure import distribution, total
from slackwater.bench.mix_model import PRIORITY
from slackwater.bench.model import Distribution, GroupResult
from slackwater.sim.experiment import claim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from slackwater.bench.model import QueryResult, RunResult
    from slackwater.sim.experiment import Claim

OURS = "klink"
_CLASS_NAMES: dict[int, str] = {priority: name for name, priority in PRIORITY.items()}


def slowdown(queries: Sequence[QueryResult]) -> Distribution:
    """Over all windows that were due, each query with the same weight; `count` is the number of windows."""
    values, weights = [], []
    for query in queries:
        if query.every_s and query.latencies_s:
            values += [latency_s / query.every_s for latency_s in query.latencies_s]
            weights += [1 / len(query.latencies_s)] * len(query.latencies_s)
    return weighted(values, weights)


def weighted(values: Sequence[float], weights: Sequence[float]) -> Distribution:
    """A quantile is the least value that has at least that share of the weight at or below it."""
    if not values:
        return Distribution(count=0)
    order = np.argsort(values)
    ordered, below = np.asarray(values)[order], np.cumsum(np.asarray(weights)[order])
    # A hair less, as the sum of many weights is not exact.
    places = np.searchsorted(below, np.array([0.5, 0.9, 0.99]) * below[-1] * (1 - 1e-9))
    p50, p90, p99 = (round(float(ordered[place]), 4) for place in places)
    mean = round(float(np.average(values, weights=weights)), 4)
    return Distribution(len(values), mean, p50, p90, p99, round(float(ordered[-1]), 4))


def by_group(queries: Sequence[QueryResult]) -> list[GroupResult]:
    """In the order of their first queries."""
    return _divided(queries, lambda query: query.group)


def by_class(queries: Sequence[QueryResult]) -> list[GroupResult]:
    """The most urgent first."""
    ordered = sorted(queries, key=lambda query: query.priority_class)
    return _divided(ordered, lambda query: _CLASS_NAMES.get(query.priority_class, str(query.priority_class)))


def _divided(queries: Sequence[QueryResult], key: Callable[[QueryResult], str]) -> list[GroupResult]:
    members: dict[str, list[QueryResult]] = defaultdict(list)
    for query in queries:
        members[key(query)].append(query)
    return [
        GroupResult(
            name=name,
            queries=len(found),
            windows=total(query.windows for query in found),
            latency_s=distribution(list(chain.from_iterable(query.latencies_s for query in found))),
            slowdown=slowdown(found),
        )
        for name, found in members.items()
    ]


def mix_claims(runs: Sequence[RunResult]) -> list[Claim]:
    """What a mix is run for: no contender slows queries down less than klink, and nothing comes out wrong."""
    return list(_claims([run for run in runs if run.sweep_of is None]))


def _claims(runs: Sequence[RunResult]) -> Iterator[Claim]:
    for what in ("mean", "p99"):
        found: dict[str, list[float]] = defaultdict(list)
        for run in runs:
            value = getattr(run.slowdown, what, None)
            if value is not None:
                found[run.policy].append(value)
        means = {policy: sum(values) / len(values) for policy, values in found.items()}
        ours = means.pop(OURS, None)
        if ours is not None and means:
            best = min(means, key=lambda policy: means[policy])
            yield claim(f"{OURS}: {what} slowdown, times that of {best}, the best other", ours / means[best], "≤", 1.0)
    if runs:
        yield claim("windows with a wrong result", sum(run.windows.wrong for run in runs), "≤", 0)
