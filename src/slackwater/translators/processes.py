"""Processes and threads as /proc shows them, safe against numbers that are given out again and tasks that vanish.

/proc is read directly: psutil tells neither when a thread started nor its name and nice, takes a process's start from
the wall clock, and a JVM has hundreds of threads that are looked at every period.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slackwater.translators.identity import ProcessId, ThreadId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_ENDED = frozenset("ZXx")


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread as it is now. `name` is the kernel's, cut off after 15 bytes."""

    id: ThreadId
    name: str
    cpu_s: float
    nice: int


@dataclass(frozen=True, slots=True)
class _Stat:
    name: str
    state: str
    parent: int
    cpu_s: float
    nice: int
    started_ticks: int


class Proc:
    """What is running. Whatever ends while it is looked at is left out, without an error."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self.root = root

    def process(self, pid: int) -> ProcessId | None:
        """Who has this pid now; None where nobody has, or only an ended process that waits to be collected."""
        stat = self._stat(f"{pid}/stat")
        return None if stat is None else ProcessId(pid, stat.started_ticks)

    def alive(self, process: ProcessId) -> bool:
        """Whether it is still this process that has the pid."""
        return self.process(process.pid) == process

    def thread(self, thread: ThreadId) -> Thread | None:
        stat = self._stat(f"{thread.pid}/task/{thread.tid}/stat")
        if stat is None or stat.started_ticks != thread.started_ticks:
            return None
        return Thread(thread, stat.name, stat.cpu_s, stat.nice)

    def threads(self, process: ProcessId) -> list[Thread]:
        """Every thread of a process, the main one first; empty when the process is gone."""
        found = []
        for tid in self._numbers(f"{process.pid}/task"):
            stat = self._stat(f"{process.pid}/task/{tid}/stat")
            if stat is not None:
                found.append(Thread(ThreadId(process.pid, tid, stat.started_ticks), stat.name, stat.cpu_s, stat.nice))
        # Asked last: were the pid given to another meanwhile, its threads are not those that were asked for.
        return sorted(found, key=lambda thread: thread.id.tid != process.pid) if self.alive(process) else []

    def thread_numbers(self, process: ProcessId) -> list[int]:
        """The ids of its threads, and nothing else about them."""
        return self._numbers(f"{process.pid}/task")

    def cpu_s(self, process: ProcessId) -> float:
        """The CPU time of a process so far, ended threads included; 0 when it is gone."""
        stat = self._stat(f"{process.pid}/stat")
        return stat.cpu_s if stat is not None and stat.started_ticks == process.started_ticks else 0.0

    def parent(self, process: ProcessId) -> ProcessId | None:
        stat = self._stat(f"{process.pid}/stat")
        if stat is None or stat.started_ticks != process.started_ticks:
            return None
        parent = self.process(stat.parent)
        return parent if parent is not None and parent.started_ticks <= process.started_ticks else None

    def ancestors(self, process: ProcessId) -> Iterator[ProcessId]:
        """Parent, grandparent and so on."""
        above = self.parent(process)
        while above is not None:
            yield above
            above = self.parent(above)

    def descendants(self, process: ProcessId) -> list[ProcessId]:
        """Children, theirs and so on: of a Spark driver or executor the Python daemon and the workers that it forks.

        A process whose parent has ended belongs to init, or to a subreaper: the tree does not show whose it was.
        """
        children: dict[ProcessId, list[ProcessId]] = {}
        for child, parent in self.parents().items():
            if parent is not None:
                children.setdefault(parent, []).append(child)
        found: list[ProcessId] = []
        open_ends = [process]
        while open_ends:
            below = children.get(open_ends.pop(), [])
            found += below
            open_ends += below
        return sorted(found)

    def parents(self) -> dict[ProcessId, ProcessId | None]:
        """Every process with its parent; None for the first ones, and for those whose parent has ended."""
        stats = {pid: stat for pid in self._numbers(".") if (stat := self._stat(f"{pid}/stat")) is not None}
        found: dict[ProcessId, ProcessId | None] = {}
        for pid, stat in stats.items():
            above = stats.get(stat.parent)
            # One that started before its parent got another's number as its parent between two reads.
            known = above is not None and above.started_ticks <= stat.started_ticks
            parent = ProcessId(stat.parent, above.started_ticks) if above is not None and known else None
            found[ProcessId(pid, stat.started_ticks)] = parent
        return found

    def command_line(self, process: ProcessId) -> tuple[str, ...]:
        """Its arguments; empty for the kernel's own and for those that are gone."""
        content = self._read(f"{process.pid}/cmdline")
        if not content or not self.alive(process):
            return ()
        return tuple(content.removesuffix("\0").split("\0"))

    def find(self, wanted: Callable[[Sequence[str]], bool]) -> list[ProcessId]:
        """Processes whose command line satisfies a predicate (`mentions`, `runs_java_class`); never this one itself.

        Its own arguments name the application that is looked for, as likely as not.
        """
        found = []
        for pid in self._numbers("."):
            process = self.process(pid) if pid != os.getpid() else None
            arguments = self.command_line(process) if process is not None else ()
            if process is not None and arguments and wanted(arguments):
                found.append(process)
        return sorted(found)

    def groups(self, pid: int, tid: int | None = None) -> str | None:
        """The file that tells a process's or a thread's cgroups, as it is; None when it is gone."""
        return self._read(f"{pid}/cgroup" if tid is None else f"{pid}/task/{tid}/cgroup")

    def setting(self, name: str) -> str | None:
        """A setting of the kernel, such as "kernel/sched_autogroup_enabled"; None where there is none."""
        found = self._read(f"sys/{name}")
        return None if found is None else found.strip()

    def now_ticks(self) -> int:
        """Now, on the clock that start times are told by."""
        return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_PER_S)

    def _numbers(self, folder: str) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self.root / folder) if name.isdigit()]  # noqa: PTH208 - names only
        except OSError:
            return []

    def _stat(self, name: str) -> _Stat | None:
        content = self._read(name)
        if not content:
            return None
        # The name stands in brackets and may contain spaces and brackets itself.
        head, _, tail = content.rpartition(")")
        fields = tail.split()
        if len(fields) < 20 or fields[0] in _ENDED:
            return None
        return _Stat(
            name=head.partition("(")[2],
            state=fields[0],
            parent=int(fields[1]),
            cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_PER_S,
            nice=int(fields[16]),
            started_ticks=int(fields[19]),
        )

    def _read(self, name: str) -> str | None:
        try:
            with open(self.root / name, "rb") as file:  # noqa: PTH123 - called thousands of times a period
                return file.read().decode("utf-8", "replace")
        except OSError:
            return None


def mentions(text: str) -> Callable[[Sequence[str]], bool]:
    """A predicate for `Proc.find`: some argument contains a text, such as a Spark application's id."""
    return lambda arguments: any(text in argument for argument in arguments)


def runs_java_class(name: str) -> Callable[[Sequence[str]], bool]:
    """A predicate for `Proc.find`: a JVM with this main class, such as `org.apache.spark.deploy.SparkSubmit`."""
    return lambda arguments: Path(arguments[0]).name == "java" and name in arguments[1:]
