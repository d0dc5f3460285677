"""All schedules of a period taken together and enacted once: nice for units, weights and quotas for groups.

Several policies may be at work, each on operators of its own; the journal is one, and so is the hand that writes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slackwater.translators.cgroups import PARENT, CpuGroups
from slackwater.translators.kernel import Linux
from slackwater.translators.nice import NiceThreads, autogroup_caution, raise_failures
from slackwater.translators.restore import restore
from slackwater.translators.schedule import Group, GroupingSchedule, Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slackwater.translators.identity import ProcessId, ThreadId
    from slackwater.translators.journal import Journal
    from slackwater.translators.kernel import Kernel
    from slackwater.translators.normalise import NiceRange
    from slackwater.translators.processes import Proc


@dataclass(frozen=True, slots=True)
class Enactment:
    """What shall hold: nice by unit, groups of units by name."""

    nices: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)


class Enforcer:
    """Enacts on the units that it is told of, and on nothing else."""

    def __init__(self, journal: Journal, proc: Proc, kernel: Kernel | None = None, parent: str = PARENT) -> None:
        self._journal = journal
        self._proc = proc
        self._kernel = kernel or Linux()
        self._threads = NiceThreads(journal, proc, self._kernel)
        self._groups = CpuGroups(journal, proc, self._kernel, parent)
        self._grouped = self._niced = False

    def check(self, *, span: NiceRange | None, groups: bool) -> list[str]:
        """What is missing for nice over a range, and for groups."""
        return [*(self._threads.check(span) if span is not None else []), *(self._groups.check() if groups else [])]

    def cautions(self) -> list[str]:
        return autogroup_caution(self._proc)

    def apply(self, enactment: Enactment, targets: Mapping[str, Target]) -> None:
        """In place of the last one. Units that are not in `targets` are gone."""
        if enactment.groups or self._grouped:
            schedule = GroupingSchedule(enactment.groups)
            self._groups.enforce(self._groups.plan(schedule, lambda unit: targets.get(unit, Target())))
            self._grouped = bool(enactment.groups)
        if enactment.nices or self._niced:
            processes: dict[ProcessId, int] = {}
            threads: dict[ThreadId, int] = {}
            for unit, nice in enactment.nices.items():
                target = targets.get(unit, Target())
                for process in target.processes:
                    processes[process] = min(nice, processes.get(process, nice))
                for thread in target.threads:
                    threads[thread] = min(nice, threads.get(thread, nice))
            self._threads.enforce(processes, threads)
            self._niced = bool(enactment.nices)

    def restore(self) -> None:
        """Everything as it was before."""
        raise_failures(restore(self._journal, self._proc, self._kernel).failures)
