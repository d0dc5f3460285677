"""First come, first served: the query whose oldest unread rows have waited longest goes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.policies.ranking import ranked

if TYPE_CHECKING:
    from slackwater.core.model import Choice, Snapshot


class Fcfs:
    """By age of the oldest waiting row: what arrived after the offsets of the last batch were fixed."""

    name = "fcfs"
    enforces = True

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        now, oldest = snapshot.wall_ts, [query.offsets_wall_ts for query in snapshot.queries]
        return ranked(snapshot, oldest, reason=lambda i: f"oldest row waits since {now - oldest[i]:.1f} s")
