"""Nice: one priority a thread, on every thread of the processes that were given.

On Linux nice belongs to the thread. Setting it for a process's id reaches its main thread only, and new threads take
their creator's; so it is set on all of them, again at every call.
"""

from __future__ import annotations

import errno
import resource
from typing import TYPE_CHECKING, Protocol

import msgspec

from slackwater.errors import EnforcementError
from slackwater.translators.hierarchy import find_hierarchy
from slackwater.translators.journal import NicedProcess, NicedThread
from slackwater.translators.kernel import Linux
from slackwater.translators.normalise import NOT_ABOVE_OTHERS, NiceRange, min_max
from slackwater.translators.processes import Proc
from slackwater.translators.restore import FormerNice, put_back_nice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slackwater.translators.identity import ProcessId, ThreadId
    from slackwater.translators.journal import Entries, Journal
    from slackwater.translators.kernel import Kernel
    from slackwater.translators.processes import Thread
    from slackwater.translators.schedule import Entity, Locate, PrioritySchedule

_PASSES = 3
_ALL_AGAIN = 60
"""Every so many calls all is looked at, whether or not something seems to have changed."""


class NiceScale(Protocol):
    """From priorities to nice: `min_max`, `logarithmic` or `exact` of `normalise`, or one's own."""

    def __call__(self, priorities: Mapping[Entity, float], span: NiceRange, /) -> dict[Entity, int]: ...


class NiceTranslator:
    """Enacts a `PrioritySchedule` with nice. An entity that is no longer in the schedule gets its former nice back.

    Where two entities share a process, the more urgent one decides.
    """

    def __init__(
        self,
        journal: Journal,
        locate: Locate,
        *,
        scale: NiceScale = min_max,
        span: NiceRange = NOT_ABOVE_OTHERS,
        proc: Proc | None = None,
        kernel: Kernel | None = None,
    ) -> None:
        self._journal = journal
        self._locate = locate
        self._scale = scale
        self._span = span
        self._proc = proc or Proc()
        self._kernel = kernel or Linux()
        self._threads = NiceThreads(journal, self._proc, self._kernel)

    def check(self) -> list[str]:
        return self._threads.check(self._span)

    def cautions(self, schedule: PrioritySchedule) -> list[str]:
        """Why nice may have less effect than it should here."""
        processes = {process for entity in schedule.priorities for process in self._locate(entity).processes}
        return [*autogroup_caution(self._proc), *_separate_groups(self._proc, processes)]

    def apply(self, schedule: PrioritySchedule) -> None:
        nices = self._scale(schedule.priorities, self._span)
        self._threads.enforce(*where_nice(nices.items(), self._locate))

    def restore(self) -> None:
        raise_failures(put_back_nice(self._journal, self._proc, self._kernel).failures)


def where_nice(nices: Iterable[tuple[Entity, int]], locate: Locate) -> tuple[dict[ProcessId, int], dict[ThreadId, int]]:
    """From entities to their processes and threads; what two of them share gets the more urgent one's nice."""
    processes: dict[ProcessId, int] = {}
    threads: dict[ThreadId, int] = {}
    for entity, nice in nices:
        target = locate(entity)
        for process in target.processes:
            processes[process] = min(nice, processes.get(process, nice))
        for thread in target.threads:
            threads[thread] = min(nice, threads.get(thread, nice))
    return processes, threads


