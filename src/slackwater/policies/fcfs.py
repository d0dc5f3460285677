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
        return ranked(
            snapshot,
            lambda _, query: (query.offsets_wall_ts,),
            lambda i: f"oldest row waits since {snapshot.wall_ts - snapshot.queries[i].offsets_wall_ts:.1f} s",
        )
