"""Pictures of experiments. Imports matplotlib, so import this module only to draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slackwater.sim.experiment import Experiment

    Rows = list[dict[str, Any]]

# Blues for ours, warm colours and greys for the others, as in the benchmark's report.
_COLOURS = {
    "klink": "#006d77",
    "klink-no-mm": "#3a9bc1",
    "multi-class": "#006d77",
    "default": "#d9730d",
    "fcfs": "#5f6468",
    "round-robin": "#f2b263",
    "hr": "#8c5a2b",
    "sbox": "#a0a6aa",
    "chain": "#1d4e89",
}
_TRIGGER_COLOURS = {"ours": "#006d77", "deltat": "#d9730d", "deltaev": "#5f6468"}
_WORDS = {
    "events_per_s": "throughput, events/s",
    "mean_s": "mean latency, s",
    "max_s": "greatest latency, s",
    "queued": "events queued, mean",
}
_INK, _SOFT, _GRID = "#1b2a2f", "#5b6b70", "#e3e8ea"


def draw(experiment: Experiment, path: Path) -> None:
    """The picture for an experiment, by what its rows have."""
    rows = experiment.rows
    if not rows:
        raise ConfigurationError(f"{experiment.experiment} has no rows to draw.")
    figure = _kind(rows)(rows)
    figure.suptitle(experiment.experiment, x=0.01, ha="left", fontsize=13, color=_INK)
    undated = {"Date": None} if path.suffix == ".svg" else {}
    figure.savefig(path, dpi=160, facecolor="white", bbox_inches="tight", metadata=undated)


def _kind(rows: Rows) -> Callable[[Rows], Figure]:
    kinds: tuple[tuple[set[str], Callable[[Rows], Figure]], ...] = (
        ({"memory_gb_over_time"}, _over_time),
        ({"cdf_s"}, _latencies),
        ({"class"}, _classes),
        ({"curve"}, _staleness),
        ({"load", "phases"}, _region),
        ({"queries", "policy"}, _by_queries),
        (set(), _bars),
    )
    return next(kind for columns, kind in kinds if columns <= rows[0].keys())


def _latencies(rows: Rows) -> Figure:
    """Klink Fig. 6: mean, CDF at the most queries, throughput, memory."""
    rows = [row for row in rows if row["delays"] == rows[0]["delays"]]
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    mean, cdf, throughput, memory = figure.subplots(2, 2).flat
    _lines(mean, rows, "mean_s", "mean latency, s")
    _lines(throughput, rows, "operator_events_per_s", "events/s over all operators")
    _lines(memory, rows, "memory_gb", "mean memory, GB")
    most = max(row["queries"] for row in rows)
    for row in rows:
        if row["queries"] == most:
            points = sorted((seconds, float(share)) for share, seconds in row["cdf_s"].items())
            cdf.plot(*zip(*points, strict=True), color=_colour(row["policy"]), label=row["policy"], marker="o", ms=3)
    _style(cdf, f"latency, s, {most} queries", "share of windows out")
    mean.legend(frameon=False, fontsize=8)
    return figure


def _over_time(rows: Rows) -> Figure:
    """Klink Fig. 8 beside 9a."""
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    memory, cpu, mean, p90 = figure.subplots(2, 2).flat
    at = min({row["queries"] for row in rows}, key=lambda count: abs(count - 60))
    for row in rows:
        if row["queries"] == at:
            times = [row["over_time_s"] * place for place in range(len(row["memory_gb_over_time"]))]
            for axes, column in ((memory, "memory_gb_over_time"), (cpu, "cpu_pct_over_time")):
                axes.plot(times, row[column], color=_colour(row["policy"]), label=row["policy"])
    _style(memory, f"time, s, {at} queries", "memory, GB")
    _style(cpu, f"time, s, {at} queries", "CPU, %")
    _lines(mean, rows, "memory_gb", "mean memory, GB")
    _lines(p90, rows, "cpu_pct", "mean CPU, %")
    memory.legend(frameon=False, fontsize=8)
    return figure


def _by_queries(rows: Rows) -> Figure:
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    for axes, (column, words) in zip(figure.subplots(2, 2).flat, _WORDS.items(), strict=True):
        _lines(axes, rows, column, words)
    figure.axes[0].legend(frameon=False, fontsize=8)
    return figure


def _classes(rows: Rows) -> Figure:
    figure = Figure(figsize=(11, 4), layout="constrained")
    for axes, column in zip(figure.subplots(1, 3), ("events_per_s", "mean_s", "max_s"), strict=True):
        names = [f"{row['scenario']}, {row['class']}" for row in rows]
        labels = list(dict.fromkeys(names))
        policies = list(dict.fromkeys(row["policy"] for row in rows))
        for place, policy in enumerate(policies):
            chosen = [(n, row[column]) for n, row in zip(names, rows, strict=True) if row["policy"] == policy]
            spots = [labels.index(name) + 0.38 * (place - 0.5) for name, _ in chosen]
            axes.bar(spots, [value for _, value in chosen], 0.36, color=_colour(policy), label=policy)
        axes.set_xticks(range(len(labels)), labels, rotation=30, ha="right")
        _style(axes, "", _WORDS[column])
    figure.axes[1].legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def _region(rows: Rows) -> Figure:
    """How far klink's latency is below default's, point by point."""
    points: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        clumps = f", clumps {row['clump_s']:g} s" if row["clump_s"] else ""
        words = f"load {row['load']:g}, windows {row['window_s']:g} s{clumps}, memory × {row['memory']:g}"
        words += f", γ {row['collector']:g}, {row['held']}, {row['phases']}, {row['delays']}"
        points.setdefault(words, {})[row["policy"]] = row
    pairs = {words: found for words, found in points.items() if {"default", "klink"} <= found.keys()}
    figure = Figure(figsize=(9, 0.32 * len(pairs) + 1.5), layout="constrained")
    axes = figure.subplots()
    for place, (column, colour) in enumerate((("mean_s", _COLOURS["klink"]), ("p99_s", _COLOURS["klink-no-mm"]))):
        less = [100 * (1 - found["klink"][column] / found["default"][column]) for found in pairs.values()]
        spots = [spot + 0.36 * (place - 0.5) for spot in range(len(pairs))]
        axes.barh(spots, less, 0.34, color=colour, label=column.removesuffix("_s"))
    axes.set_yticks(range(len(pairs)), list(pairs), fontsize=7)
    axes.invert_yaxis()
    axes.legend(frameon=False, fontsize=8)
    _style(axes, "klink's latency below default's, %", "")
    return figure


def _staleness(rows: Rows) -> Figure:
    """Aion's Figure 9: the greatest staleness over the number of executions, for each shape of lateness."""
    curves = {row["shape"]: row["curve"] for row in reversed(rows) if row["curve"] and row["predicted"] == row["shape"]}
    figure = Figure(figsize=(10, 7), layout="constrained")
    for axes, (shape, curve) in zip(figure.subplots(2, 2).flat, sorted(curves.items()), strict=False):
        for name, values in curve.items():
            colour = _TRIGGER_COLOURS.get(name, _COLOURS["klink"])
            axes.plot(range(1, len(values) + 1), values, color=colour, label=name, marker="o", ms=2.5)
        axes.set_yscale("log")
        axes.set_title(shape, fontsize=10, color=_INK)
        _style(axes, "executions", "greatest staleness")
    figure.axes[0].legend(frameon=False, fontsize=8)
    return figure


