"""From a policy's priorities to the numbers the kernel takes (Lachesis 5.3).

The paper gives the greatest priority the best nice, and leaves open what one entity alone, equal priorities or a zero
become. Here equal priorities express no preference: everybody gets the neutral value (nice 0, the kernel's default
weight), and one entity alone likewise, instead of outranking the whole host. Where priorities are ratios (all but
`min_max`), zero means as little as there is, and negative numbers are refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

Key = TypeVar("Key", bound="Hashable")
Overflow = Literal["clamp", "rescale"]

STEP: Final = 1.25
"""By how much a step of nice changes a thread's weight, about."""

# sched_prio_to_weight of the kernel (kernel/sched/core.c), from nice -20 to 19.
# fmt: off
NICE_WEIGHTS: Final = (
    88761, 71755, 56483, 46273, 36291,
    29154, 23254, 18705, 14949, 11916,
    9548, 7620, 6100, 4904, 3906,
    3121, 2501, 1991, 1586, 1277,
    1024, 820, 655, 526, 423,
    335, 272, 215, 172, 137,
    110, 87, 70, 56, 45,
    36, 29, 23, 18, 15,
)
# fmt: on


@dataclass(frozen=True, slots=True)
class NiceRange:
    """The nice values to use: `best` for the most urgent, `worst` for the least."""

    best: int = 0
    worst: int = 19

    def __post_init__(self) -> None:
        if not -20 <= self.best <= self.worst <= 19:
            raise ConfigurationError(
                f"NiceRange({self.best}, {self.worst}): nice goes from -20 (most urgent) to 19, best ≤ worst."
            )

    @property
    def neutral(self) -> int:
        return self.clamp(0)

    def clamp(self, nice: float) -> int:
        return round(min(max(nice, self.best), self.worst))


FULL: Final = NiceRange(-20, 19)
"""All there is, as in the paper: for hosts that only process streams. Needs CAP_SYS_NICE."""

NOT_ABOVE_OTHERS: Final = NiceRange(0, 19)
"""Nobody outranks the rest of the host."""


@dataclass(frozen=True, slots=True)
class WeightRange:
    """What a version of cgroups takes as a group's weight, and what it gives a new group."""

    least: int
    most: int
    default: int


V1_SHARES: Final = WeightRange(2, 262_144, 1024)
V2_WEIGHT: Final = WeightRange(1, 10_000, 100)


def min_max(priorities: Mapping[Key, float], span: NiceRange = NOT_ABOVE_OTHERS) -> dict[Key, int]:
    """Linear: the least priority becomes the worst nice, the greatest the best. For priorities that are no ratios."""
    _refuse(priorities, negative=False)
    return _spread(priorities, span, lambda priority: priority)


def logarithmic(
    priorities: Mapping[Key, float], span: NiceRange = NOT_ABOVE_OTHERS, overflow: Overflow = "clamp"
) -> dict[Key, int]:
    """F(x) = best + log(p_max / x) / log 1.25, rounded: ratios of priorities become ratios of CPU time.

    overflow: what happens where the ratios do not fit the range. "clamp": those that fit keep their ratio, the least
    urgent share the worst nice. "rescale": the paper's further min-max, here on the logarithms; all are told apart as
    far as steps go, and no ratio is kept.
    """
    _refuse(priorities, negative=True)
    if _all_equal(priorities):
        return dict.fromkeys(priorities, span.neutral)
    greatest = max(priorities.values())
    least = min(priority for priority in priorities.values() if priority > 0)
    if overflow == "rescale" and _steps(greatest, least) > span.worst - span.best:
        positive = {key: priority for key, priority in priorities.items() if priority > 0}
        spread = _spread(positive, span, math.log)
        return {key: spread.get(key, span.worst) for key in priorities}
    return {
        key: span.clamp(span.best + _steps(greatest, priority)) if priority > 0 else span.worst
        for key, priority in priorities.items()
    }


def exact(priorities: Mapping[Key, float], span: NiceRange = NOT_ABOVE_OTHERS) -> dict[Key, int]:
    """The nice whose weight in the kernel's own table is nearest, as a ratio to the best one's.

    The table's steps differ a little from 1.25 (15 against 1024 is 19 steps, and 1.25^19 = 69.4 where 1024/15 = 68.3).
    """
    _refuse(priorities, negative=True)
    if _all_equal(priorities):
        return dict.fromkeys(priorities, span.neutral)
    greatest = max(priorities.values())
    top = math.log(NICE_WEIGHTS[span.best + 20])
    offsets = {nice: math.log(NICE_WEIGHTS[nice + 20]) - top for nice in range(span.best, span.worst + 1)}

    def nearest(priority: float) -> int:
        if priority <= 0:
            return span.worst
        wanted = math.log(priority) - math.log(greatest)
        return min(offsets, key=lambda nice: (abs(offsets[nice] - wanted), nice))

    return {key: nearest(priority) for key, priority in priorities.items()}


def shares(priorities: Mapping[Key, float], span: WeightRange) -> dict[Key, int]:
    """Weights of groups in proportion to their priorities.

    The greatest gets the most that the kernel takes: only ratios among the groups of one parent count, and from there
    down they are finest. What is too small for the range gets the least. Equal ones get the kernel's default.
    """
    _refuse(priorities, negative=True)
    if _all_equal(priorities):
        return dict.fromkeys(priorities, span.default)
    greatest = max(priorities.values())
    return {key: max(span.least, round(span.most * (priority / greatest))) for key, priority in priorities.items()}


def _spread(priorities: Mapping[Key, float], span: NiceRange, scale: Callable[[float], float]) -> dict[Key, int]:
    if _all_equal(priorities):
        return dict.fromkeys(priorities, span.neutral)
    # Halves, so that the difference of two huge numbers stays finite.
    scaled = {key: scale(priority) / 2 for key, priority in priorities.items()}
    least, greatest = min(scaled.values()), max(scaled.values())
    if greatest == least:
        return dict.fromkeys(priorities, span.neutral)
    room = span.worst - span.best
    return {key: span.clamp(span.worst - room * ((x - least) / (greatest - least))) for key, x in scaled.items()}


def _steps(greatest: float, priority: float) -> float:
    return (math.log(greatest) - math.log(priority)) / math.log(STEP)


def _all_equal(priorities: Mapping[Key, float]) -> bool:
    return len(set(priorities.values())) <= 1


def _refuse(priorities: Mapping[Key, float], *, negative: bool) -> None:
    for key, priority in priorities.items():
        if not math.isfinite(priority):
            raise ConfigurationError(f"the priority of {key!r} is {priority!r}; a finite number is needed.")
        if negative and priority < 0:
            raise ConfigurationError(
                f"the priority of {key!r} is {priority!r}; here priorities are ratios and must not be negative. Use "
                "min_max for priorities with another zero, or shift them."
            )
