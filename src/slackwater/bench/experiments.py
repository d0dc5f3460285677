"""Benchmarks that test a claim on live Spark: classes of queries, a heap that is too small for plain Spark, late data.

Each run is one of the harness's, in a fresh Spark process. What comes out has the form of a simulated experiment: rows,
and claims with target, measured value and whether they hold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from slackwater.bench.harness import Listener, run_in_subprocess
from slackwater.bench.measure import cause_of_end, distribution
from slackwater.bench.members import HIGH
from slackwater.bench.model import Beside, Failure, RunResult, RunSettings, RunSpec
from slackwater.errors import SlackwaterError
from slackwater.sim.experiment import Claim, Experiment, claim

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CLASSES = "bench-classes"
MEMORY = "bench-memory"
BESIDE = "bench-beside"
ALONE = "HIGH alone"
_WAITING, _CORRECTED = "late windows wait", "late windows are executed again"
_MOST_TIMES_WAITING = 1.1
_MOST_TIMES_ALONE = 1.5


@dataclass(frozen=True)
class Outcome:
    """One run: what it measured, or why it came to nothing."""

    label: str
    spec: RunSpec
    run: RunResult | None
    error: str = ""


def ysb_run(
    queries: int, rate: int, window_s: float, seconds: float, settings: RunSettings, policy: str = ""
) -> RunSpec:
    """What most of them vary: YSB's queries with a delay of a second, their windows' ends spread."""
    return RunSpec(
        workload="ysb",
        policy=policy,
        seed=0,
        queries=queries,
        rate=rate,
        window_s=window_s,
        delay_s=1.0,
        seconds=seconds,
        phases="spread",
        payload="columns",
        settings=settings,
    )


def outcomes(specs: Sequence[tuple[str, RunSpec]], listener: Listener) -> Iterator[Outcome]:
    listener.planned(len(specs))
    for label, spec in specs:
        try:
            found = run_in_subprocess(spec, lambda state, spec=spec: listener.state(spec, state))  # type: ignore[misc]
        except SlackwaterError as error:
            listener.failed(Failure(spec.policy, spec.seed, str(error)))
            yield Outcome(label, spec, None, str(error))
        else:
            listener.finished(found.run)
            yield Outcome(label, spec, found.run)


# ---- classes ---------------------------------------------------------------------------------------------------------


def classes(base: RunSpec, low: int, policies: Sequence[str], seeds: Sequence[int], listener: Listener) -> Experiment:
    """`base.high` queries of the class HIGH alone, then beside `low` others that want more than the machine has."""
    specs = []
    for seed in seeds:
        specs.append((ALONE, replace(base, policy="multi-class", queries=base.high, seed=seed)))
        specs += [(policy, replace(base, policy=policy, queries=base.high + low, seed=seed)) for policy in policies]
    found = list(outcomes(specs, listener))
    rows = [row for outcome in found for row in _class_rows(outcome)]
    return Experiment(CLASSES, seeds[0], rows, list(_class_claims(found)), assumptions=_CLASS_ASSUMPTIONS)


_CLASS_ASSUMPTIONS = [
    "HIGH are YSB queries like the others, with priority_class=-1; alone means with the same settings, without LOW",
    "LOW saturates: their batches, as soon as possible, ask for more than the cores give",
]


def _class_rows(outcome: Outcome) -> Iterator[dict[str, Any]]:
    run = outcome.run
    if run is None:
        yield {"policy": outcome.label, "seed": outcome.spec.seed, "class": "-", "failed": outcome.error}
        return
    for name, group in (("HIGH", HIGH), ("LOW", 0)):
        members = [query for query in run.per_query if query.priority_class == group]
        latency = distribution([value for query in members for value in query.latencies_s])
        if members:
            yield {
                "policy": outcome.label,
                "seed": run.seed,
                "class": name,
                "queries": len(members),
                "latency_mean_s": latency.mean,
                "latency_p99_s": latency.p99,
                "latency_max_s": latency.max,
                "windows": f"{sum(q.windows.emitted for q in members)}/{sum(q.windows.expected for q in members)}",
                "wrong": sum(q.windows.wrong for q in members),
                "cpu_cores": run.cpu_cores,
            }


def high_p99_s(found: Sequence[Outcome], label: str) -> float | None:
    """Over all seeds together."""
    runs = [outcome.run for outcome in found if outcome.label == label and outcome.run is not None]
    values = [v for run in runs for query in run.per_query if query.priority_class == HIGH for v in query.latencies_s]
    return distribution(values).p99


def _class_claims(found: Sequence[Outcome]) -> Iterator[Claim]:
    alone, beside = high_p99_s(found, ALONE), high_p99_s(found, "multi-class")
    if alone and beside:
        yield claim(
            "multi-class: HIGH's p99 beside LOW, times that of HIGH alone", beside / alone, "≤", _MOST_TIMES_ALONE
        )
    spark = high_p99_s(found, "spark-fair")
    if spark and beside:
        yield claim("multi-class: HIGH's p99, times that under spark-fair", beside / spark, "≤", 1.0)
    wrong = sum(outcome.run.windows.wrong for outcome in found if outcome.run is not None)
    yield claim("windows with a wrong result", wrong, "≤", 0)


# ---- memory ----------------------------------------------------------------------------------------------------------


def memory(base: RunSpec, policies: Sequence[str], seeds: Sequence[int], listener: Listener) -> Experiment:
    """Queries that keep every row of a window, in a heap that holds little more than the windows that must be open."""
    specs = [(policy, replace(base, policy=policy, seed=seed)) for seed in seeds for policy in policies]
    found = list(outcomes(specs, listener))
    rows = [_memory_row(outcome) for outcome in found]
    bound_mb = base.memory_bound * heap_mb(base.settings.heap)
    return Experiment(MEMORY, seeds[0], rows, list(_memory_claims(found, bound_mb)), assumptions=_MEMORY_ASSUMPTIONS)


_MEMORY_ASSUMPTIONS = [
    "state is Spark's default in-memory store, told to keep one version of each partition (by default it keeps two)",
    "what lives is the heap after the parallel collector's full collections; OutOfMemoryError exceeds every bound",
]


def heap_mb(text: str) -> float:
    """Spark's notation: 768m, 2g."""
    return float(text[:-1]) * (1024 if text[-1].lower() == "g" else 1)


