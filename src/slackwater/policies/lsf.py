"""Least slack first without an estimate: time to the deadline minus the cost of the turn. Never waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.policies.edf import deadline
from slackwater.policies.ranking import ranked

if TYPE_CHECKING:
    from slackwater.core.model import Choice, Snapshot


class Lsf:
    """Deadline minus now minus cost, least first."""

    name = "lsf"
    enforces = True
    needs = ("turn-cost-s",)

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        now, cost = snapshot.wall_ts, snapshot.metrics["turn-cost-s"]
        slack = [deadline(query) - now - cost[i] for i, query in enumerate(snapshot.queries)]
        return ranked(snapshot, slack, reason=lambda i: f"slack {slack[i]:+.2f} s")
