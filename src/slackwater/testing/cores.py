"""How batches that run at once share the cores."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TaskOrder = Literal["name", "arrival"]

_LEAST_LEFT = 0.1  # of the cores, whatever is compiled


@dataclass(slots=True)
class Part:
    """A stretch of a batch: it waits for something, computes in the driver, or runs a task on a core of its own."""

    kind: Literal["waits", "computes", "task"]
    left_s: float
    on_core: bool = False

    @property
    def computing(self) -> bool:
        return self.kind == "computes" or self.on_core

    @property
    def held(self) -> bool:
        """A task that has no core yet."""
        return self.kind == "task" and not self.on_core


@dataclass(slots=True)
class Work:
    """What the thread of a query has still to do, one part after the other; the first is under way."""

    name: str
    cpu_demand: float
    parts: list[Part] = field(default_factory=list)
    since_wall_ts: float = 0.0

    def begin(self, parts: list[Part], wall_ts: float) -> None:
        self.parts, self.since_wall_ts = parts, wall_ts

    @property
    def is_batch(self) -> bool:
        """Not only on its way, or looking for rows."""
        return any(part.kind != "waits" for part in self.parts)

    def next(self, wall_ts: float) -> None:
        """On to the next part."""
        del self.parts[0]
        self.since_wall_ts = wall_ts


def cpu_speed(demand: float, alone: float, *, cores: float, crowding: float = 0.0) -> float:
    """How fast computing goes when `demand` cores' worth of it is under way, against a batch alone on the cores.

    Cores are shared evenly. `alone` is the demand when only that batch and the background compute.
    """

    def slowdown(busy: float) -> float:
        return 1 + crowding * max(0.0, min(busy, cores) - 1) / (cores - 1) if cores > 1 else 1.0

    share = min(1.0, cores / demand) if demand > 0 else 1.0
    return share * slowdown(alone) / slowdown(demand)


@dataclass(frozen=True, slots=True)
class Garbage:
    """CPU time that goes into collecting garbage, as a share of all other.

    It is collected as often as the young generation is full, and each collection copies what is still held: by the
    application `always`, and by `each` batch that is under way.
    """

    always: float = 0.0
    each: float = 0.0

    def more(self, batches: int) -> float:
        """How much more CPU time computing takes when so many batches are under way than with one."""
        return (1 + self.always + self.each * max(1, batches)) / (1 + self.always + self.each)


NO_GARBAGE = Garbage()


@dataclass(slots=True)
class Cores:
    """The cores of the machine. Fields as the parameters of `ScriptedDriver`; `cpu_s` is what was computed so far."""

    count: int
    capacity: float
    background: float
    crowding: float
    task_order: TaskOrder
    garbage: Garbage = NO_GARBAGE
    compiling: Callable[[float], float] | None = None
    cpu_s: float = 0.0

    def give(self, works: Iterable[Work]) -> None:
        """Free cores to the tasks that wait for one; a task keeps its core until it is over."""
        tasks = [work for work in works if work.parts and work.parts[0].kind == "task"]
        free = self.count - sum(work.parts[0].on_core for work in tasks)
        if self.task_order == "arrival":
            tasks.sort(key=lambda work: work.since_wall_ts)
        else:
            tasks.sort(key=lambda work: work.name)
        for work in [work for work in tasks if work.parts[0].held][:free]:
            work.parts[0].on_core = True

    def flow(self, works: Iterable[Work], wall_ts: float) -> Flow:
        """How fast everything that is under way goes on until one part of it is over."""
        compiling = 0.0 if self.compiling is None else self.compiling(wall_ts)
        capacity = max(_LEAST_LEFT * self.capacity, self.capacity - compiling)
        under_way = [work for work in works if work.parts]
        demand = self.background + sum(work.cpu_demand for work in under_way if work.parts[0].computing)
        slower = self.garbage.more(sum(work.is_batch for work in under_way))
        speeds = [
            (work.parts[0], self._speed(work, demand, capacity, slower)) for work in under_way if not work.parts[0].held
        ]
        return Flow(self, min(demand, capacity) + compiling, speeds)

    def _speed(self, work: Work, demand: float, capacity: float, slower: float) -> float:
        if not work.parts[0].computing:
            return 1.0
        alone = self.background + work.cpu_demand
        return cpu_speed(demand, alone, cores=capacity, crowding=self.crowding) / slower


@dataclass(frozen=True, slots=True)
class Flow:
    """Parts that are under way at once, and how fast each of them goes."""

    cores: Cores
    busy: float
    speeds: list[tuple[Part, float]]

    @property
    def lasts_s(self) -> float:
        """Until the first part is over."""
        return min((part.left_s / speed for part, speed in self.speeds), default=math.inf)

    def go_on(self, seconds: float) -> None:
        for part, speed in self.speeds:
            part.left_s -= seconds * speed
        self.cores.cpu_s += seconds * self.busy
