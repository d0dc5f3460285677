"""Round-robin: the query whose last turn is longest ago goes first. Never leaves a lane idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.policies.ranking import ranked

if TYPE_CHECKING:
    from slackwater.core.model import Choice, Snapshot


class RoundRobin:
    """Every query in turn, as fast as lanes allow."""

    name = "round-robin"
    enforces = True

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        now, last = snapshot.wall_ts, [query.last_turn_wall_ts for query in snapshot.queries]
        return ranked(snapshot, last, reason=lambda i: f"last turn {now - last[i]:.1f} s ago")
