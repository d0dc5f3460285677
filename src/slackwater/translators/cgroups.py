"""Groups of processes that share the CPU by weight, and may be held to a quota: cgroups, version 1 and 2.

Groups of ours are made under one named parent, and only there. What a process was in before is in the journal before
it is moved.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from slackwater.errors import ConfigurationError, EnforcementError
from slackwater.translators.hierarchy import Hierarchy, find_hierarchy
from slackwater.translators.identity import ProcessId, ThreadId
from slackwater.translators.journal import MadeGroup, MovedProcess, MovedThread
from slackwater.translators.kernel import Linux
from slackwater.translators.nice import raise_failures
from slackwater.translators.normalise import V1_SHARES, V2_WEIGHT, shares
from slackwater.translators.processes import Proc
from slackwater.translators.restore import put_back_groups
from slackwater.translators.schedule import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slackwater.translators.identity import Task
    from slackwater.translators.journal import Entries, Journal
    from slackwater.translators.kernel import Kernel
    from slackwater.translators.schedule import Entity, GroupingSchedule, Locate

PARENT: Final = "slackwater"
PERIOD_US: Final = 100_000


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group as the kernel shall have it."""

    weight: int
    quota_cores: float | None
    target: Target


class CgroupTranslator:
    """Enacts a `GroupingSchedule` with weights and quotas of cgroups.

    parent: where groups are made, under the root of the hierarchy; "a.slice/b.service/slackwater" for a subtree that
    was delegated. Members that are no longer in the schedule go back to where they came from.
    """

    def __init__(
        self,
        journal: Journal,
        locate: Locate,
        *,
        parent: str = PARENT,
        proc: Proc | None = None,
        kernel: Kernel | None = None,
    ) -> None:
        self._journal = journal
        self._locate = locate
        self._proc = proc or Proc()
        self._kernel = kernel or Linux()
        self._groups = CpuGroups(journal, self._proc, self._kernel, parent)

    def check(self) -> list[str]:
        return self._groups.check()

    def apply(self, schedule: GroupingSchedule) -> None:
        self._groups.enforce(self._groups.plan(schedule, self._locate))

    def restore(self) -> None:
        raise_failures(put_back_groups(self._journal, self._proc, self._kernel).failures)


