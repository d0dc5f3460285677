"""Least latency (after Aurora): the shortest turn first, so that the fewest others wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.policies.ranking import ranked

if TYPE_CHECKING:
    from slackwater.core.model import Choice, Snapshot


class MinLatency:
    """The shortest turn first."""

    name = "min-latency"
    enforces = True
    needs = ("turn-cost-s",)

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        cost = snapshot.metrics["turn-cost-s"]
        return ranked(snapshot, cost, reason=lambda i: f"its turn takes {cost[i]:.2f} s")
