"""Running the documentation's blocks: those of a page share their names, as they do for a reader."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.pages import blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tools.pages import Block

ROOT = Path(__file__).parents[1]


def runnable(page: Path) -> list[Block]:
    """Blocks of a page to run one after the other; what readers save as files is for the quickstart's tests."""
    return [
        block
        for block in blocks(ROOT, page)
        if block.language == "python" and block.reason is None and not block.file and not block.replaces
    ]


def needs_spark(page: Path) -> bool:
    return any("spark" in block.given for block in runnable(page))


def run_blocks(
    chosen: Iterable[Block], given: Mapping[str, Any], before: Callable[[Block], None] = lambda _: None
) -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": "documentation"}
    for block in chosen:
        before(block)
        scope |= {name: given[name] for name in block.given if name not in scope}
        code = "\n" * (block.line - 1) + block.code  # so that an error names the page's own line
        exec(compile(code, block.page, "exec"), scope)  # noqa: S102 - our own pages
    return scope
