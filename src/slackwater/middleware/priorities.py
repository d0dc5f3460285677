"""What is urgent on a host: policies that give each operator a number (Lachesis 5.1); the greatest is most urgent.

Unlike the policies of an attached session, which start batches, these only weigh: the operating system shares the CPU
by what a translator makes of the numbers.
"""

from __future__ import annotations

import importlib
import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from zlib import crc32

from slackwater.errors import ConfigurationError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from slackwater.middleware.model import Operator


@dataclass(frozen=True, slots=True)
class Row:
    """One operator with the metrics that the policy needs: `row["queue-rows"]`."""

    operator: Operator
    metrics: Mapping[str, float]
    wall_ts: float

    def __getitem__(self, name: str) -> float:
        if name not in self.metrics:
            there = ", ".join(sorted(self.metrics)) or "none"
            raise LookupError(f"the metric {name!r} is not there, only: {there}; name it in `needs`")
        return self.metrics[name]


class HostPolicy(Protocol):
    """`needs` are names of metrics. `ratios` says that twice the number means twice as urgent."""

    name: str
    needs: tuple[str, ...]
    ratios: bool

    def priorities(self, rows: Sequence[Row]) -> list[float]: ...


class QueueSize:
    """The most waiting rows first, to keep queues even (EdgeWise)."""

    name = "qs"
    needs: tuple[str, ...] = ("queue-rows",)
    ratios = True

    def priorities(self, rows: Sequence[Row]) -> list[float]:
        return [max(0.0, row["queue-rows"]) for row in rows]


class FirstComeFirstServed:
    """Whose oldest row has waited longest first: for the greatest latency."""

    name = "fcfs"
    needs: tuple[str, ...] = ("head-age-s",)
    ratios = True

    def priorities(self, rows: Sequence[Row]) -> list[float]:
        return [max(0.0, row["head-age-s"]) for row in rows]


class HighestRate:
    """Most rows out of the pipeline a second of work first: for the mean latency."""

    name = "hr"
    needs: tuple[str, ...] = ("path-rate",)
    ratios = True

    def priorities(self, rows: Sequence[Row]) -> list[float]:
        return [max(0.0, row["path-rate"]) for row in rows]


class MultiClass:
    """A smaller class before a greater one: `ratio` times as urgent for each step."""

    name = "multi-class"
    needs: tuple[str, ...] = ()
    ratios = True

    def __init__(self, ratio: float = 1000.0) -> None:
        if not (isinstance(ratio, int | float) and 1 < ratio < math.inf):
            raise ConfigurationError(f"multi-class with ratio={ratio!r}: a number above 1 is needed.")
        self._ratio = float(ratio)

    def priorities(self, rows: Sequence[Row]) -> list[float]:
        steps = sorted({row.operator.priority_class for row in rows}, reverse=True)
        # By place, not by number: classes -1 and 1000 are one step apart when there is none between them.
        return [self._ratio ** steps.index(row.operator.priority_class) for row in rows]


class Lots:
    """By lot, anew every period: the control, which should bring nothing."""

    name = "random"
    needs: tuple[str, ...] = ()
    ratios = False

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def priorities(self, rows: Sequence[Row]) -> list[float]:
        return [crc32(f"{self._seed}/{row.wall_ts:.3f}/{row.operator.key}".encode()) / 2**32 for row in rows]


class Even:
    """All alike: for groups that shall share the CPU evenly, or be held by a quota alone."""

    name = "even"
    needs: tuple[str, ...] = ()
    ratios = True

    def priorities(self, rows: Sequence[Row]) -> list[float]:
        return [1.0] * len(rows)


class OwnFunction:
    """A function of the user's: `def urgent(row) -> float`, with `urgent.needs = ("queue-rows",)` if it has any."""

    ratios = False

    def __init__(self, name: str, function: Callable[[Row], float]) -> None:
        self.name = name
        self._function = function
        needs = getattr(function, "needs", ())
        self.needs: tuple[str, ...] = (needs,) if isinstance(needs, str) else tuple(needs)

    def priorities(self, rows: Sequence[Row]) -> list[float]:
        found = []
        for row in rows:
            said = self._function(row)
            if not isinstance(said, int | float) or not math.isfinite(said):
                raise ValueError(
                    f"{self.name} gave operator {row.operator.name!r} the priority {said!r}; a finite number is needed"
                )
            found.append(float(said))
        return found


_POLICIES: dict[str, Callable[..., HostPolicy]] = {
    "qs": QueueSize,
    "fcfs": FirstComeFirstServed,
    "hr": HighestRate,
    "multi-class": MultiClass,
    "random": Lots,
    "even": Even,
}


def known_host_policies() -> list[str]:
    return sorted(_POLICIES)


def host_policy(name: str, parameters: Mapping[str, Any], folder: Path) -> HostPolicy:
    """A policy by name, or a function as `module:function`, looked for beside the configuration file, too."""
    if ":" in name:
        if parameters:
            raise ConfigurationError(f"policy {name!r}: a function takes no parameters, but got {sorted(parameters)}.")
        return OwnFunction(name, _function(name, folder))
    if name not in _POLICIES:
        raise unknown_name("policy", name, [*_POLICIES, "module:function"])
    try:
        return _POLICIES[name](**parameters)
    except TypeError as error:
        raise ConfigurationError(f"policy {name!r} with the parameters {dict(parameters)}: {error}.") from error


def _function(name: str, folder: Path) -> Callable[[Row], float]:
    module, _, attribute = name.partition(":")
    beside = str(folder.resolve())
    sys.path.insert(0, beside)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise ConfigurationError(
            f"policy {name!r} cannot be loaded: {type(error).__name__}: {error}. It is `module:function` of an "
            f"installed package, or of a file in {folder}."
        ) from error
    finally:
        sys.path.remove(beside)
    if not callable(found):
        raise ConfigurationError(f"policy {name!r} is {found!r}; a function is needed.")
    return found  # type: ignore[no-any-return]
