"""Policies from plain functions (Haren 4.1): g orders the queries, f gives them to lanes.

Both get the features of one query, and through them those of all. g answers with a priority vector, f with a lane. The
other parameters of Haren's are here, too: P is `period_s`, b is `batches`, d is `max_wait_s`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

from slackwater.errors import ConfigurationError
from slackwater.policies.periodic import Periodic
from slackwater.policies.ranking import ranked

if TYPE_CHECKING:
    from slackwater.core.model import Choice, Policy, QueryView, Snapshot

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Features:
    """What g and f may know of one query: `features["path-rate"]` for a metric in `needs`, and `features.query`.

    `all` are the features of every query that the policy orders, in order of their keys, and `place` is this one's
    place there. `lanes` and `wall_ts` are those of the snapshot.
    """

    place: int
    snapshot: Snapshot = field(repr=False)
    all: Sequence[Features] = field(repr=False, compare=False)
    _found: dict[Any, Any] = field(repr=False, compare=False)

    @property
    def query(self) -> QueryView:
        return self.snapshot.queries[self.place]

    @property
    def lanes(self) -> int:
        return self.snapshot.lanes

    @property
    def wall_ts(self) -> float:
        return self.snapshot.wall_ts

    def __getitem__(self, name: str) -> float:
        if name not in self.snapshot.metrics:
            there = ", ".join(sorted(self.snapshot.metrics)) or "none"
            raise LookupError(f"the feature {name!r} is not there, only: {there}; name it in `needs`")
        return self.snapshot.metrics[name][self.place]

    def once(self, compute: Callable[[Sequence[Features]], T]) -> T:
        """What follows from all queries together, such as a maximum: computed once a period, for the first that asks.

        Give it a function that stays the same from call to call, not a lambda within g or f.
        """
        if compute not in self._found:
            self._found[compute] = compute(self.all)
        found: T = self._found[compute]
        return found


Vector = Sequence[float] | float
Order = Callable[[Features], Vector]
Lanes = Callable[[Features], int]


def by_functions(
    name: str,
    g: Order,
    *,
    f: Lanes | None = None,
    needs: Sequence[str] = (),
    period_s: float | None = 0.1,
    batches: int = 1,
    max_wait_s: float | None = None,
) -> Policy:
    """A policy from functions; it starts whoever may start, as soon as its lane is free.

    g: the priority vector of a query, or one number. The *greatest* goes first, compared entry by entry, as in Haren;
    among equals the one whose last turn is longest ago.
    f: the lane of a query, from 0 up, taken modulo the number of lanes: `in_turn`, `by_name`, `by_load`, or your own.
    Without it any lane takes any query.
    needs: the metrics that g and f look at; what f and g declare as an attribute `needs` is added.
    period_s: how long an order stands (Haren's P); None asks at every step.
    batches: how many data batches a turn may have while more rows wait (b).
    max_wait_s: nobody waits longer for a turn (d), so that what only a run can renew stays fresh; None takes the
    engine's.
    """
    if not isinstance(batches, int) or batches < 1:
        raise ConfigurationError(f"by_functions({name!r}, batches={batches!r}): a whole number from 1 up is needed.")
    if max_wait_s is not None and not (isinstance(max_wait_s, int | float) and 0 < max_wait_s < math.inf):
        raise ConfigurationError(f"by_functions({name!r}, max_wait_s={max_wait_s!r}): a positive number is needed.")
    for role, function in (("g", g), ("f", f)):
        if function is not None and not callable(function):
            raise ConfigurationError(f"by_functions({name!r}): {role} is {function!r}; a function is needed.")
    wanted = (needs,) if isinstance(needs, str) else needs
    every = dict.fromkeys([*wanted, *getattr(g, "needs", ()), *getattr(f, "needs", ())])
    policy = _Functions(name, g, f, tuple(every), batches, max_wait_s)
    return policy if period_s is None else Periodic(policy, period_s)


class _Functions:
    def __init__(
        self, name: str, g: Order, f: Lanes | None, needs: tuple[str, ...], batches: int, max_wait_s: float | None
    ) -> None:
        self.name = name
        self.enforces = True
        self.needs = needs
        self.max_wait_s = max_wait_s
        self._g, self._f = g, f
        self._batches = batches

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        rows = _features(snapshot)
        vectors = [_vector(self._g, row) for row in rows]
        for row, vector in zip(rows, vectors, strict=True):
            if len(vector) != len(vectors[0]):
                raise ValueError(
                    f"{_name(self._g)} gave query {row.query.name!r} a vector of {len(vector)} entries and "
                    f"{rows[0].query.name!r} one of {len(vectors[0])}; they must be equally long to compare"
                )
        lanes = {row.query.key: _lane(self._f, row) for row in rows} if self._f is not None else {}
        order = ranked(
            snapshot,
            *([-entry for entry in column] for column in zip(*vectors, strict=True)),
            reason=lambda i: f"priority {', '.join(f'{entry:.3g}' for entry in vectors[i])}",
        )
        return [choice.but(lane=lanes.get(choice.key), batches=self._batches) for choice in order]


def _vector(g: Order, row: Features) -> tuple[float, ...]:
    said = _called(g, row)
    entries = (said,) if isinstance(said, Real) else said
    if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
        raise TypeError(
            f"{_name(g)} gave query {row.query.name!r} the priority {said!r}; a number is needed, or a tuple of numbers"
        )
    for entry in entries:
        if not isinstance(entry, Real) or math.isnan(entry):
            raise ValueError(
                f"{_name(g)} gave query {row.query.name!r} the priority {said!r}; {entry!r} in it cannot be compared"
            )
    return tuple(float(entry) for entry in entries)


def _lane(f: Lanes, row: Features) -> int:
    said = _called(f, row)
    try:
        lane = index(said)
    except TypeError:
        lane = -1
    if lane < 0:
        raise ValueError(
            f"{_name(f)} gave query {row.query.name!r} the lane {said!r}; a whole number from 0 up is needed"
        )
    return lane


def in_turn(features: Features) -> int:
    """The first query to the first lane, the second to the second, and round again; shifts as queries come and go."""
    return features.place


def by_name(features: Features) -> int:
    """By a hash of the query's name: the same lane after a restart, and whoever else is there."""
    return crc32(features.query.name.encode())


class _ByLoad:
    """The greatest load to the lane with the least so far, and so on (longest processing time first)."""

    needs = ("load",)

    def __call__(self, features: Features) -> int:
        return features.once(_balanced)[features.place]


by_load = _ByLoad()
"""Lanes with about the same load: fixed cost of a batch, and cost of a row times rows a second."""


def _balanced(rows: Sequence[Features]) -> list[int]:
    loads = [row["load"] for row in rows]
    lanes = [0] * len(rows)
    carried = [0.0] * (rows[0].lanes if rows else 1)
    for place in sorted(range(len(rows)), key=lambda place: -loads[place]):
        lane = carried.index(min(carried))
        lanes[place] = lane
        carried[lane] += loads[place]
    return lanes


def _features(snapshot: Snapshot) -> list[Features]:
    rows: list[Features] = []
    found: dict[Any, Any] = {}
    rows += [Features(place, snapshot, rows, found) for place in range(len(snapshot.queries))]
    return rows


def _called(function: Callable[[Features], T], row: Features) -> T:
    try:
        return function(row)
    except Exception as error:
        raise RuntimeError(
            f"{_name(function)} failed for query {row.query.name!r}: {type(error).__name__}: {error}"
        ) from error


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)
