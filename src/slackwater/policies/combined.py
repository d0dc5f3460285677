"""Several policies side by side, each for queries of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import isfinite
from operator import attrgetter
from typing import TYPE_CHECKING

from slackwater.errors import ConfigurationError
from slackwater.policies.periodic import at_its_period
from slackwater.policies.round_robin import RoundRobin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from slackwater.core.model import Choice, Policy, QueryView, Snapshot


_URGENCY_AND_KEY = attrgetter("urgency", "key")


class Combined:
    """By the query's name: the first pattern that matches it says which policy orders it.

    Groups are equal, and take turns: the first of each go before the second of each, and the group whose last turn is
    longest ago goes first. Only those that can start now are counted. Classes (`QueryOptions.priority_class`) still go
    before all of that.
    What no pattern matches is a last group, by round-robin. Each policy sees its own queries alone and keeps its own
    period: `Combined({"orders-*": Periodic(Klink(), 0.1), "*": Periodic(Hr(), 1.0)})`.
    """

    name = "combined"

    def __init__(self, patterns: Mapping[str, Policy]) -> None:
        if not patterns:
            raise ConfigurationError('Combined({}): at least one pattern is needed, such as {"orders-*": Klink()}.')
        self._patterns = tuple(patterns)
        policies = list(patterns.items())
        enforces = agreed_enforces(self.name, policies)
        if "*" not in patterns and enforces:
            policies.append(("*", RoundRobin()))
        self._groups = Groups(self.name, policies, self._place_of)
        self.enforces = enforces
        self.needs = self._groups.needs
        self.max_wait_s = self._groups.max_wait_s

    def asks(self, snapshot: Snapshot) -> bool:
        return self._groups.asks(snapshot)

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        found: list[Choice] = []
        answers = sorted(self._groups.decide(snapshot), key=lambda answer: (answer.last_turn_wall_ts, answer.place))
        for place, answer in enumerate(answers):
            eligible = {query.key for query in answer.queries if query.eligible}
            ready = [choice for choice in answer.choices if choice.start and choice.key in eligible]
            others = [choice for choice in answer.choices if not (choice.start and choice.key in eligible)]
            whose = f"{answer.label}, {answer.policy.name}: "
            for ordered in (ready, others):
                found += [
                    choice.but(urgency=float(rank * len(answers) + place), reason=whose + choice.reason)
                    for rank, choice in enumerate(ordered)
                ]
        return found

    def _place_of(self, query: QueryView) -> int | None:
        for place, pattern in enumerate(self._patterns):
            if fnmatchcase(query.name, pattern):
                return place
        return len(self._patterns) if self.enforces else None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the policy of one group said of its queries, most urgent first."""

    place: int
    label: str
    policy: Policy
    queries: tuple[QueryView, ...]
    choices: list[Choice]

    @property
    def last_turn_wall_ts(self) -> float:
        """When the group had a turn last."""
        return max(query.last_turn_wall_ts for query in self.queries)


class Groups:
    """Policies by label, and which of them a query belongs to (None: to nobody).

    They need what any of them needs, and nobody waits longer than the least of their `max_wait_s`.
    """

    def __init__(
        self, owner: str, policies: Sequence[tuple[str, Policy]], place_of: Callable[[QueryView], int | None]
    ) -> None:
        self.enforces = agreed_enforces(owner, policies)
        for place, (label, policy) in enumerate(policies):
            twin = next((other for other, same in policies[:place] if same is policy), None)
            if twin is not None:
                raise ConfigurationError(
                    f"{owner}: {twin!r} and {label!r} have the same {policy.name!r} object, which would mix up what it "
                    "remembers of each. Give each its own."
                )
        self._policies = [(label, at_its_period(policy)) for label, policy in policies]
        self._place_of = place_of
        self._shown: tuple[QueryView, ...] = ()
        self._members: dict[int, list[int]] = {}
        needs = {need for _, policy in self._policies for need in getattr(policy, "needs", ())}
        self.needs = tuple(sorted(needs))
        waits = [getattr(policy, "max_wait_s", None) for _, policy in self._policies]
        self.max_wait_s: float | None = min((wait_s for wait_s in waits if wait_s is not None), default=None)

    def asks(self, snapshot: Snapshot) -> bool:
        """Whether any policy that needs metrics will look at this snapshot."""
        return any(_asks(self._policies[place][1], part) for place, part in self._parts(snapshot))

    def decide(self, snapshot: Snapshot) -> list[Answer]:
        answers = []
        for place, part in self._parts(snapshot):
            label, policy = self._policies[place]
            choices = policy.decide(part)
            known = {query.key for query in part.queries}
            # Ranks are made of urgencies here, so the engine would not see that one was no number.
            strange = [choice for choice in choices if choice.key not in known or not isfinite(choice.urgency)]
            if strange:
                raise ValueError(
                    f"{label}, {policy.name}: urgency {strange[0].urgency!r} for query {strange[0].key!r}; a finite "
                    "number for each query that it was shown is needed"
                )
            ordered = sorted(choices, key=_URGENCY_AND_KEY)
            answers.append(Answer(place, label, policy, part.queries, ordered))
        return answers

    def _parts(self, snapshot: Snapshot) -> Iterator[tuple[int, Snapshot]]:
        """For each group that has queries here, the snapshot of them alone."""
        if snapshot.queries is not self._shown:
            self._shown, self._members = snapshot.queries, {}
            for index, query in enumerate(snapshot.queries):
                place = self._place_of(query)
                if place is not None:
                    self._members.setdefault(place, []).append(index)
        for place in sorted(self._members):
            yield place, _part(snapshot, self._members[place])


def agreed_enforces(owner: str, policies: Sequence[tuple[str, Policy]]) -> bool:
    """Whether the policies enforce; all gates are held or none, so they must agree."""
    enforcing = [label for label, policy in policies if getattr(policy, "enforces", True)]
    watching = [label for label, policy in policies if not getattr(policy, "enforces", True)]
    if enforcing and watching:
        raise ConfigurationError(
            f"{owner}: the policies for {', '.join(map(repr, enforcing))} schedule, those for "
            f"{', '.join(map(repr, watching))} only watch. Combine policies that do the same."
        )
    return not watching


def _asks(policy: Policy, part: Snapshot) -> bool:
    asks = getattr(policy, "asks", None)
    return bool(getattr(policy, "needs", ())) and (asks is None or bool(asks(part)))


def _part(snapshot: Snapshot, members: list[int]) -> Snapshot:
    if len(members) == len(snapshot.queries):
        return snapshot
    return replace(
        snapshot,
        queries=tuple(snapshot.queries[i] for i in members),
        metrics={name: [column[i] for i in members] for name, column in snapshot.metrics.items()},
    )
