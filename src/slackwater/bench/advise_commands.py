"""`slackwater bench advise` and `slackwater bench recording`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from slackwater.bench.advise import Case, advise_bench, recording_bench
from slackwater.bench.commands import names_in
from slackwater.bench.experiments import ysb_run
from slackwater.bench.harness import check
from slackwater.bench.mix_commands import mix_plan
from slackwater.bench.mix_file import load_mix
from slackwater.bench.model import BenchPlan, RunSettings, contender
from slackwater.bench.showing import Shown, run_and_show
from slackwater.errors import ConfigurationError, unknown_name
from slackwater.provenance import commit
from slackwater.workloads.registry import workload_entry

LOADS = ("ysb", "linear-road", "mix", "light")
_MIX = Path("benchmarks/mixes/teams.toml")


def bench_advise(
    *,
    loads: str = ",".join(LOADS),
    queries: int = 16,
    linear_road_queries: int = 4,
    light_queries: int = 2,
    recorded: str = "spark-fair",
    policy: str = "klink",
    mix: Path = _MIX,
    seconds: float = 120.0,
    seeds: int = 1,
    seed: int = 0,
    cores: int = 2,
    heap: str = "2g",
    warmup_min: float | None = None,
    warmup_max: float = 90.0,
    keep: Path | None = None,
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """Record plain Spark, predict another policy from the trace, run that policy live, and compare.

    Parameters
    ----------
    loads
        Which, with commas: ysb, linear-road, mix, light.
    queries
        YSB queries.
    linear_road_queries
        Linear Road queries.
    light_queries
        YSB queries of the light load, on which advice must be to leave things alone.
    recorded
        Spark's own way that is recorded, such as spark-fair or spark-staggered-5s.
    policy
        The policy that is predicted and then run.
    mix
        The file of the mix.
    seconds
        Length of the measured span. The 99th percentile of the mix rests on one window in 60 s.
    seeds
        Number of seeds.
    seed
        The first seed.
    cores
        Cores that Spark gets.
    heap
        Heap of Spark's JVM.
    warmup_min
        Shortest warm-up in seconds.
    warmup_max
        Longest warm-up in seconds.
    keep
        A folder that the traces are kept in.
    json_file
        File for rows and claims.
    """
    names = names_in(loads)
    for name in names:
        if name not in LOADS:
            raise unknown_name("load", name, LOADS)
    if not names or seeds < 1:
        raise ConfigurationError(f"--loads {loads!r} --seeds {seeds}: one of each at least is needed.")
    if contender(recorded).kind == "slackwater" or contender(policy).kind != "slackwater":
        raise ConfigurationError(
            f"--recorded {recorded} --policy {policy}: one of Spark's own ways is recorded, and one of Slackwater's "
            "policies is predicted."
        )
    settings = RunSettings(cores=cores, heap=heap, warmup_min_s=warmup_min, warmup_max_s=warmup_max)
    counts = {"ysb": queries, "linear-road": linear_road_queries, "light": light_queries}
    cases = [_case(name, counts, mix, seconds, settings, recorded) for name in names]
    for case in cases:
        check(BenchPlan(run=case.run, policies=(recorded, policy), seeds=(seed,), sweep_s=()))
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    run_and_show(
        lambda progress: advise_bench(
            cases,
            policy,
            range(seed, seed + seeds),
            Shown(progress, None),
            lambda what: progress.console.print(what, highlight=False),
            keep,
            lambda known: None if json_file is None else replace(known, commit=commit()).write(json_file),
        ),
        json_file,
    )


def bench_recording(
    *,
    queries: int = 24,
    rate: int = 10_000,
    window: float = 10.0,
    seconds: float = 120.0,
    policy: str = "klink",
    seeds: int = 1,
    cores: int = 2,
    heap: str = "2g",
    warmup_min: float | None = None,
    warmup_max: float = 90.0,
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """What does recording take of the CPU, and how large does a trace become?

    Parameters
    ----------
    queries
        YSB queries.
    rate
        Events per second of each.
    window
        Length of the windows in seconds.
    seconds
        Length of the measured span.
    policy
        By which they run while they are recorded; spark-fair has the most batches.
    seeds
        Number of seeds.
    cores
        Cores that Spark gets.
    heap
        Heap of Spark's JVM.
    warmup_min
        Shortest warm-up in seconds.
    warmup_max
        Longest warm-up in seconds.
    json_file
        File for rows and claims.
    """
    settings = RunSettings(cores=cores, heap=heap, warmup_min_s=warmup_min, warmup_max_s=warmup_max)
    base = ysb_run(queries, rate, window, seconds, settings, policy)
    check(BenchPlan(run=base, policies=(policy,), seeds=tuple(range(seeds)), sweep_s=()))
    run_and_show(lambda progress: recording_bench(base, range(seeds), Shown(progress, None)), json_file)


def _case(name: str, counts: dict[str, int], mix: Path, seconds: float, settings: RunSettings, recorded: str) -> Case:
    if name == "mix":
        plan = mix_plan(load_mix(mix), seconds=seconds, policies=(recorded,), seeds=(0,), sweep="3", settings=settings)
        return Case(name, replace(plan.run, policy=recorded))
    if name == "linear-road":
        entry = workload_entry(name)
        run = ysb_run(counts[name], entry.rate, entry.window_s, seconds, settings, recorded)
        return Case(name, replace(run, workload=name, slide_s=entry.slide_s))
    return Case(name, ysb_run(counts[name], 10_000, 10.0, seconds, settings, recorded), light=name == "light")
