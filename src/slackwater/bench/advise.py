"""`slackwater bench advise`: are predictions from a trace of plain Spark true?

Plain Spark runs, watched and recorded; the trace is replayed under another policy, and advice is taken; then that
policy runs live. A load so light that nothing is to be gained is recorded as well: there advice must be to leave things
alone.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slackwater.bench.harness import Listener, run_in_subprocess
from slackwater.bench.model import Failure, RunResult, RunSpec
from slackwater.errors import SlackwaterError
from slackwater.recording.reading import read_trace
from slackwater.replay.advice import WORTH_SHARE, Advice, advise, predicted
from slackwater.replay.fidelity import Ready, ready
from slackwater.replay.scenario import scenario_of
from slackwater.sim.experiment import Claim, Experiment, claim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from slackwater.recording.reading import Trace

ADVISE = "bench-advise"
RECORDING = "bench-recording"
LARGEST_ERROR = 0.2
MOST_CPU_SHARE = 0.01
MOST_MB_AN_HOUR = 50.0
_SEEDS = 3
_CLEARLY = 2


@dataclass(frozen=True)
class Case:
    """A load: its name, how it runs recorded, and whether it is too light for a switch to bring anything."""

    name: str
    run: RunSpec  # its policy is the one that is recorded
    light: bool = False


@dataclass(frozen=True)
class Found:
    case: Case
    seed: int
    recorded: RunResult | None = None
    live: RunResult | None = None
    ready: Ready | None = None
    advice: Advice | None = None
    mean_s: tuple[float, float, float] | None = None  # predicted, and between which
    p99_s: tuple[float, float, float] | None = None
    error: str = ""


def advise_bench(
    cases: Sequence[Case],
    policy: str,
    seeds: Sequence[int],
    listener: Listener,
    told: Callable[[str], None],
    keep: Path | None = None,
    so_far: Callable[[Experiment], None] = lambda _: None,
) -> Experiment:
    """Record, predict, measure, for each case and seed.

    `keep`: a folder that the traces stay in. `so_far` gets what is known after each case: one takes ten minutes.
    """
    listener.planned(sum(1 if case.light else 2 for case in cases) * len(seeds))
    found: list[Found] = []
    with tempfile.TemporaryDirectory(prefix="slackwater-advise-") as scratch:
        folder = keep or Path(scratch)
        for seed, case in itertools.product(seeds, cases):
            found.append(_tried(case, policy, seed, folder, listener, told))
            rows = [_row(one, policy) for one in found]
            known = Experiment(ADVISE, seeds[0], rows, list(_claims(found, policy)), assumptions=_ASSUMPTIONS)
            so_far(known)
    return known


_ASSUMPTIONS = [
    "the recorded run is plain Spark, watched by attach(policy='observe', record=…); the predicted one runs live after",
    "predicted from the span that the recorded run was measured in; live figures are the benchmark's own",
    "errors are shares of the live figure; a prediction is the mean over three seeds of the replay",
]


def _tried(case: Case, policy: str, seed: int, folder: Path, listener: Listener, told: Callable[[str], None]) -> Found:
    found = Found(case, seed)
    try:
        path = folder / f"{case.name}-{seed}.trace"
        spec = replace(case.run, seed=seed, record=str(path))
        recorded = _measured(spec, listener)
        found = replace(found, recorded=recorded)
        trace = read_trace(path)
        from_s, to_s = measured_span(trace, recorded)
        told(f"{case.name}: replaying {trace.seconds:.0f} s of {len(trace.queries)} queries")
        checked = ready(trace, from_s=from_s, to_s=to_s)
        found = replace(found, ready=checked, advice=advise(checked, seeds=_SEEDS, told=told))
        scenario = scenario_of(policy, trace).but(interval_s=0.0)
        outcomes = [checked.replay(scenario, number) for number in range(_SEEDS)]
        found = replace(
            found,
            mean_s=_figures([one.mean_s for one in outcomes], checked.error_mean),
            p99_s=_figures([one.percentile_s(99) for one in outcomes], checked.error_p99),
        )
        if not case.light:
            found = replace(found, live=_measured(replace(case.run, policy=policy, seed=seed), listener))
    except SlackwaterError as error:
        listener.failed(Failure(case.run.policy, seed, str(error)))
        return replace(found, error=str(error))
    return found


def _measured(spec: RunSpec, listener: Listener) -> RunResult:
    run = run_in_subprocess(spec, lambda state: listener.state(spec, state)).run
    listener.finished(run)
    return run


def measured_span(trace: Trace, run: RunResult) -> tuple[float, float]:
    """The span that the benchmark measured, in seconds of the trace: its drain ended with the queries' last batches."""
    last = max((batch.ended_wall_ts for query in trace.queries for batch in query.batches), default=trace.to_wall_ts)
    to_s = last - run.drain_s - trace.from_wall_ts
    return max(0.0, to_s - run.seconds), to_s


def _figures(values: list[float | None], error: float) -> tuple[float, float, float] | None:
    found = predicted(values, error)
    return None if found is None else (found.value, found.low, found.high)


