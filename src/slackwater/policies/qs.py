"""Queue size (EdgeWise, Lachesis 5.1): the longest queue first, to keep queues even."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.policies.ranking import ranked

if TYPE_CHECKING:
    from slackwater.core.model import Choice, Snapshot


class Qs:
    """The most waiting rows first."""

    name = "qs"
    enforces = True
    needs = ("queue-rows",)

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        rows = snapshot.metrics["queue-rows"]
        return ranked(snapshot, [-waiting for waiting in rows], reason=lambda i: f"{rows[i]:.0f} rows wait")
