"""The benchmark commands that the command line mounts."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.table import Table

from slackwater.bench.harness import check, run_bench
from slackwater.bench.mix_tables import print_mix
from slackwater.bench.model import BenchPlan, Network, OnCluster, OnKafka, RunSettings, RunSpec
from slackwater.bench.showing import ABSENT, Shown, check_writable, figure, progress_bar, terminated_as_interrupted
from slackwater.errors import ConfigurationError, SlackwaterError
from slackwater.workloads.base import PayloadKind, Phases  # noqa: TC001  # cyclopts
from slackwater.workloads.on_topics import topic_form
from slackwater.workloads.registry import workload_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from slackwater.bench.model import BenchResult, Interval

DEFAULT_POLICIES = "spark-fair,spark-tuned,round-robin,klink"
DEFAULT_SWEEP = "3,4,5"
_LOG_WIDTH = 140
REPORT_WIDTH = 120


def bench_command(workload: str) -> Callable[..., None]:
    """The command `slackwater bench WORKLOAD`: the same options for every workload, with its own usual settings."""
    entry = workload_entry(workload)

    def command(
        *,
        queries: int = 16,
        rate: int = entry.rate,
        window: float = entry.window_s,
        slide: float | None = entry.slide_s,
        seconds: float = 60.0,
        policies: str = DEFAULT_POLICIES,
        seeds: int = 1,
        seed: int = 0,
        phases: Phases = "spread",
        json_file: Annotated[Path | None, Parameter(name="--json")] = None,
        payload: PayloadKind = "columns",
        sweep: str = DEFAULT_SWEEP,
        delay: float = 1.0,
        cores: int = 2,
        heap: str = "2g",
        partitions: int = 1,
        source_partitions: int = 1,
        warmup_min: float | None = None,
        warmup_max: float = 60.0,
        trace: Path | None = None,
        cluster: int = 0,
        worker_cores: int = 1,
        worker_memory: str = "1g",
        kill_worker_after: float | None = None,
        worker_back_after: float = 10.0,
        source: Literal["embedded", "kafka"] = "embedded",
        network: Network = "uniform",
        network_longest: float = 0.5,
    ) -> None:
        """Measure how soon each policy emits the windows of many WORKLOAD queries, and what that costs.

        Parameters
        ----------
        queries
            Number of queries that run at the same time.
        rate
            Events per second of each query.
        window
            Length of the windows in seconds.
        slide
            Seconds from one window's start to the next one's; windows tumble when there is none.
        seconds
            Length of the measured span, after warm-up.
        policies
            Names, with commas: spark-fifo, spark-fair, spark-every-5s, spark-staggered-5s, spark-tuned, or one of
            Slackwater's, also with a knob: klink:cost, klink:latency.
        seeds
            Number of seeds; more than one gives intervals.
        seed
            The first seed.
        phases
            Where windows end: spread over the window's length, or aligned.
        json_file
            File for the results; written anew after every run.
        payload
            Events as columns, or as text that the query parses: json (ysb, riot), csv (nyt).
        sweep
            Trigger intervals in seconds that spark-tuned tries; 0.5x is half of the time from result to result.
        delay
            Watermark delay in seconds.
        cores
            Cores that Spark gets.
        heap
            Heap of Spark's JVM.
        partitions
            State partitions of each query.
        source_partitions
            Partitions of each query's source.
        warmup_min
            Shortest warm-up in seconds; two windows and at least 20 s when not given.
        warmup_max
            Longest warm-up in seconds; a run that has not settled by then says so.
        trace
            File for every batch of every run, from which `slackwater sim microbatch` calibrates.
        cluster
            Number of workers of a standalone cluster, started anew for each run; 0 runs tasks in the driver.
        worker_cores
            Cores of each worker; they take the place of --cores.
        worker_memory
            Memory of each worker's executor.
        kill_worker_after
            Kill a worker, so many seconds into the measured span.
        worker_back_after
            Start the killed worker again after so many seconds.
        source
            Where rows come from: Spark's own rate source, or topics of a Kafka broker that each run starts.
        network
            With Kafka, the law of the rows' delays on their way to the broker: none, uniform or zipf.
        network_longest
            The longest of those delays, in seconds.
        """
        if seeds < 1:
            raise ConfigurationError(f"seeds must be at least 1; got {seeds}.")
        settings = RunSettings(
            cores=cores,
            heap=heap,
            partitions=partitions,
            source_partitions=source_partitions,
            warmup_min_s=warmup_min,
            warmup_max_s=warmup_max,
        )
        run = RunSpec(
            workload=workload,
            policy="",
            seed=seed,
            queries=queries,
            rate=rate,
            window_s=window,
            slide_s=None if slide == window else slide,
            delay_s=delay,
            seconds=seconds,
            phases=phases,
            payload=payload if source == "embedded" else topic_form(workload).payload,
            settings=settings,
            trace=trace is not None,
            cluster=_on_cluster(cluster, worker_cores, worker_memory, kill_worker_after, worker_back_after),
            kafka=OnKafka(network, network_longest) if source == "kafka" else None,
        )
        plan = BenchPlan(
            run=run,
            policies=names_in(policies),
            seeds=tuple(range(seed, seed + seeds)),
            sweep_s=swept_intervals(sweep)[0],
            sweep_x=swept_intervals(sweep)[1],
        )
        check(plan)
        run_and_print(plan, json_file, trace)

    command.__doc__ = (command.__doc__ or "").replace("WORKLOAD", entry.about)
    return command


def _on_cluster(
    workers: int, cores: int, memory: str, kill_after_s: float | None, back_after_s: float
) -> OnCluster | None:
    if workers == 0 and kill_after_s is not None:
        raise ConfigurationError("--kill-worker-after needs workers: name their number, as in --cluster 2.")
    return None if workers == 0 else OnCluster(workers, cores, memory, kill_after_s, back_after_s)


def names_in(policies: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in policies.split(",") if name.strip())


def run_and_print(plan: BenchPlan, json_file: Path | None, trace_file: Path | None) -> None:
    check_writable(json_file)
    check_writable(trace_file, "--trace")
    progress = progress_bar()
    with progress, terminated_as_interrupted():
        result = run_bench(plan, Shown(progress, json_file, trace_file, plan.run.workload))
    print_result(result, report_console())
    if result.failures:
        names = ", ".join(f"{failure.policy} (seed {failure.seed})" for failure in result.failures)
        raise SlackwaterError(f"{len(result.failures)} runs failed: {names}. Their errors are above.")


def report_console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=REPORT_WIDTH)


def print_result(result: BenchResult, console: Console) -> None:
    console.print(_runs_table(result))
    if result.mix is not None:
        print_mix(result, console)
    if len(result.seeds) > 1:
        console.print(_summary_table(result))


def _runs_table(result: BenchResult) -> Table:
    table = Table(
        title=f"{_what(result)}, {result.phases}, {result.seconds:g} s measured{_where(result.cluster)}"
        f"{_from(result.kafka)}",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        caption="latency in s, from a window's end; propagation from when its last input could be read",
    )
    table.add_column("policy", no_wrap=True)
    if len(result.seeds) > 1:
        table.add_column("seed", justify="right")
    for heading in (
        *("mean", "p50", "p90", "p99", "max", "propa-\ngation", "cores", "batches\n/s"),
        *("out\n/due", "wrong", "steady", "decide\np99 ms", "over-\nhead %"),
    ):
        table.add_column(heading, justify="right")
    for run in result.runs:
        latency, windows = run.latency_s, run.windows
        name = f"{run.policy} ({run.chosen.removeprefix('spark-')})" if run.chosen else run.policy
        cells = [
            *(figure(x) for x in (latency.mean, latency.p50, latency.p90, latency.p99, latency.max)),
            figure(run.propagation_s.mean),
            figure(run.cpu_cores),
            figure(run.batches / run.seconds),
            f"{windows.emitted}/{windows.expected}",
            str(windows.wrong),
            "yes" if run.steady else "no",
            figure(run.scheduler.decision_ms_p99),
            figure(run.scheduler.overhead_pct),
        ]
        seed = [str(run.seed)] if len(result.seeds) > 1 else []
        table.add_row(name, *seed, *cells, style="dim" if run.sweep_of else None)
    return table


def _what(result: BenchResult) -> str:
    if result.mix is not None:
        groups = len(result.mix.groups)
        return (
            f"mix {result.mix.name}: {result.queries} queries in {groups} groups, {result.mix.offered_per_s} events/s"
        )
    queries = f"{result.queries} queries of {result.rate} events/s"
    return f"{result.workload}: {queries}, {result.window_s:g} s windows{_sliding(result.slide_s)}"


def _sliding(slide_s: float | None) -> str:
    return "" if slide_s is None else f" every {slide_s:g} s"


def _from(kafka: OnKafka | None) -> str:
    if kafka is None:
        return ""
    delays = "no network delays" if kafka.network == "none" else f"{kafka.network} delays up to {kafka.longest_s:g} s"
    return f", from Kafka with {delays}"


def _where(cluster: OnCluster | None) -> str:
    if cluster is None:
        return ""
    killed = cluster.kill_worker_after_s
    event = "" if killed is None else f", one killed after {killed:g} s and back {cluster.back_after_s:g} s later"
    plural = "s" if cluster.cores_per_worker > 1 else ""
    return f", on {cluster.workers} workers of {cluster.cores_per_worker} core{plural}{event}"


def _summary_table(result: BenchResult) -> Table:
    table = Table(title=f"over {len(result.seeds)} seeds: mean ± half of the 95 % interval", box=box.SIMPLE_HEAD)
    table.add_column("policy", no_wrap=True)
    for heading in ("mean", "p50", "p90", "p99", "propagation", "cores", "steady"):
        table.add_column(heading, justify="right")
    for line in result.summary:
        figures = (
            *(line.latency_mean_s, line.latency_p50_s, line.latency_p90_s, line.latency_p99_s),
            *(line.propagation_mean_s, line.cpu_cores),
        )
        table.add_row(line.policy, *map(_with_interval, figures), f"{line.steady_runs}/{line.runs}")
    return table


def _with_interval(value: Interval | None) -> str:
    if value is None:
        return ABSENT
    half = value.half_width_95
    return figure(value.mean) if half is None else f"{value.mean:.2f} ± {half:.2f}"


def swept_intervals(text: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The intervals in `2,3,0.5x`: in seconds, and as shares of a query's time from result to result."""
    seconds: list[float] = []
    shares: list[float] = []
    for part in names_in(text):
        try:
            value = float(part.removesuffix("x"))
        except ValueError:
            raise ConfigurationError(
                f"--sweep takes seconds, or shares of the time from result to result, with commas, as in 2,3,0.5x; "
                f"got {text!r}."
            ) from None
        if value <= 0:
            raise ConfigurationError(f"--sweep takes intervals greater than 0; got {text!r}.")
        (shares if part.endswith("x") else seconds).append(value)
    return tuple(seconds), tuple(shares)
