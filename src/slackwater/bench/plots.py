"""The pictures of `slackwater bench report`. Imports matplotlib, so import this module only to draw.

Figures are made without pyplot, so no backend is chosen and no global state is touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from slackwater.bench.results import OURS, SPARK_PREFIX, figure_of, grouped, short_headline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from slackwater.bench.results import PolicyRow, Setting, Spread

# Blue against orange and grey holds for all common kinds of colour blindness; in a family, lightness tells.
_SLACKWATER = ("#006d77", "#3a9bc1", "#1d4e89", "#62bfb0", "#8fb8de")
_SPARK = ("#d9730d", "#5f6468", "#f2b263", "#a0a6aa", "#8c5a2b")
_INK = "#1b2a2f"
_SOFT = "#5b6b70"
_GRID = "#e3e8ea"
_SWEEP = "#b4babd"
_LABEL_CHARS_MAX = 30
_LOG_FROM_RATIO = 15
"""An axis whose values span more than this is logarithmic."""


def colours(policies: Iterable[str]) -> dict[str, str]:
    """One colour a policy for a whole report; klink and spark-tuned have the strongest of their family."""
    chosen: dict[str, str] = {}
    names = sorted(policies, key=lambda name: (name not in {OURS, f"{SPARK_PREFIX}tuned"}, name))
    for is_spark, family in ((False, _SLACKWATER), (True, _SPARK)):
        members = [name for name in names if name.startswith(SPARK_PREFIX) == is_spark]
        chosen |= {name: family[position % len(family)] for position, name in enumerate(members)}
    return chosen


def save(figure: Figure, path: Path) -> None:
    undated = {"Date": None} if path.suffix == ".svg" else {}
    figure.savefig(path, dpi=180, facecolor="white", bbox_inches="tight", pad_inches=0.25, metadata=undated)


def summary(setting: Setting, colours: Mapping[str, str]) -> Figure:
    """Mean and p99 latency beside CPU: the picture of a README."""
    rows = setting.policies
    layout = ConstrainedLayoutEngine(wspace=0.05)
    figure = Figure(figsize=(11, 0.54 * len(rows) + 1.0), layout=layout)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1.75, 1))
    limit_s = _cut_s(rows)
    for position, row in enumerate(rows):
        colour = colours[row.policy]
        for value, shift, tint in ((row.mean_s, -0.2, colour), (row.p99_s, 0.2, _pale(colour))):
            _bar(left, position + shift, 0.36, value, tint, unit=" s", limit=limit_s)
        _bar(right, position, 0.5, row.cpu_cores, colour)
    cut = " (//: bar is cut)" if limit_s is not None else ""
    of_cores = f", of {grouped(setting.cores)}" if setting.cores else ""
    for axes, title in (
        (left, f"latency, s after window end{cut}"),
        (right, f"CPU cores in use{of_cores}"),
    ):
        _bar_axes(axes, rows)
        axes.set_title(title, loc="left", fontsize=10.5, color=_SOFT)
    if limit_s is not None:
        left.set_xlim(0, limit_s * 1.12)
    left.legend(
        handles=[Patch(color=_SOFT, label="mean"), Patch(color=_pale(_SOFT), label="p99")],
        **legend("lower right", bbox_to_anchor=(1, 0.99), ncols=2, columnspacing=1.2, borderaxespad=0),
    )
    titles(figure, setting.title, short_headline(setting), size=14)
    return figure


def latency_cdf(setting: Setting, colours: Mapping[str, str]) -> Figure | None:
    rows = [row for row in setting.policies if row.latencies_s]
    if not rows:
        return None
    figure, axes = single((8, 4.8))
    for row in rows:
        latencies_s = np.asarray(row.latencies_s)
        share = np.arange(1, latencies_s.size + 1) / latencies_s.size
        axes.plot(
            np.concatenate((latencies_s[:1], latencies_s)),
            np.concatenate(([0.0], share)),
            drawstyle="steps-post",
            linewidth=2,
            color=colours[row.policy],
            linestyle=_line(row),
            label=f"{_name(row.policy)} ({len(row.latencies_s)} windows)",
        )
        marks = (0.5, 0.9, 0.99)
        axes.plot(
            np.quantile(latencies_s, marks, method="inverted_cdf"),
            marks,
            linestyle="none",
            marker=_marker(row),
            markersize=5.5,
            color=colours[row.policy],
            markeredgecolor="white",
            markeredgewidth=0.8,
            zorder=4,
        )
    scale(
        axes.xaxis,
        axes.set_xscale,
        [value for row in rows for value in (row.latencies_s[0], row.latencies_s[-1])],
    )
    axes.set_ylim(0, 1.02)
    axes.set_yticks((0, 0.25, 0.5, 0.75, 0.9, 0.99), ("0", "25 %", "p50", "75 %", "p90", "p99"))
    axes.set_xlabel("latency, s after the end of the window")
    axes.legend(**legend("lower right"))
    titles(figure, "Share of windows out", setting.title)
    return figure


def latency_by_queries(settings: Sequence[Setting], colours: Mapping[str, str]) -> Figure:
    """Settings that differ in the number of queries only."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    panels = figure.subplots(1, 2)
    ladder = sorted(settings, key=lambda setting: setting.queries)
    counts = [setting.queries for setting in ladder]
    by_policy: dict[str, list[tuple[int, PolicyRow]]] = {}
    for setting in ladder:
        for row in setting.policies:
            by_policy.setdefault(row.policy, []).append((setting.queries, row))
    names = sorted(by_policy, key=lambda name: (name.startswith(SPARK_PREFIX), name != OURS, name))
    drawn: list[float] = []
    for axes, percentile in zip(panels, ("mean", "p99"), strict=True):
        for name in names:
            sample = by_policy[name][0][1]
            pairs = [(queries, row.mean_s if percentile == "mean" else row.p99_s) for queries, row in by_policy[name]]
            known = [(queries, value) for queries, value in pairs if value is not None]
            drawn += [value.mean for _, value in known]
            axes.errorbar(
                [queries for queries, _ in known],
                [value.mean for _, value in known],
                yerr=_whiskers([value for _, value in known]),
                color=colours[name],
                linestyle=_line(sample),
                marker=_marker(sample),
                markersize=5.5,
                linewidth=2,
                elinewidth=1,
                capsize=3,
                label=_name(name),
            )
        _frame(axes)
        axes.grid(visible=True, color=_GRID, linewidth=0.8)
        axes.set_xticks(counts)
        axes.set_xlabel("queries")
        axes.set_title(f"{percentile} latency, s", loc="left", fontsize=10.5, color=_SOFT)
    for axes in panels:
        scale(axes.yaxis, axes.set_yscale, drawn)
    conditions = ladder[0].conditions
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend([handle[0] for handle in handles], labels, **legend("outside right center"))
    titles(figure, "Latency against the number of queries", f"{conditions.workload}: {conditions.text}")
    return figure


