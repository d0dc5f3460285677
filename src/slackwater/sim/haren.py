"""Haren 7.3 and 7.4 on the simulated engine: synthetic chains whose operators are scheduled one by one.

SYN: a query's selectivity is uniform in [0.01, 1], spread over its L operators ± 10 %; its cost class z is 0..4, each
operator costs B·2^z ± 10 %. Haren says neither what a unit of B takes nor the rates of 7.3, so B follows from a load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from slackwater.core.engine import EngineSettings
from slackwater.core.model import QueryOptions
from slackwater.policies.assembly import engine_for
from slackwater.sim.experiment import Claim, Experiment, claim
from slackwater.sim.options import DEFAULT, Options
from slackwater.sim.pipelines import Bursts, Operator, Pipeline, Steady
from slackwater.sim.tuples import Machine, Run, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from slackwater.sim.pipelines import Source

SINGLE = "haren-single"
MULTI = "haren-multiclass"
HIGH, LOW = "high", "low"

_OPERATORS = 12
_GROWN = 1.5
_MACHINE = Machine(cores=4, cycle_s=0.1, slices=5, entities="operators")


@dataclass(frozen=True)
class SinglePlan:
    """full_at: the number of queries at which the cores are just saturated, on average over seeds' costs."""

    queries: tuple[int, ...] = (5, 10, 15, 20)
    policies: tuple[str, ...] = (DEFAULT, "fcfs", "hr", "chain")
    minutes: float = 5.0
    events_per_s: float = 1000.0
    full_at: float = 15.0


@dataclass(frozen=True)
class MultiPlan:
    """Rates are the paper's: a burst of 5000/s for 5 s of 20 is 1250/s on average.

    draws: how often costs and selectivities are drawn anew. Haren repeats everything at least five times, and one draw
    says little: HIGH's three queries need between 0.08 and 0.55 of the cores.
    """

    policies: tuple[str, ...] = (DEFAULT, "multi-class")
    minutes: float = 5.0
    draws: int = 5
    high: int = 3
    low: int = 10
    rates: tuple[float, float] = (500.0, 1000.0)
    burst: tuple[float, float, float] = (5000.0, 5.0, 15.0)


def synthetic(count: int, seed: int) -> list[tuple[Operator, ...]]:
    """Chains with B = 1; the first ones are the same however many there are."""
    found = []
    for query in range(count):
        rng = np.random.default_rng([seed, 12, query])
        selectivity = float(np.exp(np.log(rng.uniform(0.01, 1.0)) / _OPERATORS))
        cost = 2.0 ** int(rng.integers(0, 5))
        costs = cost * rng.uniform(0.9, 1.1, _OPERATORS)
        selectivities = np.minimum(selectivity * rng.uniform(0.9, 1.1, _OPERATORS), 1.0)
        found.append(
            tuple(
                Operator(f"op-{k}", each, kept)
                for k, (each, kept) in enumerate(zip(costs.tolist(), selectivities.tolist(), strict=True))
            )
        )
    return found


def work(chains: list[tuple[Operator, ...]], rates: list[float]) -> float:
    """Cores that chains at these rates need."""
    pairs = zip(chains, rates, strict=True)
    return sum(rate * float(Pipeline("", chain, Steady(rate)).costs_s.sum()) for chain, rate in pairs)


def scaled(chains: list[tuple[Operator, ...]], rates: list[float], load: float) -> list[tuple[Operator, ...]]:
    """Costs such that these chains at these rates need `load` of the cores."""
    factor = load * _MACHINE.cores / work(chains, rates)
    return [tuple(replace(one, cost_s=one.cost_s * factor) for one in chain) for chain in chains]


def run_once(pipelines: list[Pipeline], policy: str, minutes: float, seed: int) -> Run:
    engine = None if policy == DEFAULT else engine_for(policy, EngineSettings(max_wait_s=1e9, history=100))
    return simulate(pipelines, _MACHINE, minutes * 60, engine=engine, seed=seed)


# ---- haren-single ----------------------------------------------------------------------------------------------------


def single(seed: int, options: Options) -> Experiment:
    plan = options.apply(SINGLE, SinglePlan())
    most = max(*plan.queries, round(plan.full_at))
    rates = [plan.events_per_s] * most
    # One unit of B for all numbers of queries: 15 average ones fill the cores.
    chains = scaled(synthetic(most, seed), rates, most / plan.full_at)
    rows = []
    for queries in plan.queries:
        pipelines = [Pipeline(f"syn-{query:02d}", chains[query], Steady(plan.events_per_s)) for query in range(queries)]
        for policy in plan.policies:
            run = run_once(pipelines, policy, plan.minutes, seed)
            rows.append({"queries": queries, "policy": policy, **_measured(run, range(queries))})
    return Experiment(SINGLE, seed, rows, list(_single_claims(rows)), assumptions=_SINGLE_ASSUMPTIONS)