def _row(found: Found, policy: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "load": found.case.name,
        "seed": found.seed,
        "queries": found.case.run.queries,
        "recorded": found.case.run.policy,
        "predicted": policy,
    }
    if found.error:
        row["failed"] = found.error
    if found.recorded is not None:
        row |= {"recorded mean s": found.recorded.latency_s.mean, "recorded p99 s": found.recorded.latency_s.p99}
        row["recorded steady"] = found.recorded.steady
    if found.ready is not None:
        row |= {
            "trace mean s": _round(found.ready.recorded.mean_s),
            "check mean %": _round(100 * found.ready.error_mean),
            "check p99 %": _round(100 * found.ready.error_p99),
        }
    for name, told in (("mean", found.mean_s), ("p99", found.p99_s)):
        if told is not None:
            row[f"predicted {name} s"] = _round(told[0])
            row[f"between, {name} s"] = f"{told[1]:.2f}–{told[2]:.2f}"
    if found.live is not None:
        row |= {"live mean s": found.live.latency_s.mean, "live p99 s": found.live.latency_s.p99}
        row |= {"error mean %": _percent(error_of(found, "mean")), "error p99 %": _percent(error_of(found, "p99"))}
    if found.advice is not None:
        row["advice"] = "leave alone" if found.advice.switch is None else found.advice.switch.change
    return row


def _claims(found: Sequence[Found], policy: str) -> Iterator[Claim]:
    for one in found:
        name = f"{one.case.name}, seed {one.seed}"
        if one.case.light:
            leaves = float(one.advice is not None and one.advice.switch is None)
            yield claim(f"{name}: advice is to leave a light load alone", leaves, "≥", 1)
            continue
        for figure in ("mean", "p99"):
            yield claim(
                f"{name}: error of the predicted {figure} of {policy}", abs(error_of(one, figure)), "≤", LARGEST_ERROR
            )
        switches = float(one.advice is not None and one.advice.switch is not None)
        if (fell := _fell(one)) >= _CLEARLY * WORTH_SHARE:
            yield claim(f"{name}: advice is to switch, which brought {fell:.0%} of the mean", switches, "≥", 1)
        elif fell <= 0:
            yield claim(f"{name}: advice is to switch, which brought nothing", switches, "≤", 0)
        yield claim(f"{name}: error of the predicted gain in the mean", abs(gain_error_of(one)), "≤", LARGEST_ERROR)


def error_of(found: Found, figure: str) -> float:
    """By how much the prediction is off, as a share of the live figure; infinite where one of them is missing."""
    told = found.mean_s if figure == "mean" else found.p99_s
    live = None if found.live is None else getattr(found.live.latency_s, figure)
    return math.inf if told is None or not live else told[0] / live - 1


def _fell(found: Found) -> float:
    """By what share the mean fell when the policy was switched; where that is little, either advice is right."""
    if found.recorded is None or found.live is None:
        return math.inf
    before, after = found.recorded.latency_s.mean, found.live.latency_s.mean
    return math.inf if not before or after is None else 1 - after / before


def gain_error_of(found: Found) -> float:
    """The same for how many seconds the mean falls."""
    if found.recorded is None or found.live is None or found.mean_s is None:
        return math.inf
    before, after = found.recorded.latency_s.mean, found.live.latency_s.mean
    if before is None or after is None or before == after:
        return math.inf
    return (before - found.mean_s[0]) / (before - after) - 1


def recording_bench(base: RunSpec, seeds: Sequence[int], listener: Listener) -> Experiment:
    """What recording takes: CPU time of its thread and of handing over, and bytes."""
    listener.planned(len(seeds))
    rows = []
    with tempfile.TemporaryDirectory(prefix="slackwater-recording-") as scratch:
        for seed in seeds:
            spec = replace(base, seed=seed, record=str(Path(scratch) / f"{seed}.trace"))
            try:
                run = _measured(spec, listener)
            except SlackwaterError as error:
                listener.failed(Failure(spec.policy, seed, str(error)))
                rows.append({"policy": spec.policy, "queries": spec.queries, "seed": seed, "failed": str(error)})
                continue
            rows.append(_recording_row(spec, run))
    claims = [one for row in rows for one in _recording_claims(row)]
    return Experiment(RECORDING, seeds[0], rows, claims, assumptions=_RECORDING_ASSUMPTIONS)


_RECORDING_ASSUMPTIONS = [
    "CPU: of the recorder's own thread and of handing over to it, against one core and against the application's",
    "from attach to the end of the run, start-up included; bytes are those of the file",
]


def _recording_row(spec: RunSpec, run: RunResult) -> dict[str, Any]:
    told = run.recording or {}
    seconds = max(1e-9, float(told.get("seconds", 0.0)))
    used_s = float(told.get("cpu_s", math.inf)) + float(told.get("handing_s", math.inf))
    return {
        "policy": spec.policy,
        "queries": spec.queries,
        "seed": spec.seed,
        "seconds": round(seconds, 1),
        "records": told.get("records"),
        "lost": told.get("lost"),
        "bytes": told.get("bytes"),
        "MB an hour": round(3600 * float(told.get("bytes", math.inf)) / seconds / 1e6, 2),
        "CPU share of a core": round(used_s / seconds, 5),
        "CPU share of the application": round(used_s / seconds / max(1e-9, run.cpu_cores), 5),
    }


def _recording_claims(row: dict[str, Any]) -> Iterator[Claim]:
    name = f"{row['policy']}, {row['queries']} queries, seed {row['seed']}"
    yield claim(f"{name}: recording's share of a core", row.get("CPU share of a core", math.inf), "≤", MOST_CPU_SHARE)
    yield claim(f"{name}: MB an hour", row.get("MB an hour", math.inf), "≤", MOST_MB_AN_HOUR)
    yield claim(f"{name}: records lost", float(row.get("lost", math.inf)), "≤", 0)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _percent(share: float) -> float | None:
    return round(100 * share, 1) if math.isfinite(share) else None
