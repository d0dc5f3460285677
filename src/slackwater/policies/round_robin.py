"""Round-robin: the query whose last turn is longest ago goes first. Never leaves a lane idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.core.model import Choice

if TYPE_CHECKING:
    from slackwater.core.model import Snapshot


class RoundRobin:
    """Every query in turn, as fast as lanes allow."""

    name = "round-robin"
    enforces = True

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        return [
            Choice(
                key=query.key,
                start=query.eligible,
                urgency=query.last_turn_wall_ts - snapshot.wall_ts,
                reason=f"last turn {snapshot.wall_ts - query.last_turn_wall_ts:.1f} s ago",
            )
            for query in snapshot.queries
        ]
