"""`slackwater replay TRACE` and `slackwater advise TRACE`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path  # noqa: TC003  # cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from slackwater.errors import ConfigurationError, unknown_name
from slackwater.recording.reading import read_trace
from slackwater.replay.advice import advise as advise_on
from slackwater.replay.advice import predicted
from slackwater.replay.fidelity import MOST_REPLAYED_S, Ready, last_seconds, ready
from slackwater.replay.scenario import Scenario, recorded_name, scenario_of
from slackwater.replay.words import in_words

if TYPE_CHECKING:
    from slackwater.replay.run import Outcome

_KNOBS = ("cost", "balanced", "latency")


def replay(
    trace: Path,
    *,
    policies: str = "klink",
    lanes: str | None = None,
    knob: str | None = None,
    cores: int | None = None,
    triggers: str = "kept",
    seed: int = 0,
    from_s: Annotated[float | None, Parameter(name="--from")] = None,
    to_s: Annotated[float | None, Parameter(name="--to")] = None,
    last: float = MOST_REPLAYED_S,
    salvage: Annotated[bool, Parameter(negative=())] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Run a recorded span again in virtual time, under other policies and settings.

    Parameters
    ----------
    trace
        A trace that `attach(record=FILE)` wrote.
    policies
        Names, with commas: any that `slackwater policies` lists, with a knob as in klink:cost; spark-fair, spark-fifo,
        spark-every-5s, spark-staggered-5s; as-recorded.
    lanes
        How many turns run at once: a number, or auto; as recorded when not given.
    knob
        For all policies that name none: cost, balanced or latency.
    cores
        How many cores there are; as recorded when not given.
    triggers
        The queries' own triggers under Slackwater's policies: kept, none, or seconds.
    seed
        Fixes what is drawn: the same trace and seed give the same figures.
    from_s
        Measure from so many seconds after the trace's start; without it, its first fifth is left out.
    to_s
        Measure until so many seconds after the trace's start.
    last
        Replay at most so many seconds at the trace's end.
    salvage
        Read a damaged trace up to the damage.
    as_json
        Print figures as JSON.
    """
    found = last_seconds(read_trace(trace, salvage=salvage), last)
    names = [name.strip() for name in policies.split(",") if name.strip()]
    if not names:
        raise ConfigurationError("no policy was named; give some, as in --policies klink,spark-fair.")
    if cores is not None and cores < 1:
        raise ConfigurationError(f"--cores {cores}: at least one is needed.")
    changes = {"lanes": _lanes(lanes), "cores": cores}
    scenarios = [_scenario(found_of, knob, triggers, changes) for found_of in (scenario_of(n, found) for n in names)]
    checked = ready(found, from_s=from_s, to_s=to_s, seed=seed)
    outcomes = [checked.replay(scenario, seed) for scenario in scenarios]
    if as_json:
        print(json.dumps(figures(checked, outcomes, trace, seed), indent=1))
        return
    _print(checked, outcomes)


