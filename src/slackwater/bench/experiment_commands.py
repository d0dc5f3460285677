"""`slackwater bench classes`, `bench memory`, `bench beside`, `bench supervision`, `bench hosts` and `bench kills`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path  # noqa: TC003  # cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from slackwater.bench import experiments, hosts
from slackwater.bench.commands import names_in
from slackwater.bench.harness import check
from slackwater.bench.hosts_child import ChildSpec
from slackwater.bench.model import BenchPlan, Beside, RunSettings, RunSpec, contender
from slackwater.bench.showing import Shown, check_writable, run_and_show, terminated_as_interrupted
from slackwater.errors import ConfigurationError, SlackwaterError, unknown_name
from slackwater.extras import require
from slackwater.provenance import commit
from slackwater.sim.show import show
from slackwater.workloads.base import Phases  # noqa: TC001  # cyclopts

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress

    from slackwater.bench.harness import Listener
    from slackwater.bench.kills import Kill, Trial
    from slackwater.bench.kills_oracle import Problem
    from slackwater.sim.experiment import Experiment


def bench_classes(
    *,
    high: int = 3,
    low: int = 21,
    rate: int = 10_000,
    window: float = 10.0,
    seconds: float = 60.0,
    policies: str = "spark-fair,multi-class,klink",
    seeds: int = 1,
    cores: int = 2,
    heap: str = "2g",
    warmup_min: float | None = None,
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """Does a class of urgent queries keep its latency while others saturate the machine?

    Parameters
    ----------
    high
        Queries of the class HIGH; they also run alone, for comparison.
    low
        Queries beside them, enough to want more than the cores have.
    rate
        Events per second of each query.
    window
        Length of the windows in seconds.
    seconds
        Length of the measured span.
    policies
        Names, with commas.
    seeds
        Number of seeds.
    cores
        Cores that Spark gets.
    heap
        Heap of Spark's JVM.
    warmup_min
        Shortest warm-up in seconds.
    json_file
        File for rows and claims.
    """
    if high < 1 or low < 1:
        raise ConfigurationError(f"at least one query of each class is needed; got {high} HIGH and {low} LOW.")
    settings = RunSettings(cores=cores, heap=heap, warmup_min_s=warmup_min)
    base = experiments.ysb_run(high + low, rate, window, seconds, settings)
    names = _checked(base, policies, seeds)
    base = replace(base, high=high)
    _run(lambda listener: experiments.classes(base, low, names, range(seeds), listener), json_file)


def bench_memory(
    *,
    queries: int = 8,
    rate: int = 10_000,
    body: int = 500,
    window: float = 10.0,
    seconds: float = 60.0,
    policies: str = "spark-fair,klink-no-mm,klink",
    bound: float = 0.75,
    heap: str = "768m",
    phases: Phases = "spread",
    seeds: int = 1,
    cores: int = 2,
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """Do windows that keep their rows leave in time where memory is scarce?

    Parameters
    ----------
    queries
        Number of queries.
    rate
        Events per second of each query; a third of them is kept.
    body
        Bytes of an event that is kept.
    window
        Length of the windows in seconds.
    seconds
        Length of the measured span.
    policies
        Names, with commas.
    bound
        Share of the heap from which on klink frees memory first.
    heap
        Heap of Spark's JVM.
    phases
        Where windows end: spread or aligned.
    seeds
        Number of seeds.
    cores
        Cores that Spark gets.
    json_file
        File for rows and claims.
    """
    if body < 1:
        raise ConfigurationError(f"--body takes a number of bytes from 1 up; got {body}.")
    # The parallel collector's full collections tell exactly what lives; and state that was evicted should be gone.
    settings = RunSettings(cores=cores, heap=heap, collector="parallel", state_versions=1)
    base = experiments.ysb_run(queries, rate, window, seconds, settings)
    base = replace(base, payload="kept", body_bytes=body, memory_bound=bound, phases=phases)
    names = _checked(base, policies, seeds)
    _run(lambda listener: experiments.memory(base, names, range(seeds), listener), json_file)


def bench_beside(
    *,
    queries: int = 8,
    rate: int = 10_000,
    window: float = 10.0,
    seconds: float = 60.0,
    policy: str = "klink",
    late_rate: int = 1_000,
    staleness: float = 0.02,
    seeds: int = 1,
    cores: int = 2,
    heap: str = "2g",
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """What do other queries pay for windows that are executed again for late rows?

    Parameters
    ----------
    queries
        Number of measured queries.
    rate
        Events per second of each.
    window
        Length of the windows in seconds.
    seconds
        Length of the measured span.
    policy
        By which all are scheduled.
    late_rate
        Rows per second, of 1000 bytes, of the query with late rows.
    staleness
        Bound on the staleness of its results: the smaller, the more executions.
    seeds
        Number of seeds.
    cores
        Cores that Spark gets.
    heap
        Heap of Spark's JVM.
    json_file
        File for rows and claims.
    """
    base = experiments.ysb_run(queries, rate, window, seconds, RunSettings(cores=cores, heap=heap))
    (name,) = _checked(base, policy, seeds)
    base = replace(base, policy=name, beside=Beside(rate=late_rate, window_s=window))
    require("slackwater bench beside", "pandas", "pyarrow")
    _run(lambda listener: experiments.beside(base, staleness, range(seeds), listener), json_file)


def bench_supervision(
    *,
    queries: int = 8,
    rate: int = 10_000,
    window: float = 10.0,
    seconds: float = 180.0,
    policy: str = "klink",
    every: float = 15.0,
    seeds: int = 1,
    cores: int = 2,
    heap: str = "2g",
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """Does a query that dies again and again come back, is it told of, and do the others keep their latency?

    Parameters
    ----------
    queries
        Number of queries, the one included that is killed.
    rate
        Events per second of each.
    window
        Length of the windows in seconds.
    seconds
        Length of the measured span.
    policy
        By which all are scheduled.
    every
        Seconds from its return to its next death.
    seeds
        Number of seeds.
    cores
        Cores that Spark gets.
    heap
        Heap of Spark's JVM.
    json_file
        File for rows and claims.
    """
    from slackwater.bench.supervision import supervision  # noqa: PLC0415 - it knows the experiments

    if queries < 2 or every <= 0:
        raise ConfigurationError(f"--queries {queries} --every {every:g}: two queries and a positive span are needed.")
    base = experiments.ysb_run(queries - 1, rate, window, seconds, RunSettings(cores=cores, heap=heap))
    (name,) = _checked(base, policy, seeds)
    if contender(name).kind != "slackwater":
        raise ConfigurationError(f"--policy {name}: plain Spark brings no query back; name a policy of Slackwater's.")
    _run(lambda listener: supervision(replace(base, policy=name), every, range(seeds), listener), json_file)


def bench_kills(
    *,
    kills: int = 20,
    seed: int = 1,
    files: int = 32,
    keep: Path | None = None,
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """Does a late query lose nothing, and count nothing twice, when it is killed? Ends with 1 when it does.

    Parameters
    ----------
    kills
        Number of kills, over four kinds of queries; a third of them at random, the others at chosen steps.
    seed
        Seed of the feed and of the random kills.
    files
        Files of the feed, each of which is a batch.
    keep
        A new folder for stores, checkpoints and results, to look at; without it they are removed.
    json_file
        File for kills, trials and claims.
    """
    require("slackwater bench kills", "pandas", "pyarrow")

    from slackwater.bench.kills import run  # noqa: PLC0415 - pyarrow is loaded on use

    if kills < 0 or files < 12:
        raise ConfigurationError(f"--kills {kills} --files {files}: no fewer than 0 kills and 12 files are possible.")
    if keep is not None and keep.exists():
        raise ConfigurationError(f"--keep {keep}: it is there already; name a new folder.")
    found = run_and_show(lambda progress: run(kills, seed, _ShownKills(progress), files=files, keep=keep), json_file)
    for name, value in found.totals.items():
        print(f"{name}: {value:g}")
    for problem in found.problems:
        print(f"problem: {problem.text}")
    if not all(one.holds for one in found.claims):
        raise SlackwaterError(f"{len(found.problems)} problems after {len(found.rows)} kills; they are listed above.")


def bench_hosts(
    *,
    queries: int = 4,
    rate: int = 10_000,
    window: float = 10.0,
    seconds: float = 60.0,
    settings: str = ",".join(hosts.SETTINGS),
    low_queries: int = 4,
    low_rows: int = 20_000,
    low_cores: int = 4,
    policy: str = "klink",
    seeds: int = 1,
    cores: int = 2,
    heap: str = "2g",
    warmup_min: float | None = None,
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """Does the middleware keep an urgent application's results in time while another takes all the CPU it can get?

    Parameters
    ----------
    queries
        YSB queries of the urgent application.
    rate
        Events per second of each.
    window
        Length of the windows in seconds.
    seconds
        Length of the measured span.
    settings
        Names, with commas: alone, os, random, nice, cgroup; os, nice, cgroup with -blocking: a third application.
    low_queries
        Queries of the other application.
    low_rows
        Rows in each of its batches.
    low_cores
        Tasks that it runs at once.
    policy
        By which the urgent application schedules itself.
    seeds
        Number of seeds.
    cores
        Cores that the urgent application may use.
    heap
        Heap of the urgent application's JVM.
    warmup_min
        Shortest warm-up in seconds.
    json_file
        File for rows and claims.
    """
    names = names_in(settings)
    for name in names:
        if name not in hosts.SETTINGS:
            raise unknown_name("setting", name, hosts.SETTINGS)
    base = experiments.ysb_run(
        queries, rate, window, seconds, RunSettings(cores=cores, heap=heap, warmup_min_s=warmup_min)
    )
    (chosen,) = _checked(base, policy, seeds)
    low = ChildSpec(hosts.LOW_NAME, "saturating", low_queries, low_rows, low_cores)
    _run(lambda listener: hosts.hosts(replace(base, policy=chosen), low, names, range(seeds), listener), json_file)


def bench_middleware_cost(
    *,
    entities: int = 100,
    applications: int = 4,
    seconds: float = 60.0,
    period: float = 1.0,
    seed: int = 0,
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """What does the middleware itself take of a host?

    Parameters
    ----------
    entities
        Queries to order, of all applications together.
    applications
        Applications, each a process of its own.
    seconds
        Length of the measured span.
    period
        Seconds from decision to decision.
    seed
        Of the queues.
    json_file
        File for rows and claims.
    """
    from slackwater.bench.middleware_cost import middleware_cost  # noqa: PLC0415 - the endpoint is an extra

    if not 1 <= applications <= entities:
        raise ConfigurationError(f"--entities {entities} --applications {applications}: at least one query each.")
    check_writable(json_file)
    with terminated_as_interrupted():
        found = middleware_cost(
            entities, applications, seconds, period, seed, lambda what: print(what, file=sys.stderr, flush=True)
        )
    show(replace(found, commit=commit()), json_file)


class _ShownKills:
    """Progress on stderr."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("starting", total=None)

    def planned(self, kills: int) -> None:
        self._progress.update(self._task, total=kills)

    def state(self, text: str) -> None:
        self._progress.update(self._task, description=text)

    def killed(self, kill: Kill) -> None:
        self._progress.advance(self._task)
        self._progress.console.print(
            f"{kill.variant}: killed after {kill.batches_committed} batches, {kill.where}; "
            f"back in {kill.recovered_s:.1f} s",
            highlight=False,
        )

    def checked(self, trial: Trial, problems: list[Problem]) -> None:
        self._progress.console.print(
            f"{trial.variant}: {trial.kills} kills, {trial.revisions} results checked, {len(problems)} problems",
            highlight=False,
            style="red" if problems else None,
        )


def _checked(base: RunSpec, policies: str, seeds: int) -> tuple[str, ...]:
    names = names_in(policies)
    check(BenchPlan(run=base, policies=names, seeds=tuple(range(seeds)), sweep_s=()))
    return names


def _run(experiment: Callable[[Listener], Experiment], json_file: Path | None) -> None:
    run_and_show(lambda progress: experiment(Shown(progress, None)), json_file)
