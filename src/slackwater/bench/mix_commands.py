"""`slackwater bench mix`: different workloads, rates, windows and classes in one Spark application."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from slackwater.bench.commands import DEFAULT_POLICIES, names_in, run_and_print, swept_intervals
from slackwater.bench.harness import check
from slackwater.bench.mix_file import load_mix
from slackwater.bench.mix_model import MIX
from slackwater.bench.model import BenchPlan, RunSettings, RunSpec
from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from slackwater.bench.mix_model import Mix


def mix_plan(
    mix: Mix,
    *,
    seconds: float,
    policies: tuple[str, ...],
    seeds: tuple[int, ...],
    sweep: str,
    settings: RunSettings,
) -> BenchPlan:
    """A benchmark of a mix; what is said for all queries here is what a run's protocol needs, the longest window."""
    run = RunSpec(
        workload=MIX,
        policy="",
        seed=0,
        queries=mix.queries,
        rate=round(mix.offered_per_s / max(1, mix.queries)),
        window_s=mix.longest_window_s,
        delay_s=max(group.delay_s for group in mix.groups),
        seconds=seconds,
        phases="spread",
        payload="columns",
        settings=settings,
        groups=mix.groups,
    )
    in_s, in_x = swept_intervals(sweep)
    return BenchPlan(run=run, policies=policies, seeds=seeds, sweep_s=in_s, sweep_x=in_x, mix=mix)


def bench_mix(
    *,
    spec: Path,
    seconds: float = 60.0,
    policies: str = DEFAULT_POLICIES,
    seeds: int = 1,
    seed: int = 0,
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
    sweep: str = "2,3,4,0.5x,1x",
    cores: int = 2,
    heap: str = "2g",
    partitions: int = 1,
    source_partitions: int = 1,
    warmup_min: float | None = None,
    warmup_max: float = 60.0,
) -> None:
    """Measure how each policy serves queries of different workloads, rates, windows and classes at once.

    Parameters
    ----------
    spec
        A TOML file with a table for each group of queries, such as benchmarks/mixes/platform.toml.
    seconds
        Length of the measured span, after warm-up.
    policies
        Names, with commas, as for `slackwater bench ysb`.
    seeds
        Number of seeds; more than one gives intervals.
    seed
        The first seed.
    json_file
        File for the results; written anew after every run.
    sweep
        Trigger intervals that spark-tuned tries, in seconds; 0.5x is half of each query's time from result to result.
    cores
        Cores that Spark gets.
    heap
        Heap of Spark's JVM.
    partitions
        State partitions of each query.
    source_partitions
        Partitions of each query's source.
    warmup_min
        Shortest warm-up in seconds; two of the longest windows and at least 20 s when not given.
    warmup_max
        Longest warm-up in seconds; a run that has not settled by then says so.
    """
    if seeds < 1:
        raise ConfigurationError(f"seeds must be at least 1; got {seeds}.")
    plan = mix_plan(
        load_mix(spec),
        seconds=seconds,
        policies=names_in(policies),
        seeds=tuple(range(seed, seed + seeds)),
        sweep=sweep,
        settings=RunSettings(
            cores=cores,
            heap=heap,
            partitions=partitions,
            source_partitions=source_partitions,
            warmup_min_s=warmup_min,
            warmup_max_s=warmup_max,
        ),
    )
    check(plan)
    run_and_print(plan, json_file, None)
