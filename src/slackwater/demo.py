"""`slackwater demo`: the same YSB queries on plain Spark, then with Slackwater, live in the terminal."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from slackwater.bench.harness import Listener, run_bench
from slackwater.bench.model import BenchPlan, RunSettings, RunSpec
from slackwater.bench.showing import write_result
from slackwater.drivers.spark.java import ensure_java
from slackwater.errors import ConfigurationError, SlackwaterError

if TYPE_CHECKING:
    from slackwater.bench.model import BenchResult, RunResult

BASELINE = "spark-fair"
OURS = "klink"
_TITLES = {BASELINE: "1 of 2: Spark alone", OURS: "2 of 2: the same queries with Slackwater"}


@dataclass(frozen=True)
class DemoPlan:
    """How long each half takes. Two halves of about two minutes, or of about one."""

    rate: int = 10_000
    window_s: float = 10.0
    seconds: float = 40.0
    warmup_min_s: float = 20.0
    warmup_max_s: float = 30.0
    drain_s: float = 10.0

    @classmethod
    def fast(cls) -> DemoPlan:
        return cls(seconds=20.0, warmup_min_s=10.0, warmup_max_s=10.0, drain_s=5.0)


def run_demo(*, fast: bool, queries: int, out: Path | None, serve: bool = False, times: DemoPlan | None = None) -> None:
    if not 1 <= queries <= 64:
        raise ConfigurationError(f"--queries {queries}: from 1 to 64 make a demo.")
    console = Console()
    java = ensure_java()
    times = times or (DemoPlan.fast() if fast else DemoPlan())
    folder = out or Path("out/demo")
    folder.mkdir(parents=True, exist_ok=True)
    console.print(
        f"{queries} streaming queries count ad views per campaign (YSB, {times.rate} events/s each, "
        f"{times.window_s:g} s windows) on local Spark with 2 cores; Java {java.version} from {java.origin}.\n"
        f"First Spark alone, as soon as possible and with a FAIR pool a query; then with one line more: "
        f"[bold]slackwater.attach(spark)[/bold]. About {'two' if fast else 'four'} minutes.",
        highlight=False,
    )
    result = _run(_plan(times, queries, serve=serve), console)
    file = folder / "result.json"
    write_result(result, file)
    _print_comparison(result, console)
    _print_report_place(file, folder, console)
    if result.failures:
        raise SlackwaterError("; ".join(f"{f.policy}: {f.error}" for f in result.failures))


def _plan(times: DemoPlan, queries: int, *, serve: bool) -> BenchPlan:
    settings = replace(
        RunSettings(),
        warmup_min_s=times.warmup_min_s,
        warmup_max_s=times.warmup_max_s,
        drain_s=times.drain_s,
        start_wait_s=1.0,
        live=True,
    )
    run = RunSpec(
        workload="ysb",
        policy="",
        seed=0,
        queries=queries,
        rate=times.rate,
        window_s=times.window_s,
        delay_s=1.0,
        seconds=times.seconds,
        phases="spread",
        payload="columns",
        settings=settings,
        serve=serve,
    )
    return BenchPlan(run=run, policies=(BASELINE, OURS), seeds=(0,))


def _run(plan: BenchPlan, console: Console) -> BenchResult:
    if not console.is_terminal:
        return run_bench(plan, _Lines(console))
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        return run_bench(plan, _LiveTable(live))


@dataclass
class _Lines(Listener):
    """For a log: a line per phase, and every few seconds how it goes."""

    console: Console
    _last: tuple[str, str] = ("", "")

    def state(self, spec: RunSpec, state: dict[str, Any]) -> None:
        if state.get("state") == "serving":
            self.console.print(_page_place(state), highlight=False, soft_wrap=True)
            return
        phase = (spec.policy, str(state.get("state", "")))
        if phase != self._last:
            self._last = phase
            self.console.print(f"{_TITLES[spec.policy]}: {phase[1]}", highlight=False)

    def finished(self, run: RunResult) -> None:
        self.console.print(f"{_TITLES[run.policy]}: {_sentence(run)}", highlight=False)


@dataclass
class _LiveTable(Listener):
    """A table of the queries that fills while they run."""

    live: Live
    _queries: list[dict[str, Any]] = field(default_factory=list)
    _policy: str = ""
    _done: list[str] = field(default_factory=list)

    def state(self, spec: RunSpec, state: dict[str, Any]) -> None:
        if spec.policy != self._policy:
            self._policy, self._queries = spec.policy, []
        if state.get("state") == "serving":
            self._done.append(_page_place(state))
        self._queries = state.get("queries", self._queries)
        place = next((f" {state[a]:g} of {state[b]:g}" for a, b in _PLACES if a in state and b in state), "")
        heading = Text(f"{_TITLES[spec.policy]}: {state.get('state', '')}{place}", style="bold")
        self.live.update(Group(*map(Text, self._done), heading, _query_table(self._queries)))

    def finished(self, run: RunResult) -> None:
        self._done.append(f"{_TITLES[run.policy]}: {_sentence(run)}")
        self.live.update(Group(*map(Text, self._done)))


_PLACES = (("s", "of_s"), ("done", "of"))


def _page_place(state: dict[str, Any]) -> str:
    return (
        f"Live page: {state['url']} while this half runs. What changes something asks for the token in "
        f"{state['token_file']}."
    )


def _query_table(queries: list[dict[str, Any]]) -> Table:
    table = Table("query", "state")
    for heading in ("slack s", "watermark lag s", "last latency s", "batches"):
        table.add_column(heading, justify="right")
    for query in queries:
        table.add_row(
            Text(str(query.get("name", ""))),
            Text(str(query.get("state", ""))),
            _figure(query.get("slack_s"), "+.1f"),
            _figure(query.get("watermark_lag_s"), ".1f"),
            _figure(query.get("latency_s"), ".1f"),
            _figure(query.get("batches"), "d"),
        )
    return table


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _sentence(run: RunResult) -> str:
    windows = run.windows
    return (
        f"{windows.emitted} of {windows.expected} windows out, {windows.wrong} wrong, "
        f"mean latency {_figure(run.latency_s.mean, '.1f')} s, p99 {_figure(run.latency_s.p99, '.1f')} s, "
        f"{run.cpu_cores:.2f} cores"
    )


def _print_comparison(result: BenchResult, console: Console) -> None:
    runs = {run.policy: run for run in result.runs}
    if BASELINE not in runs or OURS not in runs:
        return
    spark, ours = runs[BASELINE], runs[OURS]
    table = Table("", "Spark alone", "Slackwater", "ratio", title="From a window's end to its result")
    for column in table.columns[1:]:
        column.justify = "right"
    rows: list[tuple[str, float | None, float | None, str]] = [
        ("mean latency, s", spark.latency_s.mean, ours.latency_s.mean, ".2f"),
        ("p50, s", spark.latency_s.p50, ours.latency_s.p50, ".2f"),
        ("p99, s", spark.latency_s.p99, ours.latency_s.p99, ".2f"),
        ("CPU, cores", spark.cpu_cores, ours.cpu_cores, ".2f"),
        ("batches", spark.batches, ours.batches, "d"),
    ]
    for label, before, after, form in rows:
        ratio = f"{after / before:.2f}" if before and after is not None else "-"
        table.add_row(label, _figure(before, form), _figure(after, form), ratio)
    for label, get in (("windows out / due", _out), ("windows wrong", _wrong)):
        table.add_row(label, get(spark), get(ours), "")
    console.print(table)
    mean_before, mean_after = spark.latency_s.mean, ours.latency_s.mean
    if mean_before and mean_after:
        console.print(
            f"[bold]With Slackwater results leave after {mean_after:.1f} s instead of {mean_before:.1f} s on "
            f"average ({mean_before / mean_after:.1f} times sooner), on {ours.cpu_cores:.2f} instead of "
            f"{spark.cpu_cores:.2f} cores.[/bold]",
            highlight=False,
        )


def _out(run: RunResult) -> str:
    return f"{run.windows.emitted}/{run.windows.expected}"


def _wrong(run: RunResult) -> str:
    return str(run.windows.wrong)


def _print_report_place(file: Path, folder: Path, console: Console) -> None:
    try:
        from slackwater.bench.report import write_report  # noqa: PLC0415 - matplotlib is an extra

        page = write_report([file], folder).page
    except ConfigurationError as error:
        console.print(f"figures: {file} (no pictures: {error})", highlight=False, markup=False)
        return
    console.print(f"report: {page}   figures: {file}", highlight=False)
