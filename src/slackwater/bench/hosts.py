"""`slackwater bench hosts`: does the middleware keep an urgent application's results in time on a host that is full?

HIGH, YSB queries attached with klink, shares the cores with LOW, which takes all it can get, and in some runs with a
third application that blocks now and then. HIGH is measured as in every other benchmark, in a process of its own; the
others only tell how much they have done.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from slackwater.bench.harness import run_in_subprocess
from slackwater.bench.hosts_child import ChildSpec
from slackwater.bench.model import Failure
from slackwater.bench.neighbours import Neighbour, RunningMiddleware
from slackwater.errors import SlackwaterError
from slackwater.sim.experiment import Claim, Experiment, claim

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from slackwater.bench.harness import Listener
    from slackwater.bench.model import RunResult, RunSpec

HOSTS = "bench-hosts"
HIGH_NAME, LOW_NAME, BLOCKING_NAME = "slackwater-bench", "low", "blocking"
Means = Literal["none", "random", "nice", "cgroup"]

_MOST_OF_OS = 0.6
_MOST_TIMES_ALONE = 1.3
_LEAST_OF_LOW = 0.2
_NO_GAIN = 0.8


@dataclass(frozen=True)
class Setting:
    """One run: what shares the host with HIGH, and how it is kept in order."""

    label: str
    means: Means = "none"
    low: bool = True
    blocking: bool = False


ALONE = Setting("HIGH alone", low=False)
OS = Setting("OS")
OS_BLOCKING = Setting("OS, third blocks", blocking=True)
SETTINGS: dict[str, Setting] = {
    "alone": ALONE,
    "os": OS,
    "random": Setting("random, nice", "random"),
    "nice": Setting("multi-class, nice", "nice"),
    "cgroup": Setting("multi-class, cgroup", "cgroup"),
    "os-blocking": OS_BLOCKING,
    "nice-blocking": Setting("multi-class, nice, third blocks", "nice", blocking=True),
    "cgroup-blocking": Setting("multi-class, cgroup, third blocks", "cgroup", blocking=True),
}


@dataclass(frozen=True)
class Outcome:
    setting: Setting
    seed: int
    run: RunResult | None = None
    error: str = ""
    low_rows_per_s: float = 0.0
    blocking_rows_per_s: float = 0.0
    middleware_cpu_pct: float | None = None


def hosts(
    base: RunSpec, low: ChildSpec, settings: Sequence[str], seeds: Sequence[int], listener: Listener
) -> Experiment:
    listener.planned(len(settings) * len(seeds))
    found = [
        _run(replace(base, seed=seed, serve=True), low, SETTINGS[name], listener) for seed in seeds for name in settings
    ]
    return Experiment(HOSTS, seeds[0], [_row(one) for one in found], list(_claims(found)), assumptions=_ASSUMPTIONS)


_ASSUMPTIONS = [
    "HIGH is attached with klink and read through its endpoint; LOW and the third are plain Spark, read through REST",
    "LOW hashes as many rows as it can; the third does so too, and one row in a thousand sleeps up to 200 ms",
    "propagation is from when a window's last input could be read to when its result was out",
]


class _Spans(list[float]):
    """When the measured span began and ended, by the states that the run tells."""

    def state(self, state: dict[str, Any]) -> None:
        begins = state.get("state") == "measuring" and not self
        ends = state.get("state") in ("draining", "stopping") and len(self) == 1
        if begins or ends:
            self.append(time.time())


def _run(spec: RunSpec, low: ChildSpec, setting: Setting, listener: Listener) -> Outcome:
    with ExitStack() as running, tempfile.TemporaryDirectory(prefix="slackwater-hosts-") as folder:
        try:
            neighbours = {}
            if setting.low:
                neighbours[LOW_NAME] = running.enter_context(Neighbour(low))
            if setting.blocking:
                third = ChildSpec(BLOCKING_NAME, "blocking", low.queries, low.rows_per_batch, low.cores, low.heap)
                neighbours[BLOCKING_NAME] = running.enter_context(Neighbour(third))
            for neighbour in neighbours.values():
                neighbour.await_work()
            middleware = None
            runtime = Path(folder) / "run"
            if setting.means != "none":
                config = Path(folder) / "middleware.toml"
                config.write_text(_config(setting.means, runtime, [one.url for one in neighbours.values()], folder))
                middleware = running.enter_context(RunningMiddleware(config))
            spans = _Spans()

            def state(said: dict[str, Any]) -> None:
                spans.state(said)
                listener.state(spec, {**said, "setting": setting.label})

            os.environ["SLACKWATER_RUNTIME_DIR"] = str(runtime)
            run = run_in_subprocess(spec, state).run
            if middleware is not None:
                middleware.check()
            pace = {name: one.rows_per_s(*spans) if len(spans) == 2 else 0.0 for name, one in neighbours.items()}
            listener.finished(run)
            return Outcome(
                setting,
                spec.seed,
                run,
                low_rows_per_s=round(pace.get(LOW_NAME, 0.0), 1),
                blocking_rows_per_s=round(pace.get(BLOCKING_NAME, 0.0), 1),
                middleware_cpu_pct=None if middleware is None else round(100 * middleware.cpu_share(), 3),
            )
        except SlackwaterError as error:
            listener.failed(Failure(setting.label, spec.seed, str(error)))
            return Outcome(setting, spec.seed, error=str(error))
        finally:
            os.environ.pop("SLACKWATER_RUNTIME_DIR", None)


def _config(means: Means, runtime: Path, urls: Sequence[str], folder: str) -> str:
    policy = "random" if means == "random" else "multi-class"
    mechanism = "cgroup" if means == "cgroup" else "nice"
    return f"""
