"""`slackwater bench engines`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # cyclopts reads the annotations
from typing import Annotated

from cyclopts import Parameter

from slackwater.bench import engines
from slackwater.bench.commands import names_in
from slackwater.bench.experiments import ysb_run
from slackwater.bench.harness import check
from slackwater.bench.model import BenchPlan, RunSettings
from slackwater.bench.showing import Shown, run_and_show
from slackwater.errors import ConfigurationError, unknown_name


def bench_engines(
    *,
    spark_queries: int = 4,
    spark_rate: int = 10_000,
    flink_jobs: int = 4,
    flink_rate: int = 10_000,
    loads: str = "60,80,100",
    contenders: str = "os,qs-nice,groups-cgroup",
    window: float = 10.0,
    seconds: float = 60.0,
    policy: str = "klink",
    seeds: int = 1,
    cores: int = 2,
    heap: str = "1g",
    flink_heap: int = 768,
    warmup_min: float | None = None,
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """Does one middleware serve Spark and Flink on one host better than the operating system alone?

    Parameters
    ----------
    spark_queries
        YSB queries of the Spark application.
    spark_rate
        Events per second of each at a load of 100 %.
    flink_jobs
        YSB jobs on Flink.
    flink_rate
        Events per second of each at a load of 100 %.
    loads
        Shares of these rates in percent, with commas.
    contenders
        Names, with commas: os, random-nice, qs-nice, groups-cgroup.
    window
        Length of the windows in seconds.
    seconds
        Length of the measured span.
    policy
        By which the Spark application schedules itself; an attached one, so that the middleware can read it.
    seeds
        Number of seeds.
    cores
        Cores that Spark gets.
    heap
        Heap of Spark's JVM.
    flink_heap
        Heap of Flink's tasks in MB.
    warmup_min
        Shortest warm-up in seconds.
    json_file
        File for rows and claims.
    """
    names = names_in(contenders)
    for name in names:
        if name not in engines.CONTENDERS:
            raise unknown_name("contender", name, engines.CONTENDERS)
    if policy.startswith("spark-"):
        raise ConfigurationError(f"--policy {policy}: the middleware reads attached applications here; name another.")
    if flink_jobs < 1 or flink_rate < 1:
        raise ConfigurationError(f"at least one Flink job and one event/s are needed; got {flink_jobs}, {flink_rate}.")
    settings = RunSettings(cores=cores, heap=heap, warmup_min_s=warmup_min)
    base = ysb_run(spark_queries, spark_rate, window, seconds, settings, policy)
    check(BenchPlan(run=base, policies=(policy,), seeds=tuple(range(seeds)), sweep_s=()))
    flink = engines.FlinkLoad(flink_jobs, flink_rate, flink_heap)
    percentages = _percentages(loads)
    run_and_show(
        lambda progress: engines.engines(base, flink, names, percentages, range(seeds), Shown(progress, None)),
        json_file,
    )


def _percentages(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise ConfigurationError(f"--loads {text}: percentages with commas are needed, such as 60,80,100.") from error
    if not found or min(found) <= 0:
        raise ConfigurationError(f"--loads {text}: at least one percentage above 0 is needed.")
    return found
