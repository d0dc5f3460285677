"""`slackwater bench report`: result files of `slackwater bench` as pictures and one web page."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from dataclasses import dataclass
from html import escape
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

OURS = "klink"
SPARK_PREFIX = "spark-"
ABSENT = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    expected: int | None = None
    emitted: int | None = None
    wrong: int | None = None


class SchedulerCost(msgspec.Struct, frozen=True, kw_only=True):
    decision_ms_p99: float | None = None
    overhead_pct: float | None = None


class BenchRun(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    latency_s: Quantiles
    seed: int | None = None
    propagation_s: Quantiles | None = None
    windows: Windows | None = None
    cpu_cores: float | None = None
    batches: float | None = None
    scheduler: SchedulerCost | None = None
    steady: bool | None = None
    seconds: float | None = None
    latencies_s: list[float] | None = None
    sweep_of: str | None = None
    chosen: bool | str | None = None
    """On the row that a sweep ends in: which of the swept policies it is."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    error: str
    seed: int | None = None


class BenchFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a report needs of a bench result; other keys are left alone."""

    workload: str
    queries: int
    rate: float
    window_s: float
    seconds: float
    runs: list[BenchRun]
    seed: int | None = None
    commit: str | None = None
    spark: Any = None
    machine: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    phases: str | None = None
    delay_s: float | None = None
    payload: str | None = None
    failures: list[Failure] = []
    complete: bool = True

    @property
    def conditions(self) -> Conditions:
        """Spark's cores, where the file names them, and else the machine's."""
        cores = self.settings.get("cores", self.machine.get("cores"))
        return Conditions(
            workload=self.workload,
            rate=self.rate,
            window_s=self.window_s,
            delay_s=self.delay_s,
            phases=self.phases,
            payload=self.payload,
            cores=cores if isinstance(cores, int | float) else None,
        )


@dataclass(frozen=True)
class Conditions:
    """What must be alike for runs with different numbers of queries to share a plot."""

    workload: str
    rate: float
    window_s: float
    delay_s: float | None
    phases: str | None
    payload: str | None
    cores: float | None

    @property
    def text(self) -> str:
        parts = [f"{TIMES} {grouped(self.rate)} events/s", f"{grouped(self.window_s)} s windows"]
        if self.phases:
            parts.append(f"{self.phases} phases")
        if self.payload and self.payload != "columns":
            parts.append(f"{self.payload} payload")
        if self.cores:
            parts.append(f"{grouped(self.cores)} cores")
        return f"queries {', '.join(parts)}"


@dataclass(frozen=True)
class Spread:
    """A figure over the runs of one policy: the mean of the runs, and the least and the greatest run."""

    mean: float
    low: float
    high: float

    @staticmethod
    def of(values: Iterable[float | None]) -> Spread | None:
        known = [value for value in values if value is not None]
        return Spread(sum(known) / len(known), min(known), max(known)) if known else None


@dataclass(frozen=True)
class PolicyRow:
    """All runs of one policy in one setting; windows are summed, all other figures are spreads."""

    policy: str
    runs: int
    steady_runs: int
    mean_s: Spread | None
    p50_s: Spread | None
    p90_s: Spread | None
    p99_s: Spread | None
    max_s: Spread | None
    propagation_mean_s: Spread | None
    cpu_cores: Spread | None
    batches_per_s: Spread | None
    windows_expected: int | None
    windows_emitted: int | None
    windows_wrong: int | None
    decision_ms_p99: Spread | None
    overhead_pct: Spread | None
    latencies_s: tuple[float, ...]
    sweep_of: str | None
    chosen: bool

    @property
    def is_spark(self) -> bool:
        return self.policy.startswith(SPARK_PREFIX)

    @property
    def is_steady(self) -> bool:
        return self.steady_runs == self.runs


@dataclass(frozen=True)
class Setting:
    """Runs that may be compared with each other: same conditions, same number of queries."""

    conditions: Conditions
    queries: int
    policies: tuple[PolicyRow, ...]
    sweep: tuple[PolicyRow, ...]

    @property
    def title(self) -> str:
        return f"{self.conditions.workload}: {self.queries} {self.conditions.text}"

    @property
    def cores(self) -> float | None:
        return self.conditions.cores


@dataclass(frozen=True)
class Comparison:
    """klink and the Spark policy with the least mean latency among those steady in every run."""

    ours: PolicyRow
    baseline: PolicyRow
    mean_ratio: float
    p99_ratio: float | None

    @property
    def sentence(self) -> str:
        figures = f"{times_lower(self.mean_ratio)} mean"
        if self.p99_ratio is not None:
            figures += f" and {times_lower(self.p99_ratio)} p99"
        baseline = f"{self.baseline.policy}, the best steady Spark baseline"
        return f"{self.ours.policy}: {figures} latency than {baseline}"


@dataclass(frozen=True)
class Picture:
    caption: str
    png: Path
    svg: Path


@dataclass(frozen=True)
class ReportPaths:
    page: Path
    summary: Path
    """The picture for a README: the summary of the first file's setting, as PNG."""
    pictures: tuple[Path, ...]


