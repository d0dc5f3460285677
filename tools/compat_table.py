"""The table of supported versions in the README, from the rows that `make compat` wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

BEGIN: Final = "<!-- compat: begin (written by make compat) -->"
END: Final = "<!-- compat: end -->"


def table(rows: Iterable[dict[str, Any]]) -> str:
    """A line for each version of PySpark, a column for each Java, and what cannot be done there."""
    found = list(rows)
    javas = sorted({row["java"] for row in found})
    lines = [
        "| PySpark | " + " | ".join(f"Java {java}" for java in javas) + " | cannot be done there |",
        "|---" * (len(javas) + 2) + "|",
    ]
    for line in sorted({row["line"] for row in found}, reverse=True):
        of_line = {row["java"]: row for row in found if row["line"] == line}
        cells = [_cell(of_line.get(java)) for java in javas]
        lines.append(f"| {_spark(of_line.values())} | {' | '.join(cells)} | {_missing(list(of_line.values()))} |")
    return "\n".join(lines)


def _spark(rows: Iterable[dict[str, Any]]) -> str:
    return ", ".join(sorted({row["spark"] for row in rows}))


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "not run"
    if row["error"]:
        return str(row["error"])
    failed = f", {len(row['failed'])} fail" if row["failed"] else ""
    return f"{row['passed']} tests pass{failed}"


def _missing(rows: Sequence[dict[str, Any]]) -> str:
    """Why tests were skipped, and what the scheduler noted, each once."""
    reasons = {text.partition(": ")[2].removeprefix("Skipped: ") for row in rows for text in row["skipped"]}
    return "; ".join(sorted(reasons | {note for row in rows for note in row["notes"]})) or "nothing"


def write_table(page: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Put the table between the markers of a page."""
    text = page.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the table: {BEGIN} and {END} on lines of their own.")
    page.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{after}", "utf-8")
