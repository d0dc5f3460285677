"""Highest rate (Sharaf et al., Haren 7.2): most rows out of the pipeline a second of work, for the mean latency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.policies.ranking import ranked

if TYPE_CHECKING:
    from slackwater.core.model import Choice, Snapshot


class Hr:
    """The highest global output rate first: path selectivity over path cost."""

    name = "hr"
    enforces = True
    needs = ("path-rate",)

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        rate = snapshot.metrics["path-rate"]
        return ranked(
            snapshot,
            [-rows for rows in rate],
            reason=lambda i: f"brings {rate[i]:.3g} rows out a second of work",
        )
