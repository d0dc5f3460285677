"""What a policy hands to a translator, and how priorities of logical operators become priorities of what runs.

Two formats, as in Lachesis 5.3: one priority for each entity, or groups with a priority each. A greater number is more
urgent, everywhere here; policies that count the other way (least slack first) turn their sign before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from slackwater.translators.identity import ProcessId, Task, ThreadId

Entity = str
Rule = Literal["max", "sum", "mean"]
Logical = TypeVar("Logical", bound=Hashable)
Physical = TypeVar("Physical", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Target:
    """What the operating system runs for an entity.

    processes: with every thread they have now and will have. threads: single ones of other processes.
    """

    processes: frozenset[ProcessId] = frozenset()
    threads: frozenset[ThreadId] = frozenset()

    @property
    def tasks(self) -> tuple[Task, ...]:
        return (*self.processes, *self.threads)


Locate = Callable[[Entity], Target]
"""Where an entity runs now; asked at every `apply`, so that new workers are found."""


@dataclass(frozen=True, slots=True)
class PrioritySchedule:
    """A priority for each entity; greater is more urgent."""

    priorities: Mapping[Entity, float]

    def __post_init__(self) -> None:
        for entity, priority in self.priorities.items():
            _finite(f"the priority of {entity!r}", priority)


@dataclass(frozen=True, slots=True)
class Group:
    """Entities that share a part of the CPU.

    priority: the group's weight against the other groups, not negative; twice the priority is twice the CPU time while
    all want it. quota_cores: how many cores it may use at most, even while others idle; None: as many as there are.
    """

    priority: float
    members: frozenset[Entity]
    quota_cores: float | None = None


@dataclass(frozen=True, slots=True)
class GroupingSchedule:
    """Groups by name. No entity is in two of them."""

    groups: Mapping[str, Group]

    def __post_init__(self) -> None:
        seen: dict[Entity, str] = {}
        for name, group in self.groups.items():
            _finite(f"the priority of group {name!r}", group.priority)
            if group.priority < 0:
                raise ConfigurationError(
                    f"the priority of group {name!r} is {group.priority!r}; a group's priority is a share of the CPU: "
                    "give a number from 0 on."
                )
            if group.quota_cores is not None and not 0.01 <= group.quota_cores < math.inf:
                raise ConfigurationError(
                    f"the quota of group {name!r} is {group.quota_cores!r} cores; the kernel takes 0.01 or more. "
                    "Leave it out for no quota."
                )
            for member in sorted(group.members):
                if member in seen:
                    raise ConfigurationError(
                        f"{member!r} is in the groups {seen[member]!r} and {name!r}; an entity runs in one. "
                        "Take it out of one of them."
                    )
                seen[member] = name


@dataclass(frozen=True, slots=True)
class CombinedSchedule:
    """Groups share the CPU by their priority; inside a group, entities go by theirs.

    Entities without a priority of their own are, inside their group, as urgent as its least urgent.
    """

    groups: GroupingSchedule
    inside: PrioritySchedule = field(default_factory=lambda: PrioritySchedule({}))


def each_alone(schedule: PrioritySchedule) -> GroupingSchedule:
    """Every entity a group of its own, for more than the 40 steps of nice (Lachesis 6.4)."""
    return GroupingSchedule(
        {entity: Group(priority, frozenset((entity,))) for entity, priority in schedule.priorities.items()}
    )


def to_physical(
    logical: Mapping[Logical, float], runs_on: Mapping[Logical, Iterable[Physical]], rule: Rule = "max"
) -> dict[Physical, float]:
    """Lachesis' Algorithm 2: priorities of logical operators become priorities of the threads that run them.

    An operator split over several threads (fission) gives each of them its priority. A thread that runs several
    operators (fusion) takes the greatest of theirs, or their sum or mean, by rule. Operators that run nowhere are left
    out, and so are threads none of whose operators has a priority. As printed the algorithm compares with an entry that
    is not there yet; here the first priority stands as it is, negative ones too.
    """
    of_thread: dict[Physical, list[float]] = {}
    for operator, priority in logical.items():
        _finite(f"the priority of {operator!r}", priority)
        for thread in dict.fromkeys(runs_on.get(operator, ())):
            of_thread.setdefault(thread, []).append(priority)
    return {thread: _fused(priorities, rule) for thread, priorities in of_thread.items()}


def _fused(priorities: list[float], rule: Rule) -> float:
    # fsum is exact before it rounds, so the result does not depend on the order of operators.
    match rule:
        case "max":
            return max(priorities)
        case "sum":
            return math.fsum(priorities)
        case "mean":
            mean = math.fsum(priorities) / len(priorities)
            return min(max(mean, min(priorities)), max(priorities))


def _finite(what: str, value: float) -> None:
    if not math.isfinite(value):
        raise ConfigurationError(f"{what} is {value!r}; a finite number is needed.")
