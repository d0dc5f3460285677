"""`slackwater top`: the table, again and again, until q is pressed."""

from __future__ import annotations

import select
import sys
import termios
import tty
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from slackwater.control.plain import plain
from slackwater.control.tables import shown, urgent_first
from slackwater.errors import ControlError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from rich.console import RenderableType

    from slackwater.control.client import Client
    from slackwater.endpoint.overview import Overview

_LINES_BESIDE = 7  # the heading, the table's own lines, the last one
_LEAVE = frozenset("qQ\x03\x04\x1b")


def watch(connect: Callable[[], Client], every_s: float, console: Console) -> None:
    """Show the application until somebody leaves. One that does not answer is looked for again.

    `connect` finds it; its first failure is the caller's, later ones are shown.
    """
    client = connect()
    told: Overview | None = None
    trouble = ""
    try:
        with _Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                try:
                    told, trouble = client.status(), ""
                except ControlError as error:
                    trouble = str(error)
                live.update(_screen(told, trouble, console.height), refresh=True)
                if keys.pressed(every_s) in _LEAVE:
                    return
                if trouble:
                    try:
                        client.close()
                        client = connect()
                    except ControlError as error:
                        trouble = str(error)
    finally:
        client.close()


def _screen(told: Overview | None, trouble: str, height: int) -> RenderableType:
    parts: list[RenderableType] = []
    if trouble:
        parts.append(Text(plain(trouble), style="bold red"))
    if told is not None:
        parts.append(shown(told, urgent_first(told)[: max(1, height - _LINES_BESIDE - len(parts))]))
    parts.append(Text("q leaves", style="dim"))
    return Group(*parts)


class _Keys:
    """Single keys of the terminal, where there is one; as it was afterwards."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def pressed(self, timeout_s: float) -> str:
        """A key, or nothing when the time is up."""
        if self._before is None:
            select.select([], [], [], timeout_s)
            return ""
        ready, _, _ = select.select([sys.stdin], [], [], timeout_s)
        # A terminal that has gone is readable for ever and gives nothing.
        return (sys.stdin.read(1) or "q") if ready else ""

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)
