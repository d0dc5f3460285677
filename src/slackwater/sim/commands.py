"""`slackwater sim NAME`: run an experiment, print its rows and claims, write them as JSON."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path  # noqa: TC003  # cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from slackwater.errors import unknown_name
from slackwater.provenance import commit
from slackwater.sim import estimator

if TYPE_CHECKING:
    from collections.abc import Callable

    from slackwater.sim.experiment import Experiment

EXPERIMENTS: dict[str, Callable[[int], Experiment]] = {estimator.NAME: estimator.run}


def sim(name: str, *, seed: int = 0, json_file: Annotated[Path | None, Parameter(name="--json")] = None) -> None:
    """Run an experiment in virtual time.

    Parameters
    ----------
    name
        Which: klink-estimator.
    seed
        The same seed and commit give the same figures.
    json_file
        File for rows and claims.
    """
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    found = replace(EXPERIMENTS[name](seed), commit=commit())
    console = Console()
    if found.rows:
        console.print(_table(found.experiment, found.rows))
    console.print(_table("claims", [vars(claim) for claim in found.claims]))
    for line in found.assumptions:
        print(f"assumes: {line}")
    if json_file is not None:
        found.write(json_file)
        print(f"written: {json_file}")


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(*rows[0], title=title)
    for row in rows:
        table.add_row(*(("yes" if v else "no") if isinstance(v, bool) else str(v) for v in row.values()))
    return table
