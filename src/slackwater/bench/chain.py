"""Chained applications with and without forwarding between their schedulers, and on plain Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from slackwater.bench.chain_model import FORWARD, ChainRun, ChainSpec
from slackwater.bench.harness import run_child
from slackwater.bench.measure import cause_of_end, distribution
from slackwater.errors import ConfigurationError, SlackwaterError
from slackwater.sim.experiment import Claim, Experiment, claim
from slackwater.workloads.rate_source import require_exact_event_times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CHAIN = "bench-chain"
MOST_OF_WITHOUT = 0.8
_FIGURES = {"end-to-end latency": "end_to_end_all_s", "latency from the window's end": "latency_all_s"}
_ASSUMPTIONS = [
    "the first application parses, filters and enriches into Parquet files, the second counts them by windows",
    "end to end: from when the row that sweeps a window could be read at the first source to the commit of its result",
    "it is measured by the harness; windows that did not come out count with the time that they were overdue",
    "with and without forwarding the same schedulers run, with the same settings",
]


class ChainListener(Protocol):
    """What the harness tells while it runs."""

    def planned(self, runs: int) -> None: ...

    def state(self, spec: ChainSpec, state: dict[str, Any]) -> None: ...

    def finished(self, run: ChainRun) -> None: ...

    def failed(self, spec: ChainSpec, error: str) -> None: ...


@dataclass(frozen=True)
class ChainOutcome:
    """One run: what it measured, or why it came to nothing."""

    spec: ChainSpec
    run: ChainRun | None
    error: str = ""


def check(spec: ChainSpec, contenders: Sequence[str], seeds: int) -> None:
    """Raise ConfigurationError for what cannot be run, before anything is started."""
    wrong = [
        (spec.pipelines < 1, f"pipelines must be at least 1; got {spec.pipelines}."),
        (spec.window_s < 0.1, f"windows must be at least 0.1 s; got {spec.window_s:g}."),
        (spec.seconds <= 0, f"seconds must be greater than 0; got {spec.seconds:g}."),
        (spec.warmup_s < 0, f"the warm-up must not be negative; got {spec.warmup_s:g} s."),
        (spec.cores < 1, f"cores must be at least 1; got {spec.cores}."),
        (seeds < 1, f"seeds must be at least 1; got {seeds}."),
        (not contenders, "no contender to run; name some, as in --policies klink,klink+forward."),
        (len(set(contenders)) < len(contenders), f"a contender is named twice: {','.join(contenders)}."),
    ]
    for is_wrong, message in wrong:
        if is_wrong:
            raise ConfigurationError(message)
    require_exact_event_times(spec.rate)
    for name in contenders:
        found = spec.but(contender=name)
        if found.chosen.kind != "slackwater" and found.forwards:
            raise ConfigurationError(f"{name!r}: plain Spark has nobody who could forward.")


def chain(spec: ChainSpec, contenders: Sequence[str], seeds: Sequence[int], listener: ChainListener) -> Experiment:
    """Within a seed the contenders take turns, so that what drifts on the machine drifts for all of them."""
    specs = [spec.but(contender=name, seed=seed) for seed in seeds for name in contenders]
    listener.planned(len(specs))
    found = [_outcome(one, listener) for one in specs]
    return Experiment(CHAIN, seeds[0], [_row(outcome) for outcome in found], list(_claims(found)), _ASSUMPTIONS)


def _outcome(spec: ChainSpec, listener: ChainListener) -> ChainOutcome:
    try:
        run = run_in_subprocess(spec, lambda state: listener.state(spec, state))
    except SlackwaterError as error:
        listener.failed(spec, str(error))
        return ChainOutcome(spec, None, str(error))
    listener.finished(run)
    return ChainOutcome(spec, run)


def run_in_subprocess(spec: ChainSpec, on_state: Callable[[dict[str, Any]], None]) -> ChainRun:
    said = run_child(
        "slackwater.bench.chain_worker",
        lambda scratch: msgspec.json.encode(spec.but(scratch=scratch)),
        f"{spec.contender}, seed {spec.seed}",
        spec.timeout_s,
        on_state,
        hint="Ask for fewer pipelines.",
    )
    return msgspec.json.decode(said, type=ChainRun)


def _row(outcome: ChainOutcome) -> dict[str, Any]:
    run = outcome.run
    if run is None:
        return {"contender": outcome.spec.contender, "seed": outcome.spec.seed, "failed": cause_of_end(outcome.error)}
    return {
        "contender": run.contender,
        "seed": run.seed,
        "pipelines": outcome.spec.pipelines,
        "rate": outcome.spec.rate,
        "end_to_end_mean_s": run.end_to_end_s.mean,
        "end_to_end_p99_s": run.end_to_end_s.p99,
        "latency_mean_s": run.latency_s.mean,
        "latency_p99_s": run.latency_s.p99,
        "windows": f"{run.windows.emitted}/{run.windows.expected}",
        "wrong": run.windows.wrong + run.windows.wrong_outside,
        "cpu_cores": run.cpu_cores,
        "enrich_batches": run.enrich.batches,
        "count_batches": run.count.batches,
        "exchanges": run.enrich.exchanges + run.count.exchanges,
        "lost_exchanges": run.enrich.failures + run.count.failures,
        "gates_opened": run.enrich.gates_opened + run.count.gates_opened,
        "warnings": len(run.enrich.warnings) + len(run.count.warnings),
    }


def _claims(found: Sequence[ChainOutcome]) -> Iterator[Claim]:
    for name in dict.fromkeys(outcome.spec.contender for outcome in found):
        if not name.endswith(FORWARD):
            continue
        without = name.removesuffix(FORWARD)
        for what, kind in _FIGURES.items():
            ours, theirs = _values(found, name, kind), _values(found, without, kind)
            for figure in ("mean", "p99"):
                with_s, without_s = getattr(distribution(ours), figure), getattr(distribution(theirs), figure)
                if with_s is not None and without_s:
                    text = f"{figure} {what} of {name}, times that of {without}"
                    yield claim(text, with_s / without_s, "≤", MOST_OF_WITHOUT)
    runs = [outcome.run for outcome in found if outcome.run is not None]
    yield claim("windows with a wrong result", sum(r.windows.wrong + r.windows.wrong_outside for r in runs), "≤", 0)
    yield claim("runs that failed", len(found) - len(runs), "≤", 0)


def _values(found: Sequence[ChainOutcome], name: str, kind: str) -> list[float]:
    """Over all seeds together."""
    runs = [outcome.run for outcome in found if outcome.spec.contender == name and outcome.run is not None]
    return [value for run in runs for value in getattr(run, kind)]