def _memory_row(outcome: Outcome) -> dict[str, Any]:
    run = outcome.run
    if run is None:
        return {"policy": outcome.label, "seed": outcome.spec.seed, "ended": cause_of_end(outcome.error)}
    return {
        "policy": outcome.label,
        "seed": run.seed,
        "live_mean_mb": run.heap_mb.live_mean,
        "live_max_mb": run.heap_mb.live_max,
        "paused_pct": run.heap_mb.paused_pct,
        "latency_mean_s": run.latency_s.mean,
        "latency_p99_s": run.latency_s.p99,
        "windows": f"{run.windows.emitted}/{run.windows.expected}",
        "wrong": run.windows.wrong,
        "cpu_cores": run.cpu_cores,
    }


def _memory_claims(found: Sequence[Outcome], bound_mb: float) -> Iterator[Claim]:
    for outcome in (o for o in found if o.label == "klink"):
        what = f"klink (seed {outcome.spec.seed})"
        if outcome.run is None:
            yield Claim(f"{what}: runs to the end", "yes", 0.0, holds=False)
            continue
        live = outcome.run.heap_mb.live_max or 0.0
        yield claim(f"{what}: what lives in the heap, MB, at most", live, "≤", bound_mb)
        missing = outcome.run.windows.expected - outcome.run.windows.emitted
        yield claim(f"{what}: windows that did not come out", missing, "≤", 0)
    for outcome in (o for o in found if o.label == "spark-fair"):
        what = f"spark-fair (seed {outcome.spec.seed}): what lives in the heap, MB, at most (infinite if it died)"
        live = outcome.run.heap_mb.live_max or 0.0 if outcome.run is not None else float("inf")
        yield claim(what, live, "≥", bound_mb)
    means = {name: _mean_heap(found, name) for name in ("klink", "klink-no-mm", "spark-fair")}
    if None not in (means["klink"], means["klink-no-mm"]):
        difference = (means["klink-no-mm"] or 0.0) - (means["klink"] or 0.0)
        yield claim("what lives under klink-no-mm over klink, at most, MB", difference, "≥", 0.0)


def _mean_heap(found: Sequence[Outcome], label: str) -> float | None:
    values = [o.run.heap_mb.live_max for o in found if o.label == label and o.run is not None]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


# ---- beside ----------------------------------------------------------------------------------------------------------


def beside(base: RunSpec, staleness: float, seeds: Sequence[int], listener: Listener) -> Experiment:
    """Queries with one beside that takes late rows: first without, then with executions of its late windows."""
    beside = base.beside or Beside()
    found = []
    for seed in seeds:
        specs = [
            (_WAITING, replace(base, seed=seed, beside=replace(beside, staleness=None))),
            (_CORRECTED, replace(base, seed=seed, beside=replace(beside, staleness=staleness))),
        ]
        found += list(outcomes(specs, listener))
    rows = [_beside_row(outcome) for outcome in found]
    return Experiment(BESIDE, seeds[0], rows, list(_beside_claims(found)), assumptions=_BESIDE_ASSUMPTIONS)


_BESIDE_ASSUMPTIONS = [
    "the query beside writes and executes its windows on time in both runs; they differ in its late executions",
    "latency is that of the other queries' windows",
]


def _beside_row(outcome: Outcome) -> dict[str, Any]:
    run = outcome.run
    if run is None:
        return {"run": outcome.label, "seed": outcome.spec.seed, "failed": cause_of_end(outcome.error)}
    late = run.beside or {}
    return {
        "run": outcome.label,
        "seed": run.seed,
        "latency_mean_s": run.latency_s.mean,
        "latency_p99_s": run.latency_s.p99,
        "windows": f"{run.windows.emitted}/{run.windows.expected}",
        "wrong": run.windows.wrong,
        "cpu_cores": run.cpu_cores,
        **{name: late.get(name) for name in ("on_time_results", "late_results", "final_results", "stalest")},
    }


def _beside_claims(found: Sequence[Outcome]) -> Iterator[Claim]:
    p99 = {
        label: distribution([v for o in found if o.label == label and o.run is not None for v in o.run.latencies_s]).p99
        for label in (_WAITING, _CORRECTED)
    }
    waiting, corrected = p99[_WAITING], p99[_CORRECTED]
    if waiting and corrected:
        what = "the others' p99 while late windows are executed again, times that while they wait"
        yield claim(what, corrected / waiting, "≤", _MOST_TIMES_WAITING)
    wrong = sum(outcome.run.windows.wrong for outcome in found if outcome.run is not None)
    yield claim("windows with a wrong result", wrong, "≤", 0)
