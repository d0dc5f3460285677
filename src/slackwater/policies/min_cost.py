"""Least cost (after Aurora): the cheapest row first, its share of the batch's fixed cost included, for throughput."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.policies.ranking import ranked

if TYPE_CHECKING:
    from slackwater.core.model import Choice, Snapshot


class MinCost:
    """The least cost of a row first."""

    name = "min-cost"
    enforces = True
    needs = ("cost-s",)

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        cost = snapshot.metrics["cost-s"]
        return ranked(snapshot, cost, reason=lambda i: f"a row costs {cost[i] * 1e6:.3g} µs")
