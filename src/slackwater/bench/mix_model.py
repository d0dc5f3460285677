"""A mix: groups of queries that are alike, beside others that are not, in one Spark application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slackwater.workloads.base import PayloadKind, Phases  # noqa: TC001  # msgspec reads the annotations

MIX = "mix"

ClassName = Literal["high", "normal", "low"]

# As in `QueryOptions.priority_class`: smaller goes first.
PRIORITY: dict[ClassName, int] = {"high": -1, "normal": 0, "low": 1}


@dataclass(frozen=True)
class Group:
    """Queries of one workload with the same settings; slide_s is None for windows that tumble."""

    name: str
    workload: str
    queries: int
    rate: int
    window_s: float
    slide_s: float | None
    delay_s: float
    phases: Phases
    payload: PayloadKind
    class_name: ClassName = "normal"

    @property
    def priority_class(self) -> int:
        return PRIORITY[self.class_name]

    @property
    def query_prefix(self) -> str:
        """What the names of its queries begin with: those are names of tables, too."""
        return self.name.replace("-", "_")


@dataclass(frozen=True)
class Mix:
    name: str
    groups: tuple[Group, ...]

    @property
    def queries(self) -> int:
        return sum(group.queries for group in self.groups)

    @property
    def offered_per_s(self) -> int:
        """Events per second of all its queries together."""
        return sum(group.queries * group.rate for group in self.groups)

    @property
    def longest_window_s(self) -> float:
        return max(group.window_s for group in self.groups)
