"""The pictures of `slackwater bench late`. Imports matplotlib, so import this module only to draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.bench.plots import colours, legend, save, scale, single, titles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.figure import Figure

    from slackwater.bench.late_model import LateResult, LateRun


def draw(result: LateResult, folder: Path) -> list[Path]:
    """Heap and latency over past windows, a PNG each."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, figure in (
        ("late-heap", _over_past(result, "What lives in the JVM's heap, MB", lambda run: run.live_heap_mb.median)),
        ("late-latency", _over_past(result, "From a window's end to its first result, s", lambda r: r.latency_s.mean)),
    ):
        files.append(folder / f"{name}.png")
        save(figure, files[-1])
    return files


def _over_past(result: LateResult, what: str, value: Callable[[LateRun], float | None]) -> Figure:
    """A line for each contender; a cross where it died."""
    figure, axes = single((7.2, 3.8))
    chosen = colours({run.contender for run in result.runs})
    drawn: list[float] = []
    for name in dict.fromkeys(run.contender for run in result.runs):
        runs = sorted((run for run in result.runs if run.contender == name), key=lambda run: run.past_windows)
        known = [(run, found) for run in runs if (found := value(run)) is not None]
        drawn += [found for _, found in known]
        spark = name.startswith("spark")
        axes.plot(
            [run.past_windows for run, _ in known],
            [found for _, found in known],
            color=chosen[name],
            linestyle=(0, (4, 1.5)) if spark else "-",
            marker="s" if spark else "o",
            markersize=5.5,
            linewidth=2,
            label=name,
        )
        dead = [run for run in runs if run.outcome == "died"]
        top = max(drawn, default=1.0)
        heights = [found if (found := value(run)) is not None else top for run in dead]
        axes.plot([run.past_windows for run in dead], heights, "x", color=chosen[name], markersize=10, mew=2.5)
    axes.set_xticks(sorted({run.past_windows for run in result.runs}))
    axes.set_xlabel("past windows that take late rows (×: died)")
    scale(axes.yaxis, axes.set_yscale, drawn)
    figure.legend(**legend("outside right center"))
    conditions = f"{result.workload}, {result.kind}: {result.rate} rows/s of {result.payload_bytes} bytes, "
    titles(figure, what, conditions + f"{result.window_s:g} s windows, heap {result.settings.heap}")
    return figure
