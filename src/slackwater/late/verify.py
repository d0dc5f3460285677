"""Read everything and compare it with what the footers say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slackwater.late.errors import DamagedFileError
from slackwater.late.footer import read_groups

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slackwater.late.files import Files
    from slackwater.late.index import DataFile, Index


@dataclass(slots=True)
class Verified:
    """problems: rows are lost, doubled or unreadable. notes: leftovers that do no harm."""

    files: int = 0
    rows: int = 0
    disk_bytes: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_all(files: Files, listed: Iterable[DataFile]) -> Verified:
    """Every row group of every file: its checksums, its rows, its size."""
    found = Verified()
    for file in listed:
        found.files += 1
        found.disk_bytes += file.size
        for group in file.groups:
            try:
                rows = sum(batch.num_rows for batch in read_groups(files, file, [group.position]))
            except DamagedFileError as error:
                found.problems.append(f"window {group.window}: {error}")
                continue
            found.rows += rows
            if rows != group.rows:
                found.problems.append(
                    f"{file.name}: window {group.window} has {rows} rows, its footer says {group.rows}"
                )
    return found


def doubles(index: Index, found: Verified) -> None:
    """Compacted files against the batches' own, which may still be there: the same rows must be counted once."""
    compacted = [file for file in index.files.values() if file.replaces is not None]
    for file in compacted:
        window, replaces = file.groups[0].window, file.replaces or {}
        left = _rows_by_batch(index, window, replaces)
        for batch, rows in sorted(left.items()):
            if rows > replaces[batch]:
                found.problems.append(
                    f"{file.name} replaces {replaces[batch]} rows of batch {batch}, but that batch has {rows} for "
                    f"window {window}: {rows - replaces[batch]} rows are hidden"
                )
        if left:
            found.notes.append(f"{file.name}: originals of {len(left)} batches are still there; they do not count")
        counted = index.compacted(window)
        if counted is None or counted.name == file.name:
            continue
        missing = replaces.keys() - (counted.replaces or {}).keys()
        if missing:
            batches = ", ".join(map(str, sorted(missing)))
            found.problems.append(f"{file.name} and {counted.name} overlap: batches {batches} are in the first alone")
        else:
            found.notes.append(f"{file.name}: {counted.name} has taken its place; it does not count")


def _rows_by_batch(index: Index, window: int, batches: dict[int, int]) -> dict[int, int]:
    rows: dict[int, int] = {}
    for file in index.files.values():
        if file.replaces is None and file.batch in batches:
            for group in file.groups:
                if group.window == window:
                    rows[file.batch] = rows.get(file.batch, 0) + group.rows
    return rows
