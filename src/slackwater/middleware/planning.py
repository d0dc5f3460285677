"""From what drivers read to what shall hold: metrics, priorities of operators, of units, of groups. Pure.

Each policy entry of the configuration is a `Binding`, asked at its own period; in between its last word stands.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

from slackwater.core.model import QueryView, Snapshot, Stage
from slackwater.metrics.features import STATIC, TICKING, Primitive
from slackwater.metrics.graph import MetricProvider
from slackwater.metrics.host import HOST_CATALOGUE
from slackwater.middleware.enforcing import Enactment
from slackwater.middleware.priorities import Row
from slackwater.translators.normalise import exact, logarithmic, min_max
from slackwater.translators.schedule import Group, to_physical

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slackwater.middleware.config import ClassEntry, PolicyEntry
    from slackwater.middleware.model import Application, Operator
    from slackwater.middleware.priorities import HostPolicy
    from slackwater.translators.nice import NiceScale

_SCALES: dict[str, NiceScale] = {"min-max": min_max, "logarithmic": logarithmic, "exact": exact}
_WIDEST_RATIO = 100.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One driver's applications, as it last read them."""

    driver: str
    applications: tuple[Application, ...]


@dataclass(frozen=True, slots=True)
class Word:
    """What a binding said last: for operators, and what follows for units and groups."""

    wall_ts: float = -math.inf
    priorities: Mapping[str, float] = field(default_factory=dict)
    nices: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)


class Metrics:
    """Derives what policies need from what each driver offers."""

    def __init__(self, offers: Mapping[str, frozenset[str]]) -> None:
        self._values: dict[str, Mapping[str, float]] = {}
        self._providers = {
            driver: MetricProvider(HOST_CATALOGUE, {**self._primitives(names), "priority-class": _CLASS}, driver)
            for driver, names in offers.items()
        }

    def check(self, driver: str, needs: Iterable[str]) -> None:
        """Raise ConfigurationError where a driver's engine cannot give a metric, with the chain that asked for it."""
        self._providers[driver].check(needs)

    def rows(self, driver: str, operators: Sequence[Operator], needs: tuple[str, ...], wall_ts: float) -> list[Row]:
        self._values = {operator.key: operator.values for operator in operators}
        ordered = sorted(operators, key=lambda operator: operator.key)
        snapshot = Snapshot(wall_ts, tuple(_view(operator) for operator in ordered), 1, 1, 1)
        columns = self._providers[driver](snapshot, needs)
        return [
            Row(operator, {name: columns[name][place] for name in needs}, wall_ts)
            for place, operator in enumerate(ordered)
        ]

    def _primitives(self, names: Iterable[str]) -> dict[str, Primitive]:
        def primitive(name: str) -> Primitive:
            return Primitive(lambda query, _: self._values[query.key].get(name, math.nan), TICKING)

        return {name: primitive(name) for name in names}


_CLASS = Primitive(lambda query, _: float(query.priority_class), STATIC)


class Binding:
    """One policy at work on the operators that its entry names."""

    def __init__(
        self, number: int, entry: PolicyEntry, policy: HostPolicy, inside: HostPolicy | None, period_s: float
    ) -> None:
        self.entry = entry
        self.policy = policy
        self.inside = inside
        self.period_s = period_s
        self.word = Word()
        self._number = number

    @property
    def needs(self) -> tuple[str, ...]:
        return (*self.policy.needs, *(self.inside.needs if self.inside is not None else ()))

    def due(self, wall_ts: float) -> bool:
        return wall_ts >= self.word.wall_ts + self.period_s or wall_ts < self.word.wall_ts

    def ask(self, readings: Iterable[Reading], metrics: Metrics, wall_ts: float) -> None:
        """Decide anew. Whatever the policy raises goes to the caller, and the last word stands."""
        matched = [
            (reading.driver, application, operator)
            for reading in readings
            for application in reading.applications
            for operator in application.operators
            if self.entry.matches(application, operator)
        ]
        operators = [operator for _, _, operator in matched]
        runs_on = {operator.key: operator.runs_on for operator in operators}
        priorities = self._priorities(self.policy, matched, metrics, wall_ts)
        nices: Mapping[str, int] = {}
        groups: dict[str, Group] = {}
        if self.entry.mechanism == "nice":
            nices = self._nices(self.policy, to_physical(priorities, runs_on, self.entry.rule))
        else:
            groups = self._groups(matched, priorities)
        if self.inside is not None:
            inside = to_physical(self._priorities(self.inside, matched, metrics, wall_ts), runs_on, self.entry.rule)
            # The kernel compares nice inside a group, so each has the whole range.
            nices = {
                unit: nice
                for group in groups.values()
                for unit, nice in self._nices(
                    self.inside, {unit: inside[unit] for unit in sorted(group.members) if unit in inside}
                ).items()
            }
        self.word = Word(wall_ts, priorities, nices, groups)

    def _priorities(
        self,
        policy: HostPolicy,
        matched: Sequence[tuple[str, Application, Operator]],
        metrics: Metrics,
        wall_ts: float,
    ) -> dict[str, float]:
        by_driver: dict[str, list[Operator]] = defaultdict(list)
        for driver, _, operator in matched:
            by_driver[driver].append(operator)
        rows = [
            row
            for driver, operators in by_driver.items()
            for row in metrics.rows(driver, operators, policy.needs, wall_ts)
        ]
        known = [row for row in rows if all(math.isfinite(value) for value in row.metrics.values())]
        found = dict(zip([row.operator.key for row in known], policy.priorities(known), strict=True))
        # Nothing is known of one that has not run yet: it is taken as the others are, so that it runs and is measured.
        usual = median(found.values()) if found else 1.0
        return {row.operator.key: found.get(row.operator.key, usual) for row in rows}

    def _nices(self, policy: HostPolicy, priorities: Mapping[str, float]) -> dict[str, int]:
        scale = self.entry.scale or ("logarithmic" if policy.ratios else "min-max")
        return _SCALES[scale](priorities, self.entry.span)

    def _groups(
        self, matched: Sequence[tuple[str, Application, Operator]], priorities: Mapping[str, float]
    ) -> dict[str, Group]:
        weights = _as_ratios(priorities) if not self.policy.ratios else priorities
        members: dict[str, set[str]] = defaultdict(set)
        of_group: dict[str, list[str]] = defaultdict(list)
        for _, application, operator in matched:
            name = _group_name(self.entry.group_by, application, operator)
            members[name] |= set(operator.runs_on)
            of_group[name].append(operator.key)
        owners = _merged(members)
        groups: dict[str, Group] = {}
        for name, keys in _by_owner(of_group, owners).items():
            fused = to_physical({key: weights[key] for key in keys}, dict.fromkeys(keys, (name,)), self.entry.rule)
            units = frozenset(unit for one, units in members.items() if owners[one] == name for unit in units)
            if units:
                groups[f"{self._number}-{name}"] = Group(fused[name], units, self.entry.quota_cores)
        return groups


