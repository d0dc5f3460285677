"""StreamBox as Klink 6.1 describes it: the query with the closest window end, until a watermark was processed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.policies.edf import deadline
from slackwater.policies.ranking import ranked

if TYPE_CHECKING:
    from slackwater.core.model import Choice, Snapshot


class Sbox:
    """Closest window end first; whoever was chosen stays first until its window is out."""

    name = "sbox"
    enforces = True

    def __init__(self) -> None:
        self._chosen: tuple[str, float] | None = None

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        ends = [(query.key, deadline(query)) for query in snapshot.queries]
        if self._chosen not in ends:
            self._chosen = min(ends, key=lambda end: (end[1], end[0]), default=None)
        chosen = self._chosen[0] if self._chosen else ""
        return ranked(
            snapshot,
            [key != chosen for key, _ in ends],
            [end for _, end in ends],
            reason=lambda i: f"window end in {ends[i][1] - snapshot.wall_ts:+.1f} s",
        )