def cost(setting: Setting, colours: Mapping[str, str]) -> Figure | None:
    """CPU against lateness; the rows of a sweep are small grey points."""
    rows = [(row, row.mean_s, row.cpu_cores) for row in setting.policies if row.mean_s and row.cpu_cores]
    swept = [(row.mean_s.mean, row.cpu_cores.mean) for row in setting.sweep if row.mean_s and row.cpu_cores]
    if not rows:
        return None
    figure, axes = single((8, 4.8))
    if swept:
        axes.scatter(*zip(*swept, strict=True), s=22, color=_SWEEP, linewidths=0, zorder=2)
        names = ", ".join(sorted({row.sweep_of for row in setting.sweep if row.sweep_of}))
        dot = Line2D([], [], color=_SWEEP, marker="o", markersize=5, linestyle="none", label=f"sweep of {_name(names)}")
        axes.legend(handles=[dot], **legend("lower right", handlelength=1, handletextpad=0.4))
    for row, mean_s, cores in rows:
        axes.errorbar(
            mean_s.mean,
            cores.mean,
            xerr=_whiskers([mean_s]),
            yerr=_whiskers([cores]),
            color=colours[row.policy],
            marker=_marker(row),
            markersize=9,
            markeredgecolor="white",
            elinewidth=1,
            capsize=3,
            zorder=3,
        )
    ranges = [edge for _, mean_s, _ in rows for edge in (mean_s.low, mean_s.high)]
    scale(axes.xaxis, axes.set_xscale, ranges + [x for x, _ in swept])
    axes.set_xlabel("mean latency, s (left is sooner)")
    axes.set_ylabel("CPU cores in use (low is cheaper)")
    axes.set_ylim(0, max([cores.high for _, _, cores in rows] + [y for _, y in swept] + [setting.cores or 0]) * 1.1)
    axes.margins(x=0.12)
    if setting.cores:
        axes.axhline(setting.cores, color=_SOFT, linewidth=1, linestyle=(0, (2, 3)))
        axes.annotate(
            f"all {grouped(setting.cores)} cores",
            (1, setting.cores),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="right",
            fontsize=8.5,
            color=_SOFT,
        )
    titles(figure, "Cost against lateness", setting.title)
    labels = [(_tick(row), mean_s.mean, cores.mean) for row, mean_s, cores in rows]
    ends = [
        point
        for _, mean_s, cores in rows
        for share in (0, 0.25, 0.5, 0.75, 1)
        for point in (
            (mean_s.low + share * (mean_s.high - mean_s.low), cores.mean),
            (mean_s.mean, cores.low + share * (cores.high - cores.low)),
        )
    ]
    _label_points(figure, axes, labels, avoid=[*swept, *ends], top=setting.cores or axes.get_ylim()[1])
    return figure


