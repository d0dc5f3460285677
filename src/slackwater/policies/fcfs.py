"""First come, first served: the query whose oldest unread rows have waited longest goes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.core.model import Choice

if TYPE_CHECKING:
    from slackwater.core.model import Snapshot


class Fcfs:
    """By age of the oldest waiting row: what arrived after the offsets of the last batch were fixed."""

    name = "fcfs"
    enforces = True

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        return [
            Choice(
                key=query.key,
                start=query.eligible,
                urgency=query.offsets_wall_ts - snapshot.wall_ts,
                reason=f"oldest row waits since {snapshot.wall_ts - query.offsets_wall_ts:.1f} s",
            )
            for query in snapshot.queries
        ]
