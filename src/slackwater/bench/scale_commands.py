"""`slackwater bench scale WORKLOAD`: the most that each policy sustains, and what it costs on the way there."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter
from rich import box
from rich.table import Table

from slackwater.bench.commands import names_in, report_console, swept_intervals
from slackwater.bench.harness import check
from slackwater.bench.model import BenchPlan, RunSettings, RunSpec
from slackwater.bench.scale import By, ScalePlan, check_scale, scale
from slackwater.bench.showing import Shown, check_writable, progress_bar, replace_file, terminated_as_interrupted
from slackwater.workloads.base import PayloadKind, Phases  # noqa: TC001  # cyclopts
from slackwater.workloads.registry import workload_entry

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from slackwater.bench.scale import ScaleResult

_FIRST = {"queries": 8, "rate": 10_000}
_MOST = {"queries": 64, "rate": 200_000}
_STEP = {"queries": 2, "rate": 5_000}


def bench_scale(
    workload: str,
    *,
    by: By = "queries",
    p99: float = 10.0,
    policies: str = "spark-tuned,klink",
    first: int | None = None,
    most: int | None = None,
    step: int | None = None,
    queries: int = 8,
    rate: int | None = None,
    window: float | None = None,
    slide: float | None = None,
    delay: float = 1.0,
    phases: Phases = "spread",
    payload: PayloadKind = "columns",
    seconds: float = 60.0,
    seeds: int = 1,
    seed: int = 0,
    sweep: str = "3,4,6,8",
    cores: int = 2,
    heap: str = "4g",
    warmup_min: float | None = None,
    warmup_max: float = 120.0,
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """Find the most queries, or the highest rate, that each policy sustains, and what each size costs.

    Parameters
    ----------
    workload
        Name of a workload, such as ysb.
    by
        What grows: the number of queries, or the rate of each.
    p99
        The 99th percentile of latency, in seconds, that must be kept; every window must come out and be right.
    policies
        Names, with commas, as for `slackwater bench ysb`.
    first
        Size that is tried first; 8 queries, or 10 000 events/s when not given.
    most
        Greatest size that may be tried; 64 queries, or 200 000 events/s when not given.
    step
        Sizes are multiples of this; 2 queries, or 5000 events/s when not given.
    queries
        Number of queries when the rate grows.
    rate
        Events per second of each query when their number grows; the workload's usual one when not given.
    window
        Length of the windows in seconds; the workload's usual one when not given.
    slide
        Seconds from one window's start to the next one's; the workload's usual one when not given.
    delay
        Watermark delay in seconds.
    phases
        Where windows end: spread over the window's length, or aligned.
    payload
        Events as columns, or as text that the query parses: json (ysb), csv (nyt).
    seconds
        Length of the measured span of each run, after warm-up.
    seeds
        Number of seeds; a size is sustained if it is with all of them.
    seed
        The first seed.
    sweep
        Trigger intervals that spark-tuned tries at each size, in seconds, or as shares of the time from result to
        result (0.5x), until one sustains it.
    cores
        Cores that Spark gets.
    heap
        Heap of Spark's JVM.
    warmup_min
        Shortest warm-up in seconds; two windows and at least 20 s when not given.
    warmup_max
        Longest warm-up in seconds.
    json_file
        File for rows, limits and claims; written anew after every run.
    """
    entry = workload_entry(workload)
    in_s, in_x = swept_intervals(sweep)
    window_s = entry.window_s if window is None else window
    slide_s = entry.slide_s if slide is None else slide
    smallest = _STEP[by] if step is None else step
    bench = BenchPlan(
        run=RunSpec(
            workload=entry.name,
            policy="",
            seed=seed,
            queries=queries,
            rate=entry.rate if rate is None else rate,
            window_s=window_s,
            slide_s=None if slide_s == window_s else slide_s,
            delay_s=delay,
            seconds=seconds,
            phases=phases,
            payload=payload,
            settings=RunSettings(cores=cores, heap=heap, warmup_min_s=warmup_min, warmup_max_s=warmup_max),
        ),
        policies=names_in(policies),
        seeds=tuple(range(seed, seed + max(0, seeds))),
        sweep_s=in_s,
        sweep_x=in_x,
    )
    check(bench)
    plan = ScalePlan(
        run=bench.run,
        policies=bench.policies,
        seeds=bench.seeds,
        by=by,
        p99_s=p99,
        first=max(smallest, _FIRST[by]) if first is None else first,
        most=max(smallest, _MOST[by], first or 0) if most is None else most,
        step=smallest,
        sweep=bench.sweep,
    )
    check_scale(plan)
    check_writable(json_file)
    progress = progress_bar()
    with progress, terminated_as_interrupted():
        result = scale(plan, Shown(progress, None), _Kept(progress, json_file))
    print_scale(result, report_console())


class _Kept:
    """The file after every run, and a line on what came of it."""

    def __init__(self, progress: Progress, json_file: Path | None) -> None:
        self._console = progress.console
        self._json_file = json_file
        self._rows = 0

    def __call__(self, result: ScaleResult) -> None:
        for row in result.rows[self._rows :]:
            what = f"{row['policy']}: {row['queries']} queries of {row['rate']} events/s as {row['contender']}"
            self._console.print(f"{what}: {row['stopped_by'] or 'sustained'}", highlight=False)
        self._rows = len(result.rows)
        if self._json_file is not None:
            replace_file(self._json_file, msgspec.json.format(msgspec.json.encode(result), indent=1))


def print_scale(result: ScaleResult, console: Console) -> None:
    """A cost curve and a sentence for each policy, then the claims."""
    for limit in result.limits:
        rows = [row for row in result.rows if row["policy"] == limit.policy]
        console.print(_curve(limit.policy, result, rows))
        unit = "queries" if result.by == "queries" else "events/s a query"
        most = "no size that was tried" if limit.sustained is None else f"{limit.sustained} {unit}"
        chosen = "" if limit.chosen is None else f" with {limit.chosen}"
        at = "" if limit.too_large is None else f" at {limit.too_large}"
        console.print(
            f"{limit.policy} sustains {most}{chosen} (p99 ≤ {result.p99_s:g} s); stopped{at} by {limit.stopped_by}.",
            highlight=False,
        )
    for found in result.claims:
        held = "holds" if found.holds else "does not hold"
        console.print(f"{found.claim}: {found.measured:g} ({found.target}: {held})", highlight=False)


def _curve(policy: str, result: ScaleResult, rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title=f"{result.workload} under {policy}, {result.window_s:g} s windows, {result.seconds:g} s measured",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("as", no_wrap=True)
    for heading in ("queries", "events/s\na query", "cores", "mean s", "p99 s", "out\n/due", "wrong", "sustained"):
        table.add_column(heading, justify="right")
    table.add_column("stopped by")
    for row in sorted(rows, key=lambda row: (row["queries"], row["rate"], row["contender"], row["seed"])):
        table.add_row(
            row["contender"],
            str(row["queries"]),
            str(row["rate"]),
            *(_number(row.get(name)) for name in ("cpu_cores", "latency_mean_s", "latency_p99_s")),
            str(row.get("windows", "-")),
            str(row.get("wrong", "-")),
            "yes" if row["sustained"] else "no",
            row["stopped_by"],
        )
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
