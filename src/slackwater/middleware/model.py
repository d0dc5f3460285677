"""What every driver tells in the same words: applications, what they work on, and what the system runs for it.

Two graphs, as in Lachesis 4: *operators* are what policies order (a query of Spark's, an operator of Flink's), *units*
are what the operating system can tell apart (a Spark application with all its processes, a thread of Flink's). A unit
that runs several operators is fusion, an operator that several units run is fission.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slackwater.translators.schedule import Target


@dataclass(frozen=True, slots=True)
class Operator:
    """What a policy orders.

    key: unique among all drivers, such as `flink/JOB/VERTEX`. runs_on: keys of units. downstream: keys of the operators
    that read what this one writes. values: the driver's primitives, by the names of
    `metrics.host`; one that is not known yet is left out.
    """

    key: str
    name: str
    runs_on: tuple[str, ...]
    downstream: tuple[str, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    priority_class: int = 0


@dataclass(frozen=True, slots=True)
class Unit:
    """What the operating system runs and can be told to prefer. `role` says what it is: driver, executor, subtask."""

    key: str
    role: str
    target: Target


@dataclass(frozen=True, slots=True)
class Application:
    """One application of one engine, as it is now."""

    key: str
    name: str
    engine: str
    operators: tuple[Operator, ...]
    units: tuple[Unit, ...]
    notes: tuple[str, ...] = field(default=(), compare=False)


class Driver(Protocol):
    """Reads one engine's applications. Other packages add theirs as entry points in `slackwater.host_drivers`.

    offers: the primitives that it can give, before any application is there; policies are checked against them.
    """

    name: str
    offers: frozenset[str]

    def read(self, wall_ts: float) -> Sequence[Application]:
        """All applications now. Raises UnreachableError within its time-out when the engine does not answer."""

    def close(self) -> None: ...
