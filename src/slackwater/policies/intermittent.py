"""Intermittent processing (arXiv 2306.06678): the fewest batches that meet the deadline, as late as it allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.core.model import Choice

if TYPE_CHECKING:
    from slackwater.core.model import QueryView, Snapshot


class Intermittent:
    """One turn a window, started as late as its deadline allows; without a deadline, when the watermark is sure."""

    name = "intermittent"
    enforces = True

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        return [self._choose(query, snapshot.wall_ts) for query in snapshot.queries]

    def _choose(self, query: QueryView, now: float) -> Choice:
        latest = query.swm_sure_wall_ts
        if query.window_end_event_ts is not None and query.deadline_s is not None:
            latest = max(latest, query.window_end_event_ts + query.deadline_s - query.turn_cost_s)
        if query.sweep_pending or now >= latest:
            return Choice(query.key, True, latest - now, "its deadline allows no more waiting")
        return Choice(query.key, False, latest - now, f"can wait for {latest - now:.1f} s", latest)
