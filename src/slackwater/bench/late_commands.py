"""`slackwater bench late`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.table import Table

from slackwater.bench.late_harness import LateListener, run_late
from slackwater.bench.late_model import (
    Kind,
    LatePlan,
    LateRunSpec,
    LateSettings,
    check,
    default_rate,
    span_s,
)
from slackwater.bench.model import Collector  # noqa: TC001  # cyclopts
from slackwater.bench.showing import ABSENT, check_writable, progress_bar, replace_file, terminated_as_interrupted
from slackwater.errors import ConfigurationError, SlackwaterError, unknown_name
from slackwater.extras import require
from slackwater.workloads.late_workloads import LATE_WORKLOADS

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from slackwater.bench.late_model import LateResult, LateRun

_WIDTH = 160
DEFAULT_CONTENDERS = "ours,spark-memory-salted,spark-rocksdb-salted"


def bench_late(
    *,
    workload: str = "average",
    past_windows: str = "1,3,10",
    contenders: str = DEFAULT_CONTENDERS,
    kind: Kind = "rows",
    rate: int | None = None,
    window: float | None = None,
    payload: int | None = None,
    heap: str = "1g",
    memory: str | None = None,
    seconds: float | None = None,
    warmup: float | None = None,
    watermark: float = 1.0,
    staleness: float = 0.1,
    trigger: float = 2.0,
    bursts: bool = False,
    seed: int = 0,
    cores: int = 2,
    collector: Collector = "g1",
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
    plots: Path | None = None,
) -> None:
    """What do windows that take late rows cost, in memory and latency, here and on plain Spark?

    Parameters
    ----------
    workload
        One of Aion's: average, bigrams, stock-market, linear-road.
    past_windows
        How many windows back rows may reach; numbers with commas, a run each.
    contenders
        Names, with commas: ours, ours-no-prestage, ours-one-writer, ours-unordered-io; spark-memory, spark-rocksdb,
        and both with -salted: windows in 64 rows of state; spark-pandas-salted and spark-pandas-rocksdb-salted: rows
        in states of applyInPandasWithState.
    kind
        A function over the rows of a window, or aggregates by 300 keys (average alone).
    rate
        Rows per second; 5000 when not given, 1500 for bigrams, whose function costs 160 µs a row.
    window
        Length of the windows in seconds; the workload's own when not given.
    payload
        Bytes of a row's payload; the workload's own when not given.
    heap
        Heap of Spark's JVM.
    memory
        Bound on what ours keeps in memory, such as 64m; its own default when not given.
    seconds
        Length of the measured span; three windows and at least 30 s when not given.
    warmup
        Seconds before it; when not given, so long that all windows that take rows are full, and 10 s.
    watermark
        Watermark delay in seconds; plain Spark's is longer by the past windows.
    staleness
        Bound on the staleness of our results.
    trigger
        Seconds from batch to batch, for all alike.
    bursts
        Late rows in bursts instead of a log-normal distribution.
    seed
        Of the rows.
    cores
        Cores that Spark gets.
    collector
        Of the JVM's garbage: g1, which Java takes by itself, or parallel.
    json_file
        File for the results; written anew after every run.
    plots
        Folder for two pictures: heap and latency over past windows.
    """
    if workload not in LATE_WORKLOADS:
        raise unknown_name("workload", workload, list(LATE_WORKLOADS))
    known = LATE_WORKLOADS[workload]
    window_s = known.window_s if window is None else window
    run = LateRunSpec(
        workload=workload,
        contender="",
        kind=kind,
        past_windows=1,
        rate=default_rate(workload) if rate is None else rate,
        window_s=window_s,
        payload_bytes=known.payload_bytes if payload is None else payload,
        seed=seed,
        seconds=span_s(window_s) if seconds is None else seconds,
        watermark_s=watermark,
        staleness=staleness,
        trigger_s=trigger,
        bursts=bursts,
        settings=LateSettings(cores=cores, heap=heap, memory=memory, collector=collector),
        warmup_s=warmup,
    )
    plan = LatePlan(run, _names(contenders), _counts(past_windows))
    check(plan)
    require("slackwater bench late", "pandas", "pyarrow", *(["matplotlib"] if plots is not None else []))
    check_writable(json_file)
    progress = progress_bar()
    with progress, terminated_as_interrupted():
        result = run_late(plan, _Shown(progress, json_file))
    console = Console()
    print_late(result, console if console.is_terminal else Console(width=_WIDTH))
    if plots is not None:
        from slackwater.bench.late_plots import draw  # noqa: PLC0415  # needs matplotlib

        for file in draw(result, plots):
            print(f"picture: {file}")
    wrong = [run for run in result.runs if run.windows and (run.windows.wrong or run.windows.missing)]
    if wrong:
        names = ", ".join(f"{run.contender} ({run.past_windows} past windows)" for run in wrong)
        raise SlackwaterError(f"windows are wrong or missing: {names}.")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _counts(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ConfigurationError(
            f"--past-windows takes whole numbers with commas, as in 1,3,10; got {text!r}."
        ) from None


class _Shown(LateListener):
    """Progress on stderr, and the file after every run."""

    def __init__(self, progress: Progress, json_file: Path | None) -> None:
        self._progress = progress
        self._json_file = json_file
        self._task: TaskID = progress.add_task("starting", total=None)

    def planned(self, specs: list[LateRunSpec]) -> None:
        self._progress.update(self._task, total=len(specs))
        minutes = sum(spec.usual_s for spec in specs) / 60
        first = specs[0]
        self._progress.console.print(
            f"{first.workload}, {first.kind}: {len(specs)} runs of {first.rate} rows/s, {first.window_s:g} s windows, "
            f"{first.payload_bytes} bytes a row, in {first.settings.heap}; about {minutes:.0f} minutes",
            highlight=False,
        )

    def state(self, spec: LateRunSpec, state: dict[str, Any]) -> None:
        place = f" {state['s']}/{state['of_s']:g} s" if "s" in state else ""
        behind = f", {state['behind_s']:g} s behind" if "behind_s" in state else ""
        what = f"{spec.contender}, {spec.past_windows} past: {state.get('state', '')}{place}{behind}"
        self._progress.update(self._task, description=what)

    def finished(self, run: LateRun, error: str) -> None:
        self._progress.advance(self._task)
        console = self._progress.console
        if error:
            console.print(error, style="red", highlight=False, markup=False)
        latency, windows = run.latency_s, run.windows
        checked = f"{windows.right} right, {windows.wrong} wrong, {windows.missing} missing" if windows else "unchecked"
        why = f" ({run.reason} after {run.lived_s:.0f} s)" if run.reason else ""
        console.print(
            f"{run.contender}, {run.past_windows} past windows: {run.outcome}{why}, mean {_number(latency.mean)} s, "
            f"live heap {_number(run.live_heap_mb.median, 0)} MB; windows: {checked}",
            highlight=False,
        )

    def result(self, result: LateResult) -> None:
        if self._json_file is not None:
            write_late(result, self._json_file)


def write_late(result: LateResult, file: Path) -> None:
    replace_file(file, msgspec.json.format(msgspec.json.encode(result), indent=1))


def print_late(result: LateResult, console: Console) -> None:
    table = Table(
        title=f"{result.workload}, {result.kind}: {result.rate} rows/s of {result.payload_bytes} bytes, "
        f"{result.window_s:g} s windows, heap {result.settings.heap}, {result.seconds:g} s measured",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        caption="latency: from a window's end to its first result; heap: what lives after full collections",
    )
    table.add_column("contender", no_wrap=True)
    for heading in (
        *("past\nwindows", "latency\nmean s", "p99 s", "live heap\nmedian MB", "max MB", "batch\nmedian s", "p95 s"),
        *("rows/s", "behind\ns", "cores", "others'\ncores", "right/wr.\n/missing"),
    ):
        table.add_column(heading, justify="right")
    table.add_column("outcome")
    for run in result.runs:
        heap, windows = run.live_heap_mb, run.windows
        table.add_row(
            run.contender,
            str(run.past_windows),
            _number(run.latency_s.mean),
            _number(run.latency_s.p99),
            _number(heap.median, 0),
            _number(heap.max, 0),
            _number(run.batch_s.median),
            _number(run.batch_s.p95),
            _number(run.rows_per_s, 0),
            _number(run.behind_s[-1], 1) if run.behind_s else ABSENT,
            _number(run.cpu_cores),
            _number(run.other_cores),
            f"{windows.right}/{windows.wrong}/{windows.missing}" if windows else ABSENT,
            f"{run.outcome} after {run.lived_s:.0f} s: {run.reason}" if run.reason else run.outcome,
        )
    console.print(table)


def _number(value: float | None, digits: int = 2) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"
