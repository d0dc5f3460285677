"""What the others pay for a query that dies again and again, and how soon it is told and back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slackwater.bench.experiments import Outcome, outcomes
from slackwater.bench.measure import cause_of_end, distribution
from slackwater.bench.model import Doomed
from slackwater.sim.experiment import Claim, Experiment, claim

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from slackwater.bench.harness import Listener
    from slackwater.bench.model import RunSpec

SUPERVISION = "bench-supervision"
CALM, KILLED = "nobody is killed", "one is killed again and again"
_MOST_TIMES_CALM = 1.1
_ALARM_WITHIN_S = 5.0

_ASSUMPTIONS = [
    "all queries are alike; the one that is killed is not among those whose latency is measured, in either run",
    "it is killed by an error in its foreachBatch, after its results were written; the batch is then run again",
    "the alarm's time is when Handle.alarms() first tells of it; the next kill waits until the alarm is over",
    "in both runs the application is supervised and its alarms are looked after",
]


def supervision(base: RunSpec, every_s: float, seeds: Sequence[int], listener: Listener) -> Experiment:
    """`base.queries` measured queries and one more, first left alone, then killed every so many seconds."""
    specs = []
    for seed in seeds:
        specs.append((CALM, replace(base, seed=seed, doomed=Doomed())))
        specs.append((KILLED, replace(base, seed=seed, doomed=Doomed(every_s))))
    found = list(outcomes(specs, listener))
    rows = [_row(outcome) for outcome in found]
    return Experiment(SUPERVISION, seeds[0], rows, list(_claims(found)), assumptions=_ASSUMPTIONS)


def _row(outcome: Outcome) -> dict[str, Any]:
    run = outcome.run
    if run is None:
        return {"run": outcome.label, "seed": outcome.spec.seed, "failed": cause_of_end(outcome.error)}
    doomed = run.doomed or {}
    return {
        "run": outcome.label,
        "seed": run.seed,
        "latency_mean_s": run.latency_s.mean,
        "latency_p99_s": run.latency_s.p99,
        "latency_max_s": run.latency_s.max,
        "windows": f"{run.windows.emitted}/{run.windows.expected}",
        "wrong": run.windows.wrong,
        "cpu_cores": run.cpu_cores,
        "deaths": doomed.get("deaths", 0),
        "alarm_s_max": _greatest(doomed.get("alarm_s", [])),
        "started_again_s": doomed.get("started_again_s", []),
        "batch_again_s_max": _greatest(doomed.get("batch_again_s", [])),
        "doomed_windows": doomed.get("windows", 0),
        "doomed_wrong": doomed.get("windows_wrong", 0),
        "doomed_missing": doomed.get("windows_missing", 0),
    }


def _greatest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _claims(found: Sequence[Outcome]) -> Iterator[Claim]:
    runs = {
        label: [outcome.run for outcome in found if outcome.label == label and outcome.run is not None]
        for label in (CALM, KILLED)
    }
    latencies = {label: distribution([v for run in of for v in run.latencies_s]) for label, of in runs.items()}
    for name in ("mean", "p99"):
        calm, killed = (getattr(latencies[label], name) for label in (CALM, KILLED))
        if calm and killed:
            what = f"the others' {name} latency while one is killed again and again, times that while nobody is"
            yield claim(what, killed / calm, "≤", _MOST_TIMES_CALM)
    doomed = [run.doomed or {} for run in runs[KILLED]]
    deaths = sum(one["deaths"] for one in doomed)
    yield claim("deaths", deaths, "≥", 1)
    alarms_s = [value for one in doomed for value in one["alarm_s"]]
    yield claim("deaths without an alarm", alarms_s.count(None), "≤", 0)
    yield claim("seconds from a death to its alarm, at most", _greatest(alarms_s) or 0.0, "≤", _ALARM_WITHIN_S)
    back = [value for one in doomed for value in one["started_again_s"]]
    yield claim("deaths after which it did not come back", back.count(None), "≤", 0)
    wrong = sum(one["windows_wrong"] + one["windows_missing"] for one in doomed)
    yield claim("windows of the killed query that are wrong, doubled or missing", wrong, "≤", 0)
    every = [outcome.run for outcome in found if outcome.run is not None]
    lost = sum(run.windows.wrong + run.windows.expected - run.windows.emitted for run in every)
    yield claim("windows of the others that are wrong or missing", lost, "≤", 0)
