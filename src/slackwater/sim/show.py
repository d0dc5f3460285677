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
        _print(console, found.experiment, found.rows)
    _print(console, "claims", [vars(claim) for claim in found.claims])
    for line in found.assumptions:
        print(f"assumes: {line}")
    if json_file is not None:
        found.write(json_file)
        print(f"written: {json_file}")


def _print(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    """Rows may differ in what they know; a column for everything that any of them tells.

    A terminal too narrow for that gets a line for each instead; a log is as wide as it must be.
    """
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [columns, *([_cell(row.get(column, "")) for column in columns] for row in rows)]
    if not console.is_terminal:
        console = Console(width=max(console.width, _width(lines)))
    elif _width(lines) > console.width >= _width(turned := [list(cells) for cells in zip(*lines, strict=True)]):
        lines = [["", *(str(number) for number in range(1, len(rows) + 1))], *turned]
    table = Table(*lines[0], title=title)
    for cells in lines[1:]:
        table.add_row(*cells)
    console.print(table)


def _width(lines: list[list[str]]) -> int:
    """Of a table with these cells, its frame included."""
    return 1 + sum(3 + max(map(len, cells)) for cells in zip(*lines, strict=True))


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
