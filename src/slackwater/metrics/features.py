"""How features change (Haren 3, Table 1), so that only what can have changed is computed again.

A feature is a metric of one query. What can change it decides when its last value still holds: nothing (static), a run
of the query itself (independent), or also runs of its peers in the pipeline and the passing of time (dependent).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from slackwater.core.model import QueryView


class Dependency(StrEnum):
    """What else than a query's own run changes a feature of it: runs of those that it reads from or that read it."""

    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"
    CLOCK = "clock"


@dataclass(frozen=True, slots=True)
class Feature:
    """The type of a metric, as in Haren's Table 1.

    static: known when the query comes, and never changes.
    depends_on: empty for an independent feature (Definition 3.1), else its dependency map (3.2, 3.3), followed through
    the whole pipeline.
    execution_intrinsic: only running the query renews it (3.4). Policies that use such a feature rely on the engine's
    longest wait to keep it fresh.
    """

    static: bool = False
    depends_on: frozenset[Dependency] = frozenset()
    execution_intrinsic: bool = False

    def __post_init__(self) -> None:
        if self.execution_intrinsic and (self.static or self.depends_on):
            raise ConfigurationError(
                f"a feature that only a run of its query renews is dynamic and independent, but was declared {self}."
            )
        if self.static and self.depends_on:
            raise ConfigurationError(f"a static feature depends on nothing, but was declared {self}.")

    @property
    def independent(self) -> bool:
        return not self.depends_on

    def __str__(self) -> str:
        words = ["static" if self.static else "dynamic"]
        if self.depends_on:
            words.append("dependent on " + " and ".join(sorted(self.depends_on)))
        elif not self.static:
            words.append("independent")
        if self.execution_intrinsic:
            words.append("execution-intrinsic")
        return ", ".join(words)


STATIC = Feature(static=True)
MEASURED = Feature(execution_intrinsic=True)
TICKING = Feature(depends_on=frozenset({Dependency.CLOCK}))


@dataclass(frozen=True, slots=True)
class Primitive:
    """What a driver offers: the value of one query at a wall time, and how it changes."""

    value: Callable[[QueryView, float], float]
    feature: Feature


def derived(inputs: Iterable[Feature], along: Dependency | None = None) -> Feature:
    """The type that a metric inherits from those it needs; `along` where it also looks at peers.

    It is as changeable as all of them together, and execution-intrinsic only if nothing but a run renews any of them.
    """
    features = list(inputs)
    depends_on = frozenset().union(*(feature.depends_on for feature in features))
    static = all(feature.static for feature in features)
    if along is not None:
        return Feature(depends_on=depends_on | {along})
    moving = [feature for feature in features if not feature.static]
    return Feature(static, depends_on, bool(moving) and all(feature.execution_intrinsic for feature in moving))