class NiceThreads:
    """Sets nice on threads, with their former one in the journal first."""

    def __init__(self, journal: Journal, proc: Proc, kernel: Kernel) -> None:
        self._journal = journal
        self._proc = proc
        self._kernel = kernel
        self._may_lower_to = 20
        self._calls = 0
        self._settled: tuple[dict[ProcessId, frozenset[int]], frozenset[ThreadId]] = ({}, frozenset())

    def check(self, span: NiceRange) -> list[str]:
        """Why nice could not be used over a range; empty when it can be."""
        if self._may_lower(span.best):
            return []
        soft, _ = resource.getrlimit(resource.RLIMIT_NICE)
        reason = (
            f"nice cannot be lowered to {span.best} by this process: it lacks CAP_SYS_NICE, and RLIMIT_NICE is {soft} "
            f"where {20 - span.best} is needed. What is made less urgent could never be brought back. Run as root, or "
            "grant the capability (systemd: AmbientCapabilities=CAP_SYS_NICE; Kubernetes: capabilities.add: "
            f"[SYS_NICE]) or the limit (systemd: LimitNICE={span.best:+d}; shell: ulimit -e {20 - span.best})."
        )
        return [reason]

    def enforce(self, processes: Mapping[ProcessId, int], threads: Mapping[ThreadId, int]) -> None:
        """Every thread of the processes, and the single threads, at these nice values; all others as they were before.

        Looked at again until nothing is left to set: threads that start meanwhile took their creator's old value.
        """
        self._calls += 1
        if self._calls % _ALL_AGAIN and self._again(processes, threads):
            return
        for _ in range(_PASSES):
            wanted = self._wanted(processes, threads)
            self._record(wanted)
            if not self._set(wanted):
                break
        raise_failures(
            put_back_nice(
                self._journal, self._proc, self._kernel, [thread.id for thread, _ in wanted.values()]
            ).failures
        )

        by_process = {process: frozenset(self._proc.thread_numbers(process)) for process in processes}
        told = {id_.tid for id_ in wanted}
        complete = all(tids <= told for tids in by_process.values())
        self._settled = (by_process, frozenset(threads)) if complete else ({}, frozenset())

    def _again(self, processes: Mapping[ProcessId, int], threads: Mapping[ThreadId, int]) -> bool:
        """The usual period, in a tenth of the time: the same threads as before, all of which are in the journal.
        A number that a new thread of the process has got from one that
        ended does no harm: it inherited its value, and goes back with the process.
        """
        before, singles = self._settled
        if before.keys() != processes.keys() or singles != threads.keys():
            return False
        if any(
            not self._proc.alive(process) or frozenset(self._proc.thread_numbers(process)) != tids
            for process, tids in before.items()
        ):
            return False
        if not self._give(processes, threads):
            return False
        alone = {id_.tid: nice for id_, nice in threads.items()}
        try:
            for process, tids in before.items():
                for tid in tids:
                    self._set_one(tid, alone.get(tid, processes[process]))
            for tid, nice in alone.items():
                self._set_one(tid, nice)
        except (ProcessLookupError, PermissionError):
            # Looked at in full: a thread that ended, or an error that is told with its reason.
            return False
        return True

    def _give(self, processes: Mapping[ProcessId, int], threads: Mapping[ThreadId, int]) -> bool:
        """Record values that a process is given for the first time; False where it is not in the journal at all."""
        records = {record.id: record for record in self._journal.entries.niced_processes}
        owners = {process.pid: process for process in records}
        values = [*processes.items(), *((owners.get(id_.pid), nice) for id_, nice in threads.items())]
        for process, nice in values:
            record = records.get(process) if process is not None else None
            if record is None:
                return False
            if nice not in record.given:
                records[record.id] = msgspec.structs.replace(record, given=tuple(sorted({*record.given, nice})))
        self._journal.update(lambda current: msgspec.structs.replace(current, niced_processes=tuple(records.values())))
        return True

    def _set_one(self, tid: int, nice: int) -> None:
        if self._kernel.nice(tid) != nice:
            self._kernel.set_nice(tid, nice)

    def _wanted(
        self, processes: Mapping[ProcessId, int], threads: Mapping[ThreadId, int]
    ) -> dict[ThreadId, tuple[Thread, int]]:
        wanted = {
            thread.id: (thread, nice) for process, nice in processes.items() for thread in self._proc.threads(process)
        }
        for id_, nice in threads.items():
            now = self._proc.thread(id_)
            if now is not None:
                wanted[id_] = (now, nice)
        return wanted

    def _record(self, wanted: Mapping[ThreadId, tuple[Thread, int]]) -> None:
        entries = self._journal.entries
        known = {record.id for record in entries.niced_threads}
        records = {record.id: record for record in entries.niced_processes}
        formers = FormerNice(entries, self._proc)
        now_ticks = self._proc.now_ticks()
        new: list[NicedThread] = []
        owners = {pid: self._proc.process(pid) for pid in {id_.pid for id_ in wanted}}
        for id_, (thread, nice) in wanted.items():
            owner = owners[id_.pid]
            if owner is None:
                continue
            if id_ not in known:
                former = formers.of(owner, thread)
                new.append(NicedThread(id_.pid, id_.tid, id_.started_ticks, former))
            if owner not in records:
                records[owner] = self._first(owner, thread, formers, now_ticks)
            record = records[owner]
            if nice not in record.given:
                records[owner] = msgspec.structs.replace(record, given=tuple(sorted({*record.given, nice})))
        self._refuse_what_cannot_be_undone([record.former for record in new])

        def with_new(current: Entries) -> Entries:
            return msgspec.structs.replace(
                current, niced_threads=(*current.niced_threads, *new), niced_processes=tuple(records.values())
            )

        self._journal.update(with_new)

    def _first(self, owner: ProcessId, thread: Thread, formers: FormerNice, now_ticks: int) -> NicedProcess:
        main = next(iter(self._proc.threads(owner)), thread)
        try:
            # Its own nice again: changes nothing, and fails where its owner is another user.
            self._kernel.set_nice(main.id.tid, main.nice)
        except ProcessLookupError:
            pass
        except PermissionError as error:
            raise _refused(owner.pid, error) from error
        return NicedProcess(owner.pid, owner.started_ticks, formers.of(owner, main), now_ticks)

    def _refuse_what_cannot_be_undone(self, formers: list[int]) -> None:
        if formers and not self._may_lower(least := min(formers)):
            raise EnforcementError(" ".join(self.check(NiceRange(least, 19))))

    def _may_lower(self, to: int) -> bool:
        if to < self._may_lower_to and self._kernel.may_lower_nice(to):
            self._may_lower_to = to
        return to >= self._may_lower_to

    def _set(self, wanted: Mapping[ThreadId, tuple[Thread, int]]) -> bool:
        changed = False
        for id_, (thread, nice) in wanted.items():
            if thread.nice == nice:
                continue
            try:
                self._kernel.set_nice(id_.tid, nice)
                changed = True
            except ProcessLookupError:
                continue
            except PermissionError as error:
                raise _refused(id_.pid, error) from error
        return changed


