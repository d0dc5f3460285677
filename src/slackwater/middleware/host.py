"""The processes of this host, looked at now and then for all drivers together.

A host has hundreds, and looking at all of them is most of what a period costs. What a known process forks inherits its
nice and its group, so a worker that is found a few seconds later has missed nothing.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

from slackwater.translators.processes import Proc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slackwater.translators.identity import ProcessId

FRESH_S = 3.0
"""How old the list of processes may be when a driver reads."""

_YOUNG_TICKS = 6000


class Host:
    """Who runs, who started whom. Several drivers' threads may use one."""

    def __init__(self, proc: Proc | None = None) -> None:
        self.proc = proc or Proc()
        self._lock = threading.Lock()
        self._looked_s = -math.inf
        self._parents: dict[ProcessId, ProcessId | None] = {}
        self._children: dict[ProcessId, list[ProcessId]] = {}
        self._commands: dict[ProcessId, tuple[str, ...]] = {}
        self._young: set[ProcessId] = set()
        self._by_pid: dict[int, ProcessId] = {}
        self._now_ticks = 0
        self.refresh()

    def refresh(self, age_s: float = 0.0) -> None:
        """Look again, unless somebody did within the last `age_s`."""
        with self._lock:
            if time.monotonic() - self._looked_s < age_s:
                return
            self._now_ticks = self.proc.now_ticks()
            parents = self.proc.parents()
            children: dict[ProcessId, list[ProcessId]] = {}
            for process, parent in parents.items():
                if parent is not None:
                    children.setdefault(parent, []).append(process)
            # Whole tables are put in place, so who reads meanwhile sees the old one or the new one.
            self._commands = {
                process: known
                for process, known in self._commands.copy().items()
                if process in parents and process not in self._young
            }
            self._young = set()
            self._by_pid = {process.pid: process for process in parents}
            self._parents, self._children = parents, children
            self._looked_s = time.monotonic()

    def process(self, pid: int) -> ProcessId | None:
        return self._by_pid.get(pid) or self.proc.process(pid)

    def alive(self, process: ProcessId) -> bool:
        return self.proc.alive(process)

    def ancestors(self, process: ProcessId) -> Iterator[ProcessId]:
        """Parent, grandparent and so on."""
        above = self._parents.get(process)
        while above is not None:
            yield above
            above = self._parents.get(above)

    def descendants(self, process: ProcessId) -> list[ProcessId]:
        """Children, theirs and so on."""
        found = list(self._children.get(process, ()))
        for child in found:
            found += self._children.get(child, ())
        return found

    def command_line(self, process: ProcessId) -> tuple[str, ...]:
        """Its arguments; empty for the kernel's own and for those that are gone."""
        known = self._commands.get(process)
        if known is None:
            known = self._commands[process] = self.proc.command_line(process)
            # A start script becomes the program that it starts (exec), and is the same process: looked at again.
            if self._now_ticks - process.started_ticks <= _YOUNG_TICKS:
                self._young.add(process)
        return known

    def commands(self, part: str) -> Iterator[tuple[ProcessId, tuple[str, ...]]]:
        """Processes with an argument that contains a text."""
        for process in self._parents:
            arguments = self.command_line(process)
            if any(part in argument for argument in arguments):
                yield process, arguments
