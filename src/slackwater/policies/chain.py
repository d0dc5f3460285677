"""Chain (Babcock et al., Haren 7.2): most rows gone a second of work, for memory; ties by the oldest row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.policies.ranking import ranked

if TYPE_CHECKING:
    from slackwater.core.model import Choice, Snapshot


class Chain:
    """The steepest fall of the progress chart first, then the oldest row."""

    name = "chain"
    enforces = True
    needs = ("chain-slope", "head-age-s")

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        slope, age = snapshot.metrics["chain-slope"], snapshot.metrics["head-age-s"]
        return ranked(
            snapshot,
            [-rows for rows in slope],
            [-age_s for age_s in age],
            reason=lambda i: f"rids of {slope[i]:.3g} rows a second of work",
        )
