"""Where Flink's subtasks run: the process of a TaskManager, and which of its threads belong to which subtask.

A subtask has a thread of its own that is called as it is: `Calc[4] (1/2)#0`, for the first of two in the first attempt.
Threads that help it end with that name: `Legacy Source Thread - …`, `Source Data Fetcher for …`, `OutputFlusher for …`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slackwater.middleware.hotspot import KERNEL_NAME_BYTES
from slackwater.middleware.sockets import listens

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slackwater.middleware.drivers.flink_rest import TaskManager
    from slackwater.middleware.host import Host
    from slackwater.middleware.hotspot import ThreadNames
    from slackwater.translators.identity import ProcessId, ThreadId

_PORT = re.compile(r"@[^/]*:(\d+)/")
_PACKAGE = "org.apache.flink."
_MAIN_CLASS = re.compile(r"org\.apache\.flink\.[\w.]*(TaskManagerRunner|TaskExecutorRunner)")


@dataclass(frozen=True, slots=True)
class Task:
    """A subtask that runs: `key` is its unit's, `name` its thread's."""

    key: str
    name: str
    started_ms: int


@dataclass(frozen=True, slots=True)
class Assigned:
    """Threads by the unit that they work for, and what could not be told."""

    threads: dict[str, frozenset[ThreadId]]
    notes: tuple[str, ...] = ()


def task_name(vertex: str, subtask: int, parallelism: int, attempt: int) -> str:
    return f"{vertex} ({subtask + 1}/{parallelism})#{attempt}"


def find_process(manager: TaskManager, host: Host) -> ProcessId | None:
    """The process of a TaskManager; None where it runs on another host, or cannot be seen.

    Two ports, and the main class: a process here that has by chance the same port as one elsewhere is not taken for it.
    Each process is looked up in its own network namespace, so that containers are found.
    """
    said = _PORT.search(manager.path)
    ports = [int(said[1])] if said else []
    ports += [manager.data_port] if manager.data_port > 0 else []
    if not ports:
        return None
    for process, arguments in host.commands(_PACKAGE):
        if _is_task_manager(arguments) and all(listens(host.proc, process, port) for port in ports):
            return process
    return None


def assign(tasks: Iterable[Task], names: ThreadNames) -> Assigned:
    """The threads of each task of one process."""
    by_name: dict[str, list[Task]] = {}
    for task in tasks:
        by_name.setdefault(task.name, []).append(task)
    return _by_whole_names(by_name, names) if names.whole else _by_cut_names(by_name, names)


def _by_whole_names(by_name: dict[str, list[Task]], names: ThreadNames) -> Assigned:
    own: dict[str, list[ThreadId]] = {name: [] for name in by_name}
    helping: dict[str, list[ThreadId]] = {name: [] for name in by_name}
    for thread, name in names.names.items():
        owner = _owner(name, by_name)
        if owner is not None:
            (own if owner == name else helping)[owner].append(thread)
    found: dict[str, frozenset[ThreadId]] = {}
    notes = []
    for name, tasks in by_name.items():
        if len(own[name]) != len(tasks):
            # One of them is just starting or ending; the next period will tell.
            continue
        if len(tasks) > 1:
            notes.append(
                f"{len(tasks)} subtasks are called {name!r}; their threads are told apart by the order in which they "
                "started. Give the jobs' tables or operators different names to be sure."
            )
        found |= _in_order(tasks, own[name], helping[name])
    return Assigned(found, tuple(notes))


def _in_order(
    tasks: Sequence[Task], own: Sequence[ThreadId], helping: Sequence[ThreadId]
) -> dict[str, frozenset[ThreadId]]:
    ordered = sorted(tasks, key=lambda task: (task.started_ms, task.key))
    mains = sorted(own, key=lambda thread: (thread.started_ticks, thread.tid))
    starts = [main.started_ticks for main in mains]
    threads = [{main} for main in mains]
    for thread in helping:
        # Helpers start after the thread that they help.
        threads[max(0, bisect_right(starts, thread.started_ticks) - 1)].add(thread)
    return {task.key: frozenset(group) for task, group in zip(ordered, threads, strict=True)}


def _by_cut_names(by_name: dict[str, list[Task]], names: ThreadNames) -> Assigned:
    """By what the kernel knows of a name, where that leaves no doubt."""
    threads: dict[str, list[ThreadId]] = {}
    for thread, name in names.names.items():
        threads.setdefault(name, []).append(thread)
    tasks: dict[str, list[Task]] = {}
    for name, called in by_name.items():
        tasks.setdefault(_cut(name), []).extend(called)
    found = {
        called[0].key: frozenset(threads[name])
        for name, called in tasks.items()
        if len(called) == 1 and len(threads.get(name, ())) == 1
    }
    missing = sum(map(len, tasks.values())) - len(found)
    lack = f" The threads of {missing} subtasks cannot be told apart without it." if missing else ""
    return Assigned(found, (names.note + lack,))


def _cut(name: str) -> str:
    return name.encode()[:KERNEL_NAME_BYTES].decode("utf-8", "replace")


def _owner(name: str, known: dict[str, list[Task]]) -> str | None:
    """The longest name of a task that a thread's name is, or ends with after a space."""
    place = 0
    while place >= 0:
        if name[place:] in known:
            return name[place:]
        place = name.find(" ", place) + 1 or -1
    return None


def _is_task_manager(arguments: Sequence[str]) -> bool:
    return any(_MAIN_CLASS.fullmatch(argument) for argument in arguments)