def autogroup_caution(proc: Proc) -> list[str]:
    """With autogrouping the kernel compares nice only inside a session; it is told, and left as it is."""
    if proc.setting("kernel/sched_autogroup_enabled") != "1":
        return []
    caution = (
        "kernel.sched_autogroup_enabled is 1: processes of different sessions (terminals, setsid) share the CPU by "
        "session, and nice has no effect between them unless they are in a cpu cgroup. Use the cgroup translator, or "
        "`sysctl kernel.sched_autogroup_enabled=0`."
    )
    return [caution]


def raise_failures(failures: tuple[str, ...]) -> None:
    if failures:
        raise EnforcementError(
            f"not everything could be put back: {'; '.join(failures)}. It stays in the journal: call restore again "
            "with the rights that are missing."
        )


def _separate_groups(proc: Proc, processes: set[ProcessId]) -> list[str]:
    try:
        hierarchy = find_hierarchy(proc)
        found = {hierarchy.group_of(proc, process.pid) for process in processes} - {None}
    except EnforcementError:
        return []
    if len(found) < 2:
        return []
    named = ", ".join(sorted(map(str, found)))
    caution = (
        f"the processes are in {len(found)} cgroups ({named}): nice orders the threads of one group, and between "
        "groups their weights decide. Use the cgroup or the combined translator."
    )
    return [caution]


def _refused(pid: int, error: PermissionError) -> EnforcementError:
    what = "belongs to another user" if error.errno == errno.EPERM else "may not be made more urgent"
    return EnforcementError(
        f"the nice of process {pid} could not be set: {error.strerror}; it {what}. What was changed before is in the "
        "journal. Run as that user with LimitNICE, or as root, or grant CAP_SYS_NICE."
    )
