"""Puts back what a journal says was changed: all of it after a crash, or what a schedule no longer names.

Everything is set to an absolute value, so doing it twice does no harm. What has ended is skipped; what cannot be put
back stays in the journal, and is told.
"""

from __future__ import annotations

import errno
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from slackwater.errors import EnforcementError
from slackwater.translators.hierarchy import find_hierarchy
from slackwater.translators.journal import Entries, Journal
from slackwater.translators.kernel import Linux
from slackwater.translators.processes import Proc

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from slackwater.translators.hierarchy import Hierarchy
    from slackwater.translators.identity import ProcessId, Task, ThreadId
    from slackwater.translators.journal import MadeGroup, MovedProcess, NicedProcess
    from slackwater.translators.kernel import Kernel
    from slackwater.translators.processes import Thread

_GROUP_EMPTIES_S = 2.0


@dataclass(frozen=True, slots=True)
class Restored:
    """How much was put back; `failures` say what could not be, and why."""

    threads: int = 0
    processes: int = 0
    groups: int = 0
    failures: tuple[str, ...] = ()

    def __add__(self, other: Restored) -> Restored:
        return Restored(
            self.threads + other.threads,
            self.processes + other.processes,
            self.groups + other.groups,
            self.failures + other.failures,
        )


def start(path: Path, proc: Proc | None = None, kernel: Kernel | None = None) -> Journal:
    """Open a journal to work with; what a run that was killed left changed is put back first."""
    journal = Journal.open(path, proc)
    try:
        failures = restore(journal, proc, kernel).failures
    except BaseException:
        journal.close()
        raise
    if failures:
        journal.close()
        raise EnforcementError(
            f"an earlier run left changes that could not be put back: {'; '.join(failures)}. They are in {path}. Start "
            "with the rights that the earlier run had, or put them back by hand and remove the file."
        )
    return journal


def restore(journal: Journal, proc: Proc | None = None, kernel: Kernel | None = None) -> Restored:
    """Put everything back that the journal names."""
    proc, kernel = proc or Proc(), kernel or Linux()
    return put_back_nice(journal, proc, kernel) + put_back_groups(journal, proc, kernel)


class FormerNice:
    """What a thread's nice would be without us.

    One that was born after its process, or an ancestor of it, was changed has inherited our value, and never had
    another of its own.
    """

    def __init__(self, entries: Entries, proc: Proc) -> None:
        self._proc = proc
        self._threads = {record.id: record.former for record in entries.niced_threads}
        self._processes = {record.id: record for record in entries.niced_processes}

    def of(self, process: ProcessId, thread: Thread) -> int:
        if thread.id in self._threads:
            return self._threads[thread.id]
        if self._processes:
            for above in (process, *self._proc.ancestors(process)):
                record = self._processes.get(above)
                if record is not None and _inherited(record, thread):
                    return record.former
        return thread.nice


def put_back_nice(journal: Journal, proc: Proc, kernel: Kernel, keep: Collection[ThreadId] = ()) -> Restored:
    """Give threads their former nice, but for those to keep; then forget them."""
    entries = journal.entries
    kept = frozenset(keep)
    busy = {thread.pid for thread in kept}
    released = [record.id for record in entries.niced_processes if record.pid not in busy]
    wanted = {record.id: record.former for record in entries.niced_threads if record.id not in kept}
    formers = FormerNice(entries, proc)
    for process in released:
        for member in (process, *proc.descendants(process)):
            for thread in proc.threads(member) if member.pid not in busy else ():
                former = formers.of(member, thread)
                if former != thread.nice:
                    wanted.setdefault(thread.id, former)
    done, failures, failed = 0, [], set()
    for id_, former in wanted.items():
        now = proc.thread(id_)
        if now is None or now.nice == former:
            continue
        try:
            kernel.set_nice(id_.tid, former)
            done += 1
        except ProcessLookupError:
            continue
        except OSError as error:
            failed.add(id_)
            failures.append(f"nice of thread {id_.tid} of process {id_.pid} back to {former}: {error.strerror}")
    unfinished = {id_.pid for id_ in failed}
    gone = set(released)

    def remaining(current: Entries) -> Entries:
        return msgspec.structs.replace(
            current,
            niced_threads=tuple(record for record in current.niced_threads if record.id in kept or record.id in failed),
            niced_processes=tuple(
                record for record in current.niced_processes if record.id not in gone or record.pid in unfinished
            ),
        )

    journal.update(remaining)
    return Restored(threads=done, failures=tuple(failures))


