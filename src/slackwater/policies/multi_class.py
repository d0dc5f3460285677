"""Classes (Haren 7.4): queries of a smaller priority class before all others, each class by a policy of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from slackwater.policies.fcfs import Fcfs
from slackwater.policies.hr import Hr

if TYPE_CHECKING:
    from slackwater.core.model import Choice, Policy, Snapshot


class MultiClass:
    """HIGH (class below 0) by fcfs, then the others by hr; or policies of your own, by class."""

    name = "multi-class"
    enforces = True

    def __init__(self, classes: dict[int, Policy] | None = None) -> None:
        self._classes: dict[int, Policy] = classes or {-1: Fcfs(), 0: Hr()}
        needs = {need for policy in self._classes.values() for need in getattr(policy, "needs", ())}
        self.needs = tuple(sorted(needs))

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        found: list[Choice] = []
        for place, group in enumerate(sorted(self._classes)):
            members = [i for i, query in enumerate(snapshot.queries) if self._class_of(query.priority_class) == group]
            part = replace(
                snapshot,
                queries=tuple(snapshot.queries[i] for i in members),
                metrics={name: [column[i] for i in members] for name, column in snapshot.metrics.items()},
            )
            policy = self._classes[group]
            ordered = sorted(policy.decide(part), key=lambda choice: (choice.urgency, choice.key))
            base = place * len(snapshot.queries)
            found += [
                replace(choice, urgency=float(base + rank), reason=f"class {group}, {policy.name}: {choice.reason}")
                for rank, choice in enumerate(ordered)
            ]
        return found

    def _class_of(self, priority_class: int) -> int:
        """The nearest class that has a policy: the greatest one not above, else the least."""
        below = [known for known in self._classes if known <= priority_class]
        return max(below) if below else min(self._classes)