def write_report(files: list[Path], out: Path) -> ReportPaths:
    """Write `report.html` and its pictures (PNG and SVG) into `out`.

    Runs of the same setting are put together, whichever file they stand in. The setting of the first file
    is the headline, and its pictures have the plain names.
    """
    plots = _plots()
    results = {path: _read(path) for path in _without_doubles(files)}
    settings = _settings(results.values())
    try:
        out.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ConfigurationError(f"{out} is a file; --out needs a folder, which is made if missing.") from None

    colours = plots.colours({row.policy for setting in settings for row in setting.policies})
    sections = [
        (setting, _draw_setting(plots, setting, colours, out, suffix))
        for setting, suffix in zip(settings, _suffixes(settings), strict=True)
    ]
    ladder = [setting for setting in settings if setting.conditions == settings[0].conditions]
    across = _draw(
        out,
        "latency-by-queries",
        "Latency against the number of queries.",
        plots.latency_by_queries(ladder, colours) if len(ladder) > 1 else None,
        plots.save,
    )
    page = out / "report.html"
    page.write_text(_page(results, sections, across), encoding="utf-8")
    pictures = [*chain.from_iterable(drawn for _, drawn in sections), *across]
    return ReportPaths(
        page=page,
        summary=sections[0][1][0].png,
        pictures=tuple(path for picture in pictures for path in (picture.png, picture.svg)),
    )


def compare(setting: Setting) -> Comparison | None:
    """None when klink did not run, or when no Spark policy was steady in every run."""
    ours = next((row for row in setting.policies if row.policy == OURS), None)
    steady = [
        (row.mean_s.mean, row) for row in setting.policies if row.is_spark and row.is_steady and row.mean_s is not None
    ]
    if ours is None or not ours.mean_s or not ours.mean_s.mean or not steady:
        return None
    baseline_s, baseline = min(steady, key=lambda pair: pair[0])
    p99_ratio = baseline.p99_s.mean / ours.p99_s.mean if baseline.p99_s and ours.p99_s and ours.p99_s.mean else None
    return Comparison(ours, baseline, baseline_s / ours.mean_s.mean, p99_ratio)


def short_headline(setting: Setting) -> str:
    found = compare(setting)
    if found is not None:
        return found.sentence + ("" if found.ours.is_steady else f" ({OURS} was not steady)")
    if all(row.policy != OURS for row in setting.policies):
        return f"no run of {OURS} in these files: no ratio"
    return f"no Spark policy is marked steady in every run: no ratio for {OURS}"


def headline(setting: Setting) -> str:
    """The measured ratio, the figures behind it, and whatever speaks against them."""
    found = compare(setting)
    text = short_headline(setting)
    if found is not None:
        ours, baseline = found.ours, found.baseline
        text += f"; {_shown(ours.mean_s)} s against {_shown(baseline.mean_s)} s mean"
        if found.p99_ratio is not None:
            text += f", {_shown(ours.p99_s)} s against {_shown(baseline.p99_s)} s p99"
        if ours.cpu_cores and baseline.cpu_cores:
            text += f", on {_shown(ours.cpu_cores)} against {_shown(baseline.cpu_cores)} cores"
        for row in (ours, baseline):
            if row.windows_wrong:
                text += f". Beware: {row.policy} put out {row.windows_wrong} wrong windows"
            missing = (row.windows_expected or 0) - (row.windows_emitted or 0)
            if row.windows_emitted is not None and missing > 0:
                text += f". Beware: {missing} windows of {row.policy} were due and did not come out"
    return text + "."


