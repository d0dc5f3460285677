"""Classes (Haren 7.4): queries of a smaller priority class before all others, each class by a policy of its own."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from slackwater.policies.combined import Groups
from slackwater.policies.fcfs import Fcfs
from slackwater.policies.hr import Hr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slackwater.core.model import Choice, Policy, QueryView, Snapshot


class MultiClass:
    """HIGH (class below 0) by fcfs, then the others by hr; or policies of your own, by class.

    A policy serves its class and those above it up to the next that has one; the least also serves all below. Each
    keeps its own period: `MultiClass({-1: Periodic(Fcfs(), 0.1), 0: Periodic(Hr(), 1.0)})`.
    """

    name = "multi-class"

    def __init__(self, classes: Mapping[int, Policy] | None = None) -> None:
        policies: dict[int, Policy] = dict(classes) if classes else {-1: Fcfs(), 0: Hr()}
        self._classes = sorted(policies)
        self._groups = Groups(self.name, [(f"class {c}", policies[c]) for c in self._classes], self._place_of)
        self.enforces = self._groups.enforces
        self.needs = self._groups.needs
        self.max_wait_s = self._groups.max_wait_s

    def asks(self, snapshot: Snapshot) -> bool:
        return self._groups.asks(snapshot)

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        found: list[Choice] = []
        for answer in self._groups.decide(snapshot):
            first, whose = float(answer.place * len(snapshot.queries)), f"{answer.label}, {answer.policy.name}: "
            found += [
                choice.but(urgency=first + rank, reason=whose + choice.reason)
                for rank, choice in enumerate(answer.choices)
            ]
        return found

    def _place_of(self, query: QueryView) -> int:
        return max(0, bisect_right(self._classes, query.priority_class) - 1)
