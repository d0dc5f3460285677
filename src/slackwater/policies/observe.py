"""Watch, record, change nothing: every query follows its own trigger."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slackwater.core.model import Choice, Snapshot


class Observe:
    """Records what queries do; plain Spark decides."""

    name = "observe"
    enforces = False

    def decide(self, snapshot: Snapshot) -> list[Choice]:  # noqa: ARG002
        return []