def classified(applications: Iterable[Application], classes: Sequence[ClassEntry]) -> tuple[Application, ...]:
    """The same applications, with the classes that the configuration gives their operators."""

    def with_class(application: Application, operator: Operator) -> Operator:
        for entry in classes:
            if entry.matches(application, operator):
                return replace(operator, priority_class=entry.priority_class)
        return operator

    return tuple(
        replace(application, operators=tuple(with_class(application, operator) for operator in application.operators))
        for application in applications
    )


def together(words: Iterable[Word]) -> tuple[Enactment, list[str]]:
    """All bindings' words in one. Where two want the same unit the first one has it; the second is told of."""
    nices: dict[str, int] = {}
    groups: dict[str, Group] = {}
    grouped: dict[str, str] = {}
    doubted = []
    for word in words:
        for unit, nice in word.nices.items():
            if unit in nices:
                doubted.append(f"two policies set the nice of {unit}; the first one in the configuration does.")
            else:
                nices[unit] = nice
        for name, group in word.groups.items():
            free = frozenset(unit for unit in group.members if unit not in grouped)
            doubted += [
                f"two policies put {unit} into a group; the first one in the configuration does."
                for unit in sorted(group.members - free)
            ]
            if free:
                groups[name] = replace(group, members=free)
                grouped.update(dict.fromkeys(free, name))
    return Enactment(nices, groups), doubted


def _group_name(group_by: str, application: Application, operator: Operator) -> str:
    match group_by:
        case "application":
            return application.key
        case "class":
            return f"class {operator.priority_class}"
        case _:
            return operator.key


def _merged(members: Mapping[str, set[str]]) -> dict[str, str]:
    """Whose group each group is in: those that share a unit are one, named after the first.

    Queries of one Spark application share its processes: asked to part them, the best that can be had is the whole.
    """
    owner: dict[str, str] = {}
    of_unit: dict[str, str] = {}
    for name in members:
        owner[name] = name
        for unit in sorted(members[name]):
            first = of_unit.setdefault(unit, owner[name])
            if first != owner[name]:
                lost = owner[name]
                owner = {one: first if whose == lost else whose for one, whose in owner.items()}
                of_unit = {one: first if whose == lost else whose for one, whose in of_unit.items()}
    return owner


def _by_owner(of_group: Mapping[str, list[str]], owners: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name, keys in of_group.items():
        found[owners[name]] += keys
    return found


def _as_ratios(priorities: Mapping[str, float]) -> dict[str, float]:
    """Numbers that only order, spread from 1 to 100 for shares."""
    if not priorities:
        return {}
    least, greatest = min(priorities.values()), max(priorities.values())
    if greatest == least:
        return dict.fromkeys(priorities, 1.0)
    return {
        key: 1.0 + (_WIDEST_RATIO - 1.0) * (priority - least) / (greatest - least)
        for key, priority in priorities.items()
    }


def _view(operator: Operator) -> QueryView:
    """An operator as the metric graph knows queries; what is measured is asked for by key."""
    return QueryView(
        key=operator.key,
        name=operator.name,
        stage=Stage.UNGATED,
        eligible=False,
        waiting_since_wall_ts=0.0,
        last_turn_wall_ts=0.0,
        window_end_event_ts=None,
        swm_wall_ts=0.0,
        swm_sigma_s=0.0,
        swm_sure_wall_ts=0.0,
        batch_cost_s=0.0,
        row_cost_s=0.0,
        sweep_cost_s=0.0,
        rows_per_s=0.0,
        backlog_rows=0.0,
        downstream=operator.downstream,
        priority_class=operator.priority_class,
    )
