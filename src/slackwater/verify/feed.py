"""Rows as files of JSON lines that arrive one after the other, the rows that close all windows last."""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from slackwater.workloads.finite import Rows

# Spark takes files in the order of their times; these stand a second apart.
_FIRST_FILE_WALL_TS = 1_700_000_000


class Feed:
    """The files of all tables. A file appears whole: Spark lists folders while they are written to."""

    def __init__(self, folder: Path, rows: Rows, closing: Rows, files: int) -> None:
        self._folder = folder
        self._parts = {
            table: [*_parts(lines, files), _lines(closing.get(table, ()))]
            for table, lines in ((table, _lines(rows[table])) for table in rows)
        }
        self._arrived = 0
        (folder / "drafts").mkdir(parents=True)
        for table in self._parts:
            self.inbox(table).mkdir()

    @property
    def files(self) -> int:
        """Of each table, the closing one included."""
        return max(map(len, self._parts.values()))

    def inbox(self, table: str) -> Path:
        return self._folder / table

    def arrive(self, until: int | None = None) -> None:
        """Up to so many files of each table are there; all, if no number is given."""
        until = self.files if until is None else until
        for number in range(self._arrived, until):
            for table, parts in self._parts.items():
                draft = self._folder / "drafts" / f"{table}-{number}"
                draft.write_text("".join(parts[number]), "utf-8")
                os.utime(draft, (_FIRST_FILE_WALL_TS + number,) * 2)
                draft.rename(self.inbox(table) / f"{number:05d}.json")
        self._arrived = until


def _lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return [json.dumps(row) + "\n" for row in rows]


def _parts(lines: list[str], count: int) -> list[list[str]]:
    """In order, and of even size; the last ones are empty where there are few lines."""
    size = max(1, math.ceil(len(lines) / count))
    return [lines[start : start + size] for start in range(0, size * count, size)]
