"""A mix's results on the screen: how each group and each class fared under each policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from slackwater.bench.model import BenchResult, Distribution, GroupResult, RunResult

_ABSENT = "-"


def print_mix(result: BenchResult, console: Console) -> None:
    runs = [run for run in result.runs if run.sweep_of is None]
    seeds = len(result.seeds) > 1
    console.print(_table("by class", runs, [run.per_class for run in runs], seeds=seeds))
    console.print(_table("by group", runs, [run.per_group for run in runs], seeds=seeds))
    for claim in result.claims:
        held = "holds" if claim.holds else "does not hold"
        console.print(f"{claim.claim}: {claim.measured:g} ({claim.target}: {held})", highlight=False)


def _table(title: str, runs: Sequence[RunResult], divided: Sequence[Sequence[GroupResult]], *, seeds: bool) -> Table:
    """One row for each group and policy, with all queries of a policy first."""
    table = Table(
        title=title,
        box=box.SIMPLE_HEAD,
        caption="slowdown: latency over the query's time from result to result; every query counts the same",
    )
    for heading in ("", "policy", *(["seed"] if seeds else [])):
        table.add_column(heading, no_wrap=True)
    for heading in (
        "queries",
        "slowdown\nmean",
        "slowdown\np99",
        "latency\nmean",
        "latency\np99",
        "out\n/due",
        "wrong",
    ):
        table.add_column(heading, justify="right")
    names = dict.fromkeys(part.name for parts in divided for part in parts)
    for run in runs:
        row = [*(_figures(run.slowdown)), *(_figures(run.latency_s))]
        out = f"{run.windows.emitted}/{run.windows.expected}"
        table.add_row("all", *_who(run, seeds=seeds), str(len(run.per_query)), *row, out, str(run.windows.wrong))
    for name in names:
        for run, parts in zip(runs, divided, strict=True):
            for part in (part for part in parts if part.name == name):
                row = [str(part.queries), *_figures(part.slowdown), *_figures(part.latency_s)]
                out = f"{part.windows.emitted}/{part.windows.expected}"
                table.add_row(name, *_who(run, seeds=seeds), *row, out, str(part.windows.wrong))
    return table


def _who(run: RunResult, *, seeds: bool) -> list[str]:
    return [run.policy, str(run.seed)] if seeds else [run.policy]


def _figures(found: Distribution | None) -> list[str]:
    return [
        _ABSENT if value is None else f"{value:.2f}"
        for value in ((None, None) if found is None else (found.mean, found.p99))
    ]