def batches(setting: Setting, colours: Mapping[str, str]) -> Figure | None:
    rows = [row for row in setting.policies if row.batches_per_s]
    if not rows:
        return None
    figure, axes = single((8, 0.45 * len(rows) + 1.2))
    for position, row in enumerate(rows):
        _bar(axes, position, 0.55, row.batches_per_s, colours[row.policy])
    _bar_axes(axes, rows)
    axes.set_xlabel("micro-batches per second, all queries")
    titles(figure, "Micro-batches per second", setting.title)
    return figure


def single(size: tuple[float, float]) -> tuple[Figure, Any]:
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    _frame(axes)
    axes.grid(visible=True, color=_GRID, linewidth=0.8)
    return figure, axes


def _frame(axes: Any) -> None:
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_SOFT)
    axes.tick_params(colors=_INK, labelsize=9.5, length=0)
    axes.xaxis.label.set(color=_INK, fontsize=10)
    axes.yaxis.label.set(color=_INK, fontsize=10)


def titles(figure: Figure, title: str, subtitle: str, size: float = 13) -> None:
    """Above the figure's own area, by inches; saving takes them in."""
    height_in = figure.get_size_inches()[1]
    figure.text(0.005, 1 + 0.38 / height_in, _printable(title), fontsize=size, weight="bold", color=_INK, va="bottom")
    figure.text(0.005, 1 + 0.1 / height_in, _printable(subtitle), fontsize=10.5, color=_SOFT, va="bottom")


def legend(place: str, **more: Any) -> dict[str, Any]:
    return {"loc": place, "frameon": False, "fontsize": 9.5, "labelcolor": _INK, **more}


def _pale(colour: str) -> str:
    """Mixed with white, not transparent: the grid must not show through."""
    return str(to_hex([0.45 * part + 0.55 for part in to_rgb(colour)]))


def _line(row: PolicyRow) -> Any:
    return (0, (4, 1.5)) if row.is_spark else "-"


def _marker(row: PolicyRow) -> str:
    return "s" if row.is_spark else "o"


def _bar(
    axes: Any,
    position: float,
    height: float,
    value: Spread | None,
    colour: str,
    *,
    unit: str = "",
    limit: float | None = None,
) -> None:
    """A bar with its number; one that goes beyond the limit is cut, and shows that it is."""
    if value is None:
        axes.annotate("no figure", (0, position), xytext=(5, 0), textcoords="offset points", va="center", color=_SOFT)
        return
    is_cut = limit is not None and value.mean > limit
    end = min(value.mean, limit) if limit is not None else value.mean
    axes.barh(position, end, height, color=colour, linewidth=0)
    edge = end
    if is_cut:
        gap = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        axes.text(end * 0.93, position, "//", color=_SOFT, fontsize=9, ha="center", va="center", bbox=gap)
    elif value.high > value.low:
        edge = max(value.high, end)
        axes.errorbar(value.mean, position, xerr=_whiskers([value]), color=_INK, elinewidth=1, capsize=2.5)
    axes.annotate(
        f"{figure_of(value.mean)}{unit}",
        (edge, position),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        fontsize=9.5,
        color=_INK,
    )