def advise(
    trace: Path,
    *,
    seeds: int = 3,
    from_s: Annotated[float | None, Parameter(name="--from")] = None,
    to_s: Annotated[float | None, Parameter(name="--to")] = None,
    last: float = MOST_REPLAYED_S,
    salvage: Annotated[bool, Parameter(negative=())] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Say in words and figures what each change would bring, by replaying a trace with it.

    Parameters
    ----------
    trace
        A trace that `attach(record=FILE)` wrote.
    seeds
        How often each policy is replayed: their spread goes into the intervals.
    from_s
        Measure from so many seconds after the trace's start; without it, its first fifth is left out.
    to_s
        Measure until so many seconds after the trace's start.
    last
        Replay at most so many seconds at the trace's end.
    salvage
        Read a damaged trace up to the damage.
    as_json
        Print advice as JSON.
    """
    if seeds < 1:
        raise ConfigurationError(f"--seeds {seeds}: at least one is needed.")
    found = last_seconds(read_trace(trace, salvage=salvage), last)
    advice = advise_on(
        ready(found, from_s=from_s, to_s=to_s),
        seeds=seeds,
        told=lambda what: print(f"replaying: {what}", file=sys.stderr),
    )
    if as_json:
        print(json.dumps({"trace": trace.name, **asdict(advice)}, indent=1))
        return
    for line in in_words(advice):
        print(line)


def _lanes(word: str | None) -> int | str | None:
    if word is None or word == "auto":
        return word
    if not word.isdecimal() or int(word) < 1:
        raise ConfigurationError(f"--lanes {word!r}: a number from 1 up, or auto, is needed.")
    return int(word)


def _scenario(found: Scenario, knob: str | None, triggers: str, changes: dict[str, Any]) -> Scenario:
    told = {name: value for name, value in changes.items() if value is not None}
    if knob is not None:
        if knob not in _KNOBS:
            raise unknown_name("knob", knob, _KNOBS)
        if found.policy and ":" not in found.name:
            told |= {"knob": knob, "name": f"{found.name}:{knob}"}
    if found.policy and triggers != "kept":
        told["interval_s"] = 0.0 if triggers == "none" else _seconds(triggers)
    return found.but(**told)


def _seconds(word: str) -> float:
    try:
        found = float(word)
    except ValueError:
        found = -1.0
    if not 0 < found < 86_400:
        raise ConfigurationError(f"--triggers {word!r}: kept, none, or a number of seconds is needed.")
    return found


def figures(checked: Ready, outcomes: list[Outcome], trace: Path, seed: int) -> dict[str, Any]:
    """What `slackwater replay --json` prints: nothing in it depends on when or where it ran."""
    return {
        "trace": trace.name,
        "seed": seed,
        "recorded": recorded_name(checked.trace),
        "cores": checked.costs.cores,
        "measured_s": round(checked.span.seconds, 3),
        "fidelity": {
            "mean_error_pct": round(100 * checked.error_mean, 2),
            "p99_error_pct": round(100 * checked.error_p99, 2),
            "batch_length_error_pct": round(100 * checked.costs.error, 2),
        },
        "outcomes": [_figures(outcome, checked) for outcome in (checked.recorded, checked.again, *outcomes)],
    }


def _figures(outcome: Outcome, checked: Ready) -> dict[str, Any]:
    is_record = outcome is checked.recorded
    mean = predicted([outcome.mean_s], 0.0 if is_record else checked.error_mean)
    p99 = predicted([outcome.percentile_s(99)], 0.0 if is_record else checked.error_p99)
    out: dict[str, Any] = {
        "policy": outcome.scenario,
        "latency_s": _latency(outcome),
        "windows": {"due": outcome.due, "left": outcome.left},
        "cpu_cores": _round(outcome.cpu_cores),
        "state_mb": _round(outcome.state_bytes_max / 1e6),
        "late_rows": _round(outcome.late_rows),
        "queries": [
            {
                "name": query.name,
                "class": query.priority_class,
                "latency_s": _latency(query),
                "windows": {"due": query.latency.due, "left": query.latency.left},
                "batches": query.latency.batches,
                "cpu_s": _round(query.cpu_s),
                "state_mb": _round(query.state_bytes_max / 1e6),
                "late_rows": _round(query.late_rows),
            }
            for query in outcome.queries
        ],
    }
    if not is_record and mean is not None and p99 is not None:
        out["between_s"] = {"mean": [_round(mean.low), _round(mean.high)], "p99": [_round(p99.low), _round(p99.high)]}
    return out


def _latency(found: Any) -> dict[str, float | None]:
    return {
        "mean": _round(found.mean_s),
        "p50": _round(found.percentile_s(50)),
        "p99": _round(found.percentile_s(99)),
    }


def _round(value: float | None) -> float | None:
    return None if value is None else round(float(value), 4)


def _print(checked: Ready, outcomes: list[Outcome]) -> None:
    print(
        f"{recorded_name(checked.trace)}: {len(checked.trace.queries)} queries, {checked.span.seconds:.0f} s measured. "
        f"Replaying the same policy is off by {100 * checked.error_mean:.0f} % in the mean and "
        f"{100 * checked.error_p99:.0f} % in the 99th percentile; intervals are widened by as much."
    )
    console = Console()
    table = Table(
        "policy", "mean", "between", "median", "p99", "between", "windows", "cores busy", "state", "late rows"
    )
    for outcome in (checked.recorded, checked.again, *outcomes):
        row = _figures(outcome, checked)
        between = row.get("between_s", {})
        table.add_row(
            outcome.scenario,
            _seconds_of(row["latency_s"]["mean"]),
            _between(between.get("mean")),
            _seconds_of(row["latency_s"]["p50"]),
            _seconds_of(row["latency_s"]["p99"]),
            _between(between.get("p99")),
            f"{outcome.left} of {outcome.due}",
            "" if outcome.cpu_cores is None else f"{outcome.cpu_cores:.2f}",
            f"{outcome.state_bytes_max / 1e6:.1f} MB",
            f"{outcome.late_rows:.0f}",
        )
    console.print(table)
    queries = Table("query", *(f"{outcome.scenario}: mean, p99" for outcome in (checked.recorded, *outcomes)))
    found = {outcome.scenario: {query.name: query for query in outcome.queries} for outcome in outcomes}
    for query in checked.recorded.queries:
        cells = [_pair(query)]
        cells += [_pair(known) if (known := found[one.scenario].get(query.name)) else "" for one in outcomes]
        queries.add_row(query.name, *cells)
    console.print(queries)


def _pair(query: Any) -> str:
    return f"{_seconds_of(query.mean_s)}, {_seconds_of(query.percentile_s(99))}"


def _seconds_of(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"


def _between(pair: list[float | None] | None) -> str:
    return "" if not pair else f"{pair[0]:.2f} to {pair[1]:.2f}"
