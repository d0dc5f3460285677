"""Earliest deadline first: the window that ends first goes first, whether or not its watermark can be there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.policies.ranking import ranked

if TYPE_CHECKING:
    from slackwater.core.model import Choice, QueryView, Snapshot


class Edf:
    """By deadline: window end plus watermark delay, or the target time of a query without windows."""

    name = "edf"
    enforces = True

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        now, deadlines = snapshot.wall_ts, [deadline(query) for query in snapshot.queries]
        return ranked(snapshot, deadlines, reason=lambda i: f"deadline in {deadlines[i] - now:+.1f} s")


def deadline(query: QueryView) -> float:
    end = query.pending_end_event_ts if query.sweep_pending else query.window_end_event_ts
    return query.swm_wall_ts if end is None else end + (query.deadline_s or 0.0)
