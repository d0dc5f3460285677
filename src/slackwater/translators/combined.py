"""Groups by cgroup, order inside a group by nice: two dimensions, as in Lachesis 6.6. And what every translator is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from slackwater.translators.cgroups import PARENT, CpuGroups
from slackwater.translators.kernel import Linux
from slackwater.translators.nice import NiceScale, NiceThreads, raise_failures, where_nice
from slackwater.translators.normalise import NOT_ABOVE_OTHERS, NiceRange, min_max
from slackwater.translators.processes import Proc
from slackwater.translators.restore import restore

if TYPE_CHECKING:
    from slackwater.translators.journal import Journal
    from slackwater.translators.kernel import Kernel
    from slackwater.translators.schedule import CombinedSchedule, Entity, Group, Locate, PrioritySchedule

Schedule_contra = TypeVar("Schedule_contra", contravariant=True)


class Translator(Protocol[Schedule_contra]):
    """Makes a schedule take effect, on the processes that its `locate` names and on no others."""

    def check(self) -> list[str]:
        """Why it cannot work here: what is missing, and what to do. Empty when it can."""

    def apply(self, schedule: Schedule_contra) -> None:
        """Enact it, in place of the one before. Call it every period: threads and processes come and go."""

    def restore(self) -> None:
        """Put everything back; harmless when there is nothing."""


class CombinedTranslator:
    """Enacts a `CombinedSchedule`: weights and quotas for the groups, nice for the entities of each.

    The kernel compares nice inside a group only, so every group has the whole range to itself.
    """

    def __init__(
        self,
        journal: Journal,
        locate: Locate,
        *,
        parent: str = PARENT,
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
        self._groups = CpuGroups(journal, self._proc, self._kernel, parent)
        self._threads = NiceThreads(journal, self._proc, self._kernel)

    def check(self) -> list[str]:
        return [*self._groups.check(), *self._threads.check(self._span)]

    def apply(self, schedule: CombinedSchedule) -> None:
        self._groups.enforce(self._groups.plan(schedule.groups, self._locate))
        nices = (
            given
            for group in schedule.groups.groups.values()
            for given in self._scale(_inside(group, schedule.inside), self._span).items()
        )
        self._threads.enforce(*where_nice(nices, self._locate))

    def restore(self) -> None:
        raise_failures(restore(self._journal, self._proc, self._kernel).failures)


def _inside(group: Group, schedule: PrioritySchedule) -> dict[Entity, float]:
    given = {entity: schedule.priorities[entity] for entity in sorted(group.members) if entity in schedule.priorities}
    least = min(given.values(), default=0.0)
    return {entity: given.get(entity, least) for entity in sorted(group.members)}