def figure_of(value: float) -> str:
    """About three digits, as many as such a measurement carries."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def grouped(value: float) -> str:
    """10000 as `10 000`, with a space that does not break."""
    return f"{value:,.10g}".replace(",", "\N{NO-BREAK SPACE}")


def times_lower(ratio: float) -> str:
    lower = ratio >= 1
    factor = ratio if lower else 1 / ratio if ratio else float("inf")
    return f"{factor:.{1 if factor >= 1.5 else 2}f}{TIMES} {'lower' if lower else 'higher'}"


def _plots() -> ModuleType:
    try:
        from slackwater.bench import plots  # noqa: PLC0415  matplotlib is an optional extra
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("matplotlib"):
            raise
        raise ConfigurationError(
            "the report draws with matplotlib, which is not installed; run: pip install 'slackwater[report]'"
        ) from error
    return plots


def _without_doubles(files: Iterable[Path]) -> list[Path]:
    paths = list({path.resolve(): path for path in files}.values())
    if not paths:
        raise ConfigurationError("no result file was given; name at least one written by `slackwater bench`.")
    return paths


def _read(path: Path) -> BenchFile:
    advice = "Give files that `slackwater bench WORKLOAD --json FILE` wrote."
    try:
        found = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}. {advice}") from error
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{path} is not a bench result: it is not JSON ({error}). {advice}") from error
    if not isinstance(found, dict):
        raise ConfigurationError(
            f"{path} is not a bench result: found a JSON {type(found).__name__}, not an object. {advice}"
        )
    try:
        result = msgspec.convert(found, BenchFile)
    except msgspec.ValidationError as error:
        keys = ", ".join(sorted(found)[:12]) or "none"
        kind = "; this looks like the result of an experiment with claims" if "experiment" in found else ""
        raise ConfigurationError(
            f"{path} is not a bench result: {error}; found the keys: {keys}{kind}. {advice}"
        ) from error
    if not result.runs:
        raise ConfigurationError(f"{path} holds no runs, so there is nothing to report. {advice}")
    return result


def _settings(results: Iterable[BenchFile]) -> list[Setting]:
    """In the order of the files."""
    alike: dict[tuple[Conditions, int], list[BenchFile]] = defaultdict(list)
    for result in results:
        alike[result.conditions, result.queries].append(result)
    return [_setting(conditions, queries, group) for (conditions, queries), group in alike.items()]


def _setting(conditions: Conditions, queries: int, results: list[BenchFile]) -> Setting:
    alike: dict[tuple[str, str | None], list[tuple[BenchRun, float]]] = defaultdict(list)
    for result in results:
        for run in result.runs:
            alike[run.policy, run.sweep_of].append((run, run.seconds or result.seconds))
    chosen = {run.chosen for runs in alike.values() for run, _ in runs if isinstance(run.chosen, str)}
    rows = sorted(
        (_row(policy, sweep_of, runs, policy in chosen) for (policy, sweep_of), runs in alike.items()),
        key=lambda row: (row.is_spark, row.mean_s.mean if row.mean_s else float("inf"), row.policy),
    )
    return Setting(
        conditions=conditions,
        queries=queries,
        policies=tuple(row for row in rows if row.sweep_of is None),
        sweep=tuple(row for row in rows if row.sweep_of is not None),
    )


def _row(policy: str, sweep_of: str | None, timed: list[tuple[BenchRun, float]], is_named: bool) -> PolicyRow:
    runs = [run for run, _ in timed]
    propagation = [run.propagation_s for run in runs if run.propagation_s]
    windows = [run.windows for run in runs if run.windows]
    scheduler = [run.scheduler for run in runs if run.scheduler]
    return PolicyRow(
        policy=policy,
        runs=len(runs),
        steady_runs=sum(run.steady is True for run in runs),
        mean_s=Spread.of(run.latency_s.mean for run in runs),
        p50_s=Spread.of(run.latency_s.p50 for run in runs),
        p90_s=Spread.of(run.latency_s.p90 for run in runs),
        p99_s=Spread.of(run.latency_s.p99 for run in runs),
        max_s=Spread.of(run.latency_s.max for run in runs),
        propagation_mean_s=Spread.of(quantiles.mean for quantiles in propagation),
        cpu_cores=Spread.of(run.cpu_cores for run in runs),
        batches_per_s=Spread.of(
            run.batches / seconds for run, seconds in timed if run.batches is not None and seconds > 0
        ),
        windows_expected=_total(window.expected for window in windows),
        windows_emitted=_total(window.emitted for window in windows),
        windows_wrong=_total(window.wrong for window in windows),
        decision_ms_p99=Spread.of(cost.decision_ms_p99 for cost in scheduler),
        overhead_pct=Spread.of(cost.overhead_pct for cost in scheduler),
        latencies_s=tuple(sorted(chain.from_iterable(run.latencies_s or () for run in runs))),
        sweep_of=sweep_of,
        chosen=sweep_of is not None and (is_named or any(run.chosen is True for run in runs)),
    )


def _total(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _suffixes(settings: Sequence[Setting]) -> list[str]:
    suffixes = [""]
    for setting in settings[1:]:
        plain = f"-{setting.queries}q"
        doubles = sum(taken == plain or taken.startswith(f"{plain}-") for taken in suffixes)
        suffixes.append(f"{plain}-{doubles + 1}" if doubles else plain)
    return suffixes


def _draw_setting(
    plots: ModuleType, setting: Setting, colours: Mapping[str, str], out: Path, suffix: str
) -> list[Picture]:
    drawn = (
        ("summary", "Latency and CPU of each policy.", plots.summary(setting, colours)),
        (
            "latency-cdf",
            "Share of windows that were out within a time after their end, all seeds pooled.",
            plots.latency_cdf(setting, colours),
        ),
        ("cost", "CPU cores in use against mean latency.", plots.cost(setting, colours)),
        ("batches", "Micro-batches per second, over all queries.", plots.batches(setting, colours)),
    )
    return list(
        chain.from_iterable(
            _draw(out, f"{stem}{suffix}", caption, figure, plots.save) for stem, caption, figure in drawn
        )
    )


def _draw(out: Path, stem: str, caption: str, figure: Any, save: Callable[[Any, Path], None]) -> tuple[Picture, ...]:
    """Nothing when there is no figure: the files do not hold what it would show."""
    if figure is None:
        return ()
    picture = Picture(caption, png=out / f"{stem}.png", svg=out / f"{stem}.svg")
    save(figure, picture.png)
    save(figure, picture.svg)
    return (picture,)


_STYLE = """
:root { color-scheme: light dark; --ink: #1b2a2f; --soft: #5b6b70; --line: #d8dfe1; --page: #fff;
  --band: #eef4f4; --accent: #006d77; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eced; --soft: #9fb0b4; --line: #35454a;
  --page: #12191b; --band: #1d2a2d; --accent: #6cc5c0; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 76rem; overflow-wrap: anywhere;
  color: var(--ink); background: var(--page); font: 16px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.1rem; color: var(--accent); margin: 0; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p { max-width: 48rem; }
.headline { font-size: 1.35rem; line-height: 1.35; margin: .3rem 0 1rem; }
.note, figcaption, small { color: var(--soft); font-size: .85rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; text-align: right; vertical-align: top; border-bottom: 1px solid var(--line);
  overflow-wrap: normal; }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--page); }