class CpuGroups:
    """Makes groups, sets them, and moves processes in and out."""

    def __init__(self, journal: Journal, proc: Proc, kernel: Kernel, parent: str = PARENT) -> None:
        self._journal = journal
        self._proc = proc
        self._kernel = kernel
        self._parent_name = _relative(parent)
        self._hierarchy: Hierarchy | None = None

    @property
    def hierarchy(self) -> Hierarchy:
        if self._hierarchy is None:
            self._hierarchy = find_hierarchy(self._proc)
        return self._hierarchy

    @property
    def parent(self) -> Path:
        return self.hierarchy.mount / self._parent_name

    def check(self) -> list[str]:
        """Why groups could not be used; empty when they can be."""
        try:
            hierarchy, parent = self.hierarchy, self.parent
        except EnforcementError as error:
            return [str(error)]
        holder = parent if parent.is_dir() else parent.parent
        reasons = []
        if not holder.is_dir():
            return [f"the cgroup {holder} does not exist. Make it, or name another parent for the groups."]
        if not os.access(holder, os.W_OK):
            reasons.append(
                f"no groups can be made in {holder}: it is not writable for user {os.geteuid()}, or mounted read-only. "
                f"Run as root, have {parent} made and given to this user (systemd: Delegate=yes), or, in a container, "
                "mount /sys/fs/cgroup writable."
            )
        if hierarchy.version == 2:
            reasons += self._check_delegation(parent, holder)
        return reasons

    def plan(self, schedule: GroupingSchedule, locate: Locate) -> dict[str, GroupPlan]:
        """Weights and members of the groups; refused where two groups want the same process."""
        span = V1_SHARES if self.hierarchy.version == 1 else V2_WEIGHT
        weights = shares({name: group.priority for name, group in schedule.groups.items()}, span)
        owner: dict[Task, tuple[str, Entity]] = {}
        planned = {}
        for name, group in schedule.groups.items():
            processes: set[ProcessId] = set()
            threads: set[ThreadId] = set()
            for entity in sorted(group.members):
                target = locate(entity)
                for task in target.tasks:
                    other, by = owner.setdefault(task, (name, entity))
                    if other != name:
                        raise EnforcementError(
                            f"process {task.pid} runs {by!r} of the group {other!r} and {entity!r} of the group "
                            f"{name!r}; it can be in one. Put both into the same group."
                        )
                processes |= target.processes
                threads |= target.threads
            target = Target(frozenset(processes), frozenset(threads))
            planned[name] = GroupPlan(weights[name], group.quota_cores, target)
        return planned

    def enforce(self, plan: Mapping[str, GroupPlan]) -> None:
        """Have exactly these groups under the parent, with these members; everybody else back where they came from."""
        if reasons := self.check():
            raise EnforcementError(" ".join(reasons))
        if self.hierarchy.version == 2 and any(group.target.threads for group in plan.values()):
            raise EnforcementError(
                "single threads cannot be put into groups of cgroup version 2 apart from their process. Name "
                "processes, or use the nice translator for threads."
            )
        folders = {name: self.parent / folder_name(name) for name in plan}
        self._record(plan, folders)
        self._make(folders)
        self._weigh_parent(len(plan))
        for name, group in plan.items():
            self._set(folders[name], group)
        self._fill(plan, folders)
        keep = [task for group in plan.values() for task in group.target.tasks]
        keep_groups = {str(folder) for folder in folders.values()} | ({str(self.parent)} if plan else set())
        done = put_back_groups(self._journal, self._proc, self._kernel, self._with_threads_apart(keep), keep_groups)
        raise_failures(done.failures)

    def _check_delegation(self, parent: Path, holder: Path) -> list[str]:
        if "cpu" not in _words(holder / "cgroup.controllers"):
            found = " ".join(_words(holder / "cgroup.controllers")) or "none"
            reason = (
                f"the cpu controller is not available in {holder} (there: {found}). Enable it from the root down: "
                "echo +cpu > …/cgroup.subtree_control; systemd: Delegate=cpu; on hybrid hosts version 1 may have it."
            )
            return [reason]
        if holder != parent and "cpu" not in _words(holder / "cgroup.subtree_control"):
            reason = (
                f"{holder} does not hand the cpu controller down, and it is not Slackwater's to change. "
                f"echo +cpu > {holder / 'cgroup.subtree_control'} (as root; it must have no processes of its own, "
                "unless it is the root), or name a parent in a delegated subtree."
            )
            return [reason]
        return []

    def _record(self, plan: Mapping[str, GroupPlan], folders: Mapping[str, Path]) -> None:
        entries = self._journal.entries
        self._refuse_groups_of_others(folders)
        moved = {record.id: record for record in entries.moved_processes if self._proc.alive(record.id)}
        apart = {record.id: record for record in entries.moved_threads if self._proc.thread(record.id) is not None}
        homes = {group.folder: group.home for group in entries.groups}
        for name, group in plan.items():
            place = str(folders[name])
            for process in sorted(group.target.processes):
                former = self._former(process, moved, homes)
                if former is not None:
                    homes.setdefault(place, former)
                    if process not in moved:
                        moved[process] = MovedProcess(process.pid, process.started_ticks, former)
                        apart |= self._elsewhere(process, former)
            for thread in sorted(group.target.threads):
                here = self._thread_folder(thread)
                if here is not None and thread not in apart:
                    apart[thread] = MovedThread(thread.pid, thread.tid, thread.started_ticks, here)
                    homes.setdefault(place, here)
            homes.setdefault(place, str(self.hierarchy.mount))
        if plan and not self.parent.exists():
            homes.setdefault(str(self.parent), str(self.hierarchy.mount))

        def with_new(current: Entries) -> Entries:
            return msgspec.structs.replace(
                current,
                moved_processes=tuple(moved.values()),
                moved_threads=tuple(apart.values()),
                groups=tuple(MadeGroup(folder, home) for folder, home in homes.items()),
            )

        self._journal.update(with_new)

    def _refuse_groups_of_others(self, folders: Mapping[str, Path]) -> None:
        ours = {group.folder for group in self._journal.entries.groups}
        for name, folder in folders.items():
            if folder.exists() and str(folder) not in ours:
                raise EnforcementError(
                    f"the cgroup {folder} for the group {name!r} is there, and not in this journal "
                    f"({self._journal.path}): another Slackwater uses it, or its journal was lost. Name another "
                    "parent, or move its processes away and remove it (rmdir)."
                )

    def _former(
        self, process: ProcessId, moved: Mapping[ProcessId, MovedProcess], homes: Mapping[str, str]
    ) -> str | None:
        """Where it came from. One that was born in a group of ours is from where its ancestor came from."""
        if process in moved:
            return moved[process].former
        if not self._proc.alive(process):
            return None
        here = self.hierarchy.group_of(self._proc, process.pid)
        if here is None or not here.is_relative_to(self.parent):
            return None if here is None else str(here)
        above = next((moved[one].former for one in self._proc.ancestors(process) if one in moved), None)
        return above or homes.get(str(here)) or str(self.hierarchy.mount)

    def _elsewhere(self, process: ProcessId, former: str) -> dict[ThreadId, MovedThread]:
        """Threads of a process that somebody has put into other groups than its main one's."""
        found = {}
        for thread in self._proc.threads(process):
            here = self._thread_folder(thread.id)
            if here is not None and here != former and not Path(here).is_relative_to(self.parent):
                found[thread.id] = MovedThread(process.pid, thread.id.tid, thread.id.started_ticks, here)
        if found and self.hierarchy.version == 2:
            raise EnforcementError(
                f"process {process.pid} has threads in cgroups of their own (threaded mode), which could not be put "
                "back. Leave it out of the groups, or use the nice translator for it."
            )
        return found

    def _with_threads_apart(self, keep: list[Task]) -> set[Task]:
        """What to keep, and with a process the records of its threads that sat elsewhere."""
        pids = {task.pid for task in keep if isinstance(task, ProcessId)}
        return {*keep, *(record.id for record in self._journal.entries.moved_threads if record.pid in pids)}

    def _make(self, folders: Mapping[str, Path]) -> None:
        if not folders:
            return
        for folder in (self.parent, *folders.values()):
            if not folder.exists():
                with _explained(f"the group {folder} could not be made"):
                    self._kernel.make_group(folder)
            if folder == self.parent and self.hierarchy.version == 2:
                control = folder / "cgroup.subtree_control"
                if "cpu" not in _words(control):
                    self._write(control, "+cpu")

    def _weigh_parent(self, groups: int) -> None:
        """Let groups not lose to whoever is in none.

        A group's weight is spread over the cores, and a new group weighs as much as one thread: without this, all
        applications together would count as much as a single thread that is in no group. So every group is worth a
        thread on every core. A parent that was there before is somebody else's, and keeps its weight.
        """
        if str(self.parent) not in {group.folder for group in self._journal.entries.groups}:
            return
        first = self.hierarchy.version == 1
        span, file = (V1_SHARES, "cpu.shares") if first else (V2_WEIGHT, "cpu.weight")
        weight = min(span.most, span.default * groups * (os.cpu_count() or 1))
        self._have(self.parent / file, str(weight))

    def _set(self, folder: Path, group: GroupPlan) -> None:
        quota_us = None if group.quota_cores is None else round(group.quota_cores * PERIOD_US)
        if self.hierarchy.version == 1:
            self._have(folder / "cpu.shares", str(group.weight))
            if quota_us is not None or (folder / "cpu.cfs_quota_us").exists():
                self._have(folder / "cpu.cfs_period_us", str(PERIOD_US))
                self._have(folder / "cpu.cfs_quota_us", "-1" if quota_us is None else str(quota_us))
        else:
            self._have(folder / "cpu.weight", str(group.weight))
            if quota_us is not None or (folder / "cpu.max").exists():
                self._have(folder / "cpu.max", f"{'max' if quota_us is None else quota_us} {PERIOD_US}")

    def _fill(self, plan: Mapping[str, GroupPlan], folders: Mapping[str, Path]) -> None:
        singles = frozenset[ThreadId]().union(*(group.target.threads for group in plan.values()))
        for name, group in plan.items():
            for process in sorted(group.target.processes):
                if self._proc.alive(process) and not self._is_in(process, folders[name], singles):
                    self._move(process.pid, folders[name] / "cgroup.procs")
        # Afterwards, because moving a process takes all its threads along.
        for name, group in plan.items():
            for thread in sorted(group.target.threads):
                if self._thread_folder(thread) not in (None, str(folders[name])):
                    self._move(thread.tid, folders[name] / "tasks")

    def _is_in(self, process: ProcessId, folder: Path, singles: frozenset[ThreadId]) -> bool:
        if self.hierarchy.version == 2:
            return self.hierarchy.group_of(self._proc, process.pid) == folder
        threads = [thread.id for thread in self._proc.threads(process) if thread.id not in singles]
        return {self._thread_folder(thread) for thread in threads} <= {str(folder), None}

    def _thread_folder(self, thread: ThreadId) -> str | None:
        if self._proc.thread(thread) is None:
            return None
        found = self.hierarchy.group_of(self._proc, thread.pid, thread.tid)
        return None if found is None else str(found)

    def _move(self, number: int, file: Path) -> None:
        with suppress(ProcessLookupError):
            self._write(file, str(number))

    def _have(self, file: Path, text: str) -> None:
        with suppress(OSError):
            if file.read_text("utf-8").strip() == text:
                return
        self._write(file, text)

    def _write(self, file: Path, text: str) -> None:
        with _explained(f"{text!r} could not be written to {file}"):
            self._kernel.write(file, f"{text}\n")