def _measured(run: Run, queries: range) -> dict[str, Any]:
    ages, weights = _egress(run, queries)
    load = sum(float(run.pipelines[q].costs_s.sum() * run.offered[-1, q]) for q in queries)
    step_s = float(np.median(run.steps_s)) if len(run.steps_s) else 0.0
    return {
        "load": round(load / (_MACHINE.cores * run.seconds), 3),
        "events_per_s": round(float(run.taken[-1, queries].sum()) / run.seconds),
        "mean_s": round(float(np.average(ages, weights=weights)), 4),
        "max_s": round(float(ages.max()), 4),
        "queued": round(float(run.queued.mean())),
        "cpu_pct": round(100 * float(run.busy_cores.mean()) / _MACHINE.cores, 1),
        "step_pct": round(100 * step_s / (_MACHINE.cycle_s * _MACHINE.cores), 3),
    }


def _egress(
    run: Run, queries: range, from_s: float = 0.0, to_s: float = np.inf
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ages at the sink and how many tuples had them: source events times what the chain lets through.

    What is still inside at the end counts with its age, so that nobody gains by starving a query; not with an end
    of the span `to_s`.
    """
    ages, weights = [], []
    for query in queries:
        passes = float(np.prod([operator.selectivity for operator in run.pipelines[query].operators]))
        when, count, age = run.ages_s(query)
        inside = (when >= from_s) & (when < to_s)
        ages.append(age[inside])
        weights.append(count[inside] * passes)
        if to_s > run.seconds:
            arrivals = np.diff(run.offered[:, query])
            left = np.clip(run.offered[1:, query] - run.left[-1, query], 0.0, arrivals)
            stuck = np.flatnonzero(left > 1e-3)
            ages.append(run.seconds - run.times_s[stuck])
            weights.append(left[stuck] * passes)
    found = np.concatenate(ages)
    if not len(found):
        return np.zeros(1), np.ones(1)
    return found, np.concatenate(weights)


def _single_claims(rows: list[dict[str, Any]]) -> Iterator[Claim]:
    """Haren Fig. 4, above 5 queries: each policy wins what it is for."""
    by_count: dict[int, dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_count.setdefault(row["queries"], {})[row["policy"]] = row
    for queries, found in by_count.items():
        for policy, row in found.items():
            if row["step_pct"]:
                yield claim(f"deciding, % of the cores: {policy}, {queries} queries", row["step_pct"], "≤", 2.0)
        if queries <= 5 or DEFAULT not in found:
            continue
        default = found[DEFAULT]
        goals = (
            ("fcfs", "max_s", "max latency"),
            ("hr", "mean_s", "mean latency"),
            ("chain", "queued", "queued tuples"),
        )
        for policy, column, what in goals:
            if policy in found and default[column] > 0:
                ratio = found[policy][column] / default[column]
                yield claim(f"{policy}'s {what} over the OS's, {queries} queries", ratio, "≤", 1.0)
        if "chain" in found:
            ratio = found["chain"]["events_per_s"] / max(row["events_per_s"] for row in found.values())
            yield claim(f"chain's throughput over the best, {queries} queries", ratio, "≥", 1.0)


_SINGLE_ASSUMPTIONS = [
    "1000 tuples/s a query; B such that 15 average queries fill the four cores (the paper gives neither)",
    "any thread may run any operator, one at a time (the paper spreads operators over threads at random)",
    "batches of 10 tuples are finer than a slice of 20 ms, in which work is a flow",
    "tuples still inside at the end count with their age; throughput is that of the first operator",
    "step_pct is the real CPU time of engine.step on this machine over four cores' time: not from the seed alone",
]


# ---- haren-multiclass ------------------------------------------------------------------------------------------------


def multiclass(seed: int, options: Options) -> Experiment:
    plan = options.apply(MULTI, MultiPlan())
    draws = [_drawn(plan, seed + draw) for draw in range(plan.draws)]
    rows = [{**where, **_averaged([draw[key] for draw in draws])} for key, where in _places(plan).items()]
    return Experiment(MULTI, seed, rows, list(_multi_claims(rows)), assumptions=_MULTI_ASSUMPTIONS)


def _places(plan: MultiPlan) -> dict[tuple[str, str, str], dict[str, str]]:
    return {
        (scenario, policy, group): {"scenario": scenario, "policy": policy, "class": group}
        for scenario in ("steady", "dynamic")
        for policy in plan.policies
        for group in (HIGH, LOW)
    }


def _averaged(rows: list[dict[str, float]]) -> dict[str, float]:
    means = {name: round(float(np.mean([row[name] for row in rows])), 4) for name in rows[0]}
    grown = sum(row["max_last_third_s"] >= _GROWN * row["max_first_third_s"] for row in rows)
    return {**means, "draws": len(rows), "draws_grown": grown}


def _drawn(plan: MultiPlan, seed: int) -> dict[tuple[str, str, str], dict[str, float]]:
    """One draw of the queries, in both scenarios under all policies."""
    total = plan.high + plan.low
    steady, low = plan.rates
    peak, on_s, off_s = plan.burst
    rates = [steady] * plan.high + [low] * plan.low
    dynamic = [peak * on_s / (on_s + off_s)] * plan.high + [low] * plan.low
    chains = synthetic(total, seed)
    # Scenario 1 is adequate and 2 overload: their loads are equally far from 1.
    chains = scaled(chains, rates, math.sqrt(work(chains, rates) / work(chains, dynamic)))
    groups = {HIGH: range(plan.high), LOW: range(plan.high, total)}
    sources: dict[str, Source] = {"steady": Steady(steady), "dynamic": Bursts(peak, on_s, off_s)}
    found = {}
    for scenario, high in sources.items():
        pipelines = [
            Pipeline(
                f"{HIGH if query < plan.high else LOW}-{query:02d}",
                chains[query],
                high if query < plan.high else Steady(low),
                options=QueryOptions(priority_class=-1 if query < plan.high else 0),
            )
            for query in range(total)
        ]
        for policy in plan.policies:
            run = run_once(pipelines, policy, plan.minutes, seed)
            for group, queries in groups.items():
                found[scenario, policy, group] = _thirds(run, queries)
    return found


def _thirds(run: Run, queries: range) -> dict[str, float]:
    found = _measured(run, queries)
    left, weights = _egress(run, queries, to_s=run.seconds)
    third_s = run.seconds / 3
    first, _ = _egress(run, queries, 0.0, third_s)
    last, _ = _egress(run, queries, 2 * third_s)
    kept = {name: found[name] for name in ("load", "events_per_s", "mean_s", "max_s")}
    return {
        **kept,
        "left_mean_s": float(np.average(left, weights=weights)),
        "max_first_third_s": float(first.max()),
        "max_last_third_s": float(last.max()),
    }


def _multi_claims(rows: list[dict[str, Any]]) -> Iterator[Claim]:
    found = {(row["scenario"], row["policy"], row["class"]): row for row in rows}

    def row(scenario: str, policy: str, group: str) -> dict[str, Any] | None:
        return found.get((scenario, policy, group))

    for scenario in ("steady", "dynamic"):
        ours, os_ = row(scenario, "multi-class", HIGH), row(scenario, DEFAULT, HIGH)
        if ours is None or os_ is None:
            continue
        ratio = ours["max_s"] / os_["max_s"]
        yield claim(f"{scenario}: HIGH's max latency under multi-class over the OS's", ratio, "≤", 1.0)
        ratio = ours["mean_s"] / os_["mean_s"]
        yield claim(f"{scenario}: HIGH's mean latency under multi-class over the OS's", ratio, "≤", 1.0)
    ours, os_, low = (
        row("dynamic", "multi-class", HIGH),
        row("dynamic", DEFAULT, HIGH),
        row("dynamic", "multi-class", LOW),
    )
    if ours is None or os_ is None or low is None:
        return
    growth = ours["max_last_third_s"] / ours["max_first_third_s"]
    yield claim("dynamic: HIGH's max latency under multi-class, last third over first", growth, "≤", _GROWN)
    growth = os_["max_last_third_s"] / os_["max_first_third_s"]
    yield claim("dynamic: HIGH's max latency under the OS, last third over first", growth, "≥", _GROWN)
    yield claim(
        "dynamic: LOW's mean under multi-class over HIGH's under the OS, of what left",
        low["left_mean_s"] / os_["left_mean_s"],
        "≤",
        1.0,
    )
    yield claim("dynamic: the same, with what is still inside at the end", low["mean_s"] / os_["mean_s"], "≤", 1.0)
    yield claim(
        "dynamic: HIGH's throughput under multi-class over the OS's",
        ours["events_per_s"] / os_["events_per_s"],
        "≥",
        1.0,
    )


_MULTI_ASSUMPTIONS = [
    "scenario 1 is adequate and 2 is overload, as the paper says: costs put their loads equally far from 1",
    "figures are means over the draws; draws_grown: draws in which the last third's max is 1.5 times the first third's",
    "left_mean_s is of what has left, as a sink measures it; mean_s counts what is still inside with its age, too",
    *_SINGLE_ASSUMPTIONS[1:4],
]