.facts th, .facts td { text-align: left; overflow-wrap: anywhere; }
td small { display: block; font-size: .75rem; font-weight: 400; white-space: nowrap; }
tr.ours td { background: var(--band); font-weight: 600; }
.bad { color: var(--bad); font-weight: 600; }
.pictures { display: grid; gap: 1rem; margin: 1rem 0;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; }
figure:first-child { grid-column: 1 / -1; }
figure img { width: 100%; height: auto; display: block; border-radius: 6px; background: #fff; }
"""

_POLICY_HEADS = (
    "policy",
    "runs",
    "mean s",
    "p50 s",
    "p90 s",
    "p99 s",
    "max s",
    "propagation mean s",
    "cores",
    "batches/s",
    "windows out / due / wrong",
    "steady",
    "decision p99 ms",
    "overhead %",
)

_LATENCY = """
<h2>How latency is measured</h2>
<p>The latency of a window is the wall time at which the batch that put it out was committed, minus the end of
the window. Propagation is the commit time minus the time at which the event that closes the window could be
read. The harness measures both, in the same way for every policy; no scheduler reports on itself. A window
that was due and did not come out counts with the time it had been overdue at the end of the run. A run is
steady when its batch times had settled before the measurement began.</p>
<p class="note">With several runs of a policy (one a seed) a figure is the mean of the runs, with the least
and the greatest run below it; windows are summed. Curves pool the windows of all runs.</p>
"""


def _page(
    results: Mapping[Path, BenchFile],
    sections: Sequence[tuple[Setting, Sequence[Picture]]],
    across: Sequence[Picture],
) -> str:
    first = sections[0][0]
    body = [f'<h1>slackwater bench</h1><p class="headline">{escape(headline(first))}</p>']
    for setting, pictures in sections:
        body.append(f"<h2>{escape(setting.title)}</h2>")
        if setting is not first:
            body.append(f"<p>{escape(headline(setting))}</p>")
        body += [_policy_table(setting.policies), _gallery(pictures)]
        if setting.sweep:
            swept = ", ".join(sorted({row.sweep_of for row in setting.sweep if row.sweep_of}))
            body += [f"<h3>Sweep of {escape(swept)}</h3>", _policy_table(setting.sweep)]
    if across:
        body += ["<h2>With more queries</h2>", _gallery(across)]
    body += [_failures(results), _LATENCY, "<h2>Settings and machine</h2>", _facts(results)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(f'slackwater bench: {first.title}')}</title>\n<style>{_STYLE}</style></head>\n"
        f"<body>\n{chr(10).join(body)}\n</body></html>\n"
    )


def _policy_table(rows: Sequence[PolicyRow]) -> str:
    return _table(_POLICY_HEADS, [_policy_row(row) for row in rows])


def _policy_row(row: PolicyRow) -> str:
    name = escape(row.policy) + (" <small>chosen</small>" if row.chosen else "")
    steady = "yes" if row.is_steady else "no" if not row.steady_runs else f"{row.steady_runs} of {row.runs}"
    counts = (row.windows_emitted, row.windows_expected, row.windows_wrong)
    windows = " / ".join(ABSENT if count is None else str(count) for count in counts)
    lacking = (row.windows_emitted or 0) < (row.windows_expected or 0)
    cells = [
        f"<td>{name}</td><td>{row.runs}</td>",
        *(_spread_cell(value) for value in (row.mean_s, row.p50_s, row.p90_s, row.p99_s, row.max_s)),
        *(_spread_cell(value) for value in (row.propagation_mean_s, row.cpu_cores, row.batches_per_s)),
        _marked_cell(windows, bad=bool(row.windows_wrong) or lacking),
        _marked_cell(steady, bad=not row.is_steady),
        *(_spread_cell(value) for value in (row.decision_ms_p99, row.overhead_pct)),
    ]
    opening = '<tr class="ours">' if row.policy == OURS else "<tr>"
    return f"{opening}{''.join(cells)}</tr>"


def _spread_cell(value: Spread | None) -> str:
    if value is None or value.low == value.high:
        return f"<td>{_shown(value)}</td>"
    return f"<td>{_shown(value)}<small>{figure_of(value.low)} to {figure_of(value.high)}</small></td>"


def _marked_cell(text: str, *, bad: bool) -> str:
    return f'<td class="bad">{text}</td>' if bad else f"<td>{text}</td>"


def _shown(value: Spread | None) -> str:
    return ABSENT if value is None else figure_of(value.mean)


def _table(heads: Iterable[str], rows: Iterable[str], kind: str = "figures") -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    opening = f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead>'
    return f"{opening}<tbody>{''.join(rows)}</tbody></table></div>"


def _gallery(pictures: Iterable[Picture]) -> str:
    """As images, not as inline SVG: the ids inside matplotlib's files would clash on one page."""
    figures = []
    for picture in pictures:
        data = base64.b64encode(picture.svg.read_bytes()).decode("ascii")
        image = f'<img alt="{escape(picture.caption)}" src="data:image/svg+xml;base64,{data}">'
        figures.append(f"<figure>{image}<figcaption>{escape(picture.caption)}</figcaption></figure>")
    return f'<div class="pictures">{"".join(figures)}</div>'


def _failures(results: Mapping[Path, BenchFile]) -> str:
    items = [
        f"<li>{escape(f'{path.name}: {failure.policy}, seed {failure.seed}: {failure.error}')}</li>"
        for path, result in results.items()
        for failure in result.failures
    ]
    items += [
        f"<li>{escape(path.name)}: the benchmark was stopped before its last run</li>"
        for path, result in results.items()
        if not result.complete
    ]
    return f'<h2 class="bad">Runs without a result</h2><ul>{"".join(items)}</ul>' if items else ""


def _facts(results: Mapping[Path, BenchFile]) -> str:
    tables = []
    for path, result in results.items():
        facts: dict[str, Any] = {
            "file": path.name,
            "workload": result.workload,
            "queries": result.queries,
            "events/s of a query": grouped(result.rate),
            "window": f"{grouped(result.window_s)} s",
            "watermark delay": None if result.delay_s is None else f"{grouped(result.delay_s)} s",
            "phases": result.phases,
            "payload": result.payload,
            "measured": f"{grouped(result.seconds)} s a run",
            "seed": result.seed,
            "commit": result.commit,
            "Spark": result.spark,
            **{f"machine: {key}": value for key, value in result.machine.items()},
            **{f"run: {key}": value for key, value in result.settings.items()},
        }
        rows = [
            f"<tr><td>{escape(name)}</td><td>{escape(_plain(value))}</td></tr>"
            for name, value in facts.items()
            if value is not None
        ]
        tables.append(_table(("setting", "value"), rows, kind="facts"))
    return "".join(tables)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