def _bar_axes(axes: Any, rows: Sequence[PolicyRow]) -> None:
    _frame(axes)
    axes.spines["bottom"].set_visible(False)
    axes.grid(visible=False)
    axes.grid(visible=True, axis="x", color=_GRID, linewidth=0.8)
    axes.set_yticks(range(len(rows)), [_tick(row) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=(1, 2, 5, 10)))
    axes.margins(x=0.14)


def _cut_s(rows: Sequence[PolicyRow]) -> float | None:
    """Where to cut bars so that a backlog of an unsteady policy does not flatten all others."""
    steady = [row.p99_s.high for row in rows if row.p99_s and row.is_steady]
    greatest = max((row.p99_s.mean for row in rows if row.p99_s), default=0)
    return max(steady) * 1.3 if steady and greatest > max(steady) * 2.5 else None


def scale(axis: Any, set_scale: Any, values: Sequence[float]) -> None:
    """Logarithmic with plain numbers when the values are far apart."""
    if values and min(values) > 0 and max(values) / min(values) > _LOG_FROM_RATIO:
        set_scale("log")
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _whiskers(values: Sequence[Spread]) -> Any:
    """Least and greatest run, in the form errorbar takes; None when there was one run each."""
    if all(value.low == value.high for value in values):
        return None
    return [[value.mean - value.low for value in values], [value.high - value.mean for value in values]]


def _label_points(
    figure: Figure,
    axes: Any,
    points: Sequence[tuple[str, float, float]],
    avoid: Sequence[tuple[float, float]],
    top: float,
) -> None:
    """Write each name beside its point, at the first place where it covers no other mark and no name."""
    figure.draw_without_rendering()
    marks = axes.transData.transform(avoid)
    top_px = axes.transData.transform((points[0][1], top))[1]
    inside = axes.get_window_extent()
    taken: list[Any] = []
    sides = ((1, 0, "left"), (-1, 0, "right"), (0, 1, "center"), (0, -1, "center"))
    places = [
        (dx * away, dy * away, side)
        for away in (9, 16, 26)
        for dx, dy, side in (
            *sides,
            (0.8, 0.9, "left"),
            (0.8, -0.9, "left"),
            (-0.8, 0.9, "right"),
            (-0.8, -0.9, "right"),
        )
    ]
    for label, x, y in points:
        for dx, dy, side in places:
            text = axes.annotate(
                label,
                (x, y),
                xytext=(dx, dy),
                textcoords="offset points",
                ha=side,
                va="center" if dy == 0 else "bottom" if dy > 0 else "top",
                fontsize=9.5,
                color=_INK,
            )
            text.set_in_layout(False)
            box = text.get_window_extent()
            free = not any(box.overlaps(other) for other in taken) and not any(
                box.expanded(1.02, 1.2).contains(*mark) for mark in marks
            )
            if free and box.x0 > inside.x0 and box.x1 < inside.x1 and inside.y0 < box.y0 and box.y1 < top_px:
                break
            text.remove()
        else:
            text = axes.annotate(label, (x, y), xytext=(9, 0), textcoords="offset points", va="center", fontsize=9.5)
            box = text.get_window_extent()
        taken.append(box)


def _tick(row: PolicyRow) -> str:
    return _name(row.policy) if row.is_steady else f"{_name(row.policy)}\n(not steady)"


def _name(policy: str) -> str:
    fits = len(policy) <= _LABEL_CHARS_MAX
    return _printable(policy if fits else f"{policy[: _LABEL_CHARS_MAX - 1]}…")


def _printable(text: str) -> str:
    """Any name can be drawn: no control characters, which SVG forbids, and `$` does not start a formula."""
    kept = (char if char.isprintable() or char == "\N{NO-BREAK SPACE}" else "?" for char in text)
    return "".join(kept).replace("$", r"\$")
