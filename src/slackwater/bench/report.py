"""`slackwater bench report`: result files of `slackwater bench` as pictures and one web page."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from html import escape
from itertools import chain
from typing import TYPE_CHECKING, Any

from slackwater.bench.results import ABSENT, OURS, figure_of, grouped, headline, read_result, settings_of, shown
from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

    from slackwater.bench.results import BenchFile, PartRow, PolicyRow, Setting, Spread


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
    results = {path: read_result(path) for path in _without_doubles(files)}
    settings = settings_of(results.values())
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
        body += [_policy_table(setting.policies), *_part_tables(setting), _gallery(pictures)]
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


_PART_HEADS = (
    *("policy", "queries", "slowdown mean", "slowdown p99", "latency mean s", "latency p99 s"),
    "windows out / due / wrong",
)
_SLOWDOWN = """
<p class="note">Slowdown is a window's latency over the time from one result of its query to the next. Every query
counts the same, however many windows it has.</p>
"""


def _part_tables(setting: Setting) -> list[str]:
    """How the classes and the groups of a mix fared; nothing for any other workload."""
    tables = []
    for heading, rows in (("By class", setting.classes), ("By group", setting.groups)):
        if rows:
            heads = ("", *_PART_HEADS)
            tables.append(f"<h3>{heading}</h3>{_table(heads, [_part_row(row) for row in rows])}")
    return [*tables, _SLOWDOWN] if tables else []


def _part_row(row: PartRow) -> str:
    counts = (row.windows_emitted, row.windows_expected, row.windows_wrong)
    windows = " / ".join(ABSENT if count is None else str(count) for count in counts)
    bad = bool(row.windows_wrong) or (row.windows_emitted or 0) < (row.windows_expected or 0)
    figures = (row.slowdown_mean, row.slowdown_p99, row.mean_s, row.p99_s)
    opening = '<tr class="ours">' if row.policy == OURS else "<tr>"
    first = f"<td>{escape(row.name)}</td><td>{escape(row.policy)}</td><td>{row.queries}</td>"
    return f"{opening}{first}{''.join(map(_spread_cell, figures))}{_marked_cell(windows, bad=bad)}</tr>"


def _spread_cell(value: Spread | None) -> str:
    if value is None or value.low == value.high:
        return f"<td>{shown(value)}</td>"
    return f"<td>{shown(value)}<small>{figure_of(value.low)} to {figure_of(value.high)}</small></td>"


def _marked_cell(text: str, *, bad: bool) -> str:
    return f'<td class="bad">{text}</td>' if bad else f"<td>{text}</td>"


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
            **({} if result.mix is None else {f"group {group['name']}": group for group in result.mix.groups}),
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