def folder_name(group: str) -> str:
    """A group's name as a folder: never that of one of the kernel's own files, and different for different names."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", group)[:100]
    if plain != group:
        plain += "-" + hashlib.sha256(group.encode()).hexdigest()[:8]
    return f"group-{plain}"


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except ProcessLookupError:
        raise
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "Run as root, or use the nice translator.")
        raise EnforcementError(
            f"{what}: {error.strerror}. What was changed before is in the journal. {hint}"
        ) from error


_HINTS: Final = {
    errno.EACCES: (
        "Run as root; or delegate a subtree that holds the processes too: who moves a process must be allowed to write "
        "to the group above both places."
    ),
    errno.EBUSY: "Version 2 has processes only in groups without groups: move those in the parent into one below it.",
    errno.EINVAL: (
        "The kernel refuses the value: a quota above that of a group further up, or a process that runs in real time."
    ),
    errno.EROFS: "cgroups are mounted read-only: in a container, mount /sys/fs/cgroup writable.",
}


def _relative(parent: str) -> str:
    parts = Path(parent.strip("/")).parts
    if not parts or ".." in parts:
        raise ConfigurationError(
            f"the parent group {parent!r} is not a name below the root of the cgroups; {PARENT!r} is usual."
        )
    return str(Path(*parts))


def _words(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8").split()
    except OSError:
        return []
