"""`slackwater bench advise` and `slackwater bench recording`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from slackwater.bench.advise import Case, advise_bench, recording_bench
from slackwater.bench.commands import Shown, progress_bar, terminated_as_interrupted
from slackwater.bench.harness import check
from slackwater.bench.mix_commands import mix_plan
from slackwater.bench.mix_file import load_mix
from slackwater.bench.model import BenchPlan, RunSettings, RunSpec, contender
from slackwater.errors import ConfigurationError, unknown_name
from slackwater.provenance import commit
from slackwater.sim.show import show
from slackwater.workloads.registry import workload_entry

LOADS = ("ysb", "linear-road", "mix", "light")
_MIX = Path("benchmarks/mixes/platform.toml")


def bench_advise(
    *,
    loads: str = ",".join(LOADS),
    queries: int = 16,
    linear_road_queries: int = 4,
    light_queries: int = 2,
    recorded: str = "spark-fair",
    policy: str = "klink",
    mix: Path = _MIX,
    seconds: float = 60.0,
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
        Length of the measured span.
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
    names = tuple(name.strip() for name in loads.split(",") if name.strip())
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
    _check_writable(json_file)
    progress = progress_bar()
    with progress, terminated_as_interrupted():
        found = advise_bench(
            cases,
            policy,
            range(seed, seed + seeds),
            Shown(progress, None),
            lambda what: progress.console.print(what, highlight=False),
            keep,
        )
    show(replace(found, commit=commit()), json_file)


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
    base = replace(_ysb(queries, seconds, settings), policy=policy, rate=rate, window_s=window)
    check(BenchPlan(run=base, policies=(policy,), seeds=tuple(range(seeds)), sweep_s=()))
    _check_writable(json_file)
    progress = progress_bar()
    with progress, terminated_as_interrupted():
        found = recording_bench(base, range(seeds), Shown(progress, None))
    show(replace(found, commit=commit()), json_file)


def _case(name: str, counts: dict[str, int], mix: Path, seconds: float, settings: RunSettings, recorded: str) -> Case:
    if name == "mix":
        plan = mix_plan(load_mix(mix), seconds=seconds, policies=(recorded,), seeds=(0,), sweep="3", settings=settings)
        return Case(name, replace(plan.run, policy=recorded))
    if name == "linear-road":
        entry = workload_entry(name)
        run = replace(
            _ysb(counts[name], seconds, settings),
            workload=name,
            rate=entry.rate,
            window_s=entry.window_s,
            slide_s=entry.slide_s,
        )
        return Case(name, replace(run, policy=recorded))
    return Case(name, replace(_ysb(counts[name], seconds, settings), policy=recorded), light=name == "light")


def _ysb(queries: int, seconds: float, settings: RunSettings) -> RunSpec:
    return RunSpec(
        workload="ysb",
        policy="",
        seed=0,
        queries=queries,
        rate=10_000,
        window_s=10.0,
        delay_s=1.0,
        seconds=seconds,
        phases="spread",
        payload="columns",
        settings=settings,
    )


def _check_writable(json_file: Path | None) -> None:
    if json_file is not None and not json_file.absolute().parent.is_dir():
        raise ConfigurationError(f"--json {json_file}: its folder does not exist; make it first.")