def put_back_groups(
    journal: Journal,
    proc: Proc,
    kernel: Kernel,
    keep: Collection[Task] = (),
    keep_groups: Collection[str] = (),
) -> Restored:
    """Move processes to the groups they came from, but for those to keep, and remove groups of ours."""
    entries = journal.entries
    if not (entries.moved_processes or entries.moved_threads or entries.groups):
        return Restored()
    back = _Back(entries, proc, kernel, find_hierarchy(proc))
    kept, kept_groups = frozenset(keep), frozenset(keep_groups)
    processes = [record for record in entries.moved_processes if record.id not in kept]
    threads = [record for record in entries.moved_threads if record.id not in kept]
    unmoved: set[object] = set()
    for record in processes:
        for member in back.with_unknown_children(record):
            if not back.move(member, record.former):
                unmoved.add(record.id)
    for single in threads:
        now = proc.thread(single.id)
        if now is not None and not back.move_thread(single.id, single.former):
            unmoved.add(single.id)
    groups = [group for group in entries.groups if group.folder not in kept_groups]
    # The deepest first: a group with groups in it cannot be removed.
    left = {group.folder for group in sorted(groups, key=lambda group: -len(group.folder)) if not back.remove(group)}

    def remaining(current: Entries) -> Entries:
        return msgspec.structs.replace(
            current,
            moved_processes=tuple(
                record for record in current.moved_processes if record.id in kept or record.id in unmoved
            ),
            moved_threads=tuple(
                record for record in current.moved_threads if record.id in kept or record.id in unmoved
            ),
            groups=tuple(group for group in current.groups if group.folder in kept_groups or group.folder in left),
        )

    journal.update(remaining)
    return Restored(processes=back.moved, groups=len(groups) - len(left), failures=tuple(back.failures))


def _inherited(record: NicedProcess, thread: Thread) -> bool:
    return thread.id.started_ticks >= record.since_ticks and thread.nice in record.given


class _Back:
    """Moves processes home, one by one."""

    def __init__(self, entries: Entries, proc: Proc, kernel: Kernel, hierarchy: Hierarchy) -> None:
        self.moved = 0
        self.failures: list[str] = []
        self._proc = proc
        self._kernel = kernel
        self._hierarchy = hierarchy
        self._formers = {record.id: record.former for record in entries.moved_processes}
        self._ours = {group.folder for group in entries.groups}

    def with_unknown_children(self, record: MovedProcess) -> Iterable[ProcessId]:
        """A process, and those that it forked since and that followed it into a group of ours unnoticed."""
        if not self._proc.alive(record.id):
            return
        yield record.id
        for child in self._proc.descendants(record.id):
            if child not in self._formers and str(self._folder(child.pid)) in self._ours:
                yield child

    def move(self, process: ProcessId, former: str) -> bool:
        if not self._proc.alive(process) or self._folder(process.pid) == Path(former):
            return True
        return self._write(f"process {process.pid}", process.pid, former, "cgroup.procs")

    def move_thread(self, thread: ThreadId, former: str) -> bool:
        if self._hierarchy.group_of(self._proc, thread.pid, thread.tid) == Path(former):
            return True
        return self._write(f"thread {thread.tid} of process {thread.pid}", thread.tid, former, "tasks")

    def remove(self, group: MadeGroup) -> bool:
        folder = Path(group.folder)
        deadline = time.monotonic() + _GROUP_EMPTIES_S
        while True:
            self._empty(folder, group.home)
            try:
                self._kernel.remove_group(folder)
            except FileNotFoundError:
                return True
            except OSError as error:
                # Members that are just ending leave a moment later.
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    self.failures.append(f"group {folder} could not be removed: {error.strerror}")
                    return False
                time.sleep(0.02)
            else:
                return True

    def _empty(self, folder: Path, home: str) -> None:
        try:
            members = [int(pid) for pid in (folder / "cgroup.procs").read_text("utf-8").split()]
        except OSError:
            return
        for pid in members:
            process = self._proc.process(pid)
            if process is not None:
                above = (self._formers[one] for one in self._proc.ancestors(process) if one in self._formers)
                self.move(process, self._formers.get(process) or next(above, home))

    def _folder(self, pid: int) -> Path | None:
        try:
            return self._hierarchy.group_of(self._proc, pid)
        except EnforcementError:
            return None

    def _write(self, who: str, number: int, former: str, file: str) -> bool:
        """Into its former group; into the nearest one above that takes it, where that is gone by now."""
        folder = Path(former)
        why = "the group is gone"
        while folder.is_relative_to(self._hierarchy.mount):
            try:
                self._kernel.write(folder / file, f"{number}\n")
            except ProcessLookupError:
                return True
            except FileNotFoundError:
                pass
            except OSError as error:
                why = error.strerror or str(error)
                if error.errno not in (errno.EBUSY, errno.ENODEV, errno.EOPNOTSUPP):
                    break
            else:
                self.moved += 1
                return True
            folder = folder.parent
        self.failures.append(f"{who} back to {former}: {why}")
        return False