period_s = 1.0
journal = "{folder}/journal"
cgroup_parent = "slackwater-bench"

[[driver]]
kind = "slackwater"
folder = "{runtime}"

[[driver]]
kind = "spark-rest"
urls = {list(urls)}

[[class]]
application = "{HIGH_NAME}"
priority_class = -1

[[policy]]
policy = "{policy}"
mechanism = "{mechanism}"
"""


def _row(outcome: Outcome) -> dict[str, Any]:
    row: dict[str, Any] = {"setting": outcome.setting.label, "seed": outcome.seed}
    if outcome.run is None:
        return {**row, "failed": outcome.error}
    run = outcome.run
    return {
        **row,
        "propagation mean s": run.propagation_s.mean,
        "propagation p99 s": run.propagation_s.p99,
        "latency mean s": run.latency_s.mean,
        "batch mean s": run.batch_s.mean,
        "windows": run.windows.emitted,
        "windows wrong": run.windows.wrong,
        "windows missing": run.windows.expected - run.windows.emitted,
        "LOW rows/s": outcome.low_rows_per_s,
        "third rows/s": outcome.blocking_rows_per_s,
        "middleware CPU %": outcome.middleware_cpu_pct,
    }


class _Means:
    """Means over seeds, by a setting's label."""

    def __init__(self, found: Sequence[Outcome]) -> None:
        self._found = [outcome for outcome in found if outcome.run is not None]

    def propagation(self, label: str, which: str) -> float | None:
        return _mean(
            getattr(one.run.propagation_s, which)
            for one in self._found
            if one.setting.label == label and one.run is not None
        )

    def low(self, label: str) -> float | None:
        return _mean(one.low_rows_per_s for one in self._found if one.setting.label == label)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _claims(found: Sequence[Outcome]) -> Iterator[Claim]:
    means = _Means(found)
    for setting in SETTINGS.values():
        label, plain = setting.label, OS_BLOCKING.label if setting.blocking else OS.label
        if setting.means == "none" or means.propagation(label, "mean") is None:
            continue
        for which in ("mean", "p99"):
            yield from _propagation_claims(means, setting, plain, which)
        here, there = means.low(label), means.low(plain)
        if setting.means != "random" and here is not None and there:
            yield claim(f"{label}: LOW's pace over its pace under the OS", here / there, "≥", _LEAST_OF_LOW)


def _propagation_claims(means: _Means, setting: Setting, plain: str, which: str) -> Iterator[Claim]:
    here = means.propagation(setting.label, which)
    os_alone, alone = means.propagation(plain, which), means.propagation(ALONE.label, which)
    if here is None:
        return
    if os_alone and setting.means == "random":
        yield claim(f"{setting.label}: {which} propagation of HIGH over the OS's", here / os_alone, "≥", _NO_GAIN)
    elif os_alone:
        yield claim(f"{setting.label}: {which} propagation of HIGH over the OS's", here / os_alone, "≤", _MOST_OF_OS)
    if alone and setting.means != "random":
        yield claim(f"{setting.label}: {which} over HIGH alone", here / alone, "≤", _MOST_TIMES_ALONE)
