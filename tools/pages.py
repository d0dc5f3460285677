"""The code blocks of the documentation, and what their marks say about running them.

A block is marked by a comment right before it:

    <!-- not run: why -->            nobody runs it, for this reason
    <!-- given: spark, events -->    it runs with these names, which the test provides
    <!-- file: name.py -->           the reader saves it under this name
    <!-- in place of: name.py: text -->   it replaces the line of that file which contains the text
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK = re.compile(r"(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<language>\w*)[^\n]*\n(?P<code>.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    code: str
    mark: str

    @property
    def reason(self) -> str | None:
        """Why it is not run; None where it is."""
        return self._after("not run: ")

    @property
    def given(self) -> tuple[str, ...]:
        names = self._after("given: ")
        return tuple(name.strip() for name in names.split(",")) if names else ()

    @property
    def file(self) -> str | None:
        return self._after("file: ")

    @property
    def replaces(self) -> tuple[str, str] | None:
        """File, and the text of the line that this block takes the place of."""
        found = self._after("in place of: ")
        if found is None:
            return None
        file, _, text = found.partition(": ")
        return file, text

    def _after(self, prefix: str) -> str | None:
        return self.mark.removeprefix(prefix) if self.mark.startswith(prefix) else None


def blocks(root: Path, page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(
            page.relative_to(root).as_posix(),
            text.count("\n", 0, found.start("language")) + 1,
            found["language"],
            found["code"],
            found["mark"] or "",
        )
        for found in _BLOCK.finditer(text)
    ]


def pages(root: Path) -> list[Path]:
    """Every page that users read."""
    return [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
