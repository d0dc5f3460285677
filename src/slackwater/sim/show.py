"""An experiment on the screen and in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from pathlib import Path

    from slackwater.sim.experiment import Experiment


def show(found: Experiment, json_file: Path | None) -> None:
    """Print rows, claims and assumptions; write them where a file is given."""
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
    """Rows may differ in what they know; a column for everything that any of them tells."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*(_cell(row.get(column, "")) for column in columns))
    return table


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
