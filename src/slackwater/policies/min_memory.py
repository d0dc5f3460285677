"""Least memory (after Aurora): sweeps first, then the most state that a turn may free, a second of work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.policies.ranking import ranked

if TYPE_CHECKING:
    from slackwater.core.model import Choice, Snapshot


class MinMemory:
    """Sweeps first, then the most state bytes a second of work."""

    name = "min-memory"
    enforces = True
    needs = ("state-bytes", "turn-cost-s")

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        state, cost = snapshot.metrics["state-bytes"], snapshot.metrics["turn-cost-s"]
        return ranked(
            snapshot,
            [not query.sweep_pending for query in snapshot.queries],
            [-held / max(cost_s, 1e-6) for held, cost_s in zip(state, cost, strict=True)],
            reason=lambda i: f"holds {state[i] / 1e6:.1f} MB of state",
        )