def _bars(rows: Rows) -> Figure:
    """Anything else: its first number, by row."""
    numbers = [name for name, value in rows[0].items() if isinstance(value, float)]
    figure = Figure(figsize=(8, 0.3 * len(rows) + 1.5), layout="constrained")
    axes = figure.subplots()
    words = [" ".join(str(value) for value in row.values() if isinstance(value, str)) for row in rows]
    axes.barh(range(len(rows)), [row[numbers[0]] for row in rows], color=_COLOURS["klink"])
    axes.set_yticks(range(len(rows)), words, fontsize=7)
    _style(axes, numbers[0], "")
    return figure


def _lines(axes: Any, rows: Rows, column: str, label: str) -> None:
    for policy in dict.fromkeys(row["policy"] for row in rows):
        points = sorted((row["queries"], row[column]) for row in rows if row["policy"] == policy)
        axes.plot(*zip(*points, strict=True), color=_colour(policy), label=policy, marker="o", ms=3.5)
    _style(axes, "queries", label)


def _colour(policy: str) -> str:
    return _COLOURS.get(policy, "#62bfb0")


def _style(axes: Any, below: str, beside: str) -> None:
    axes.set_xlabel(below, color=_SOFT)
    axes.set_ylabel(beside, color=_SOFT)
    axes.grid(color=_GRID)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
