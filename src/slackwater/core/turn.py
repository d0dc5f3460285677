"""A turn: the batches that a query is granted together, and how long it waits after one that found nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slackwater.core.model import QueryReport, Stage

FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 5.0
_LOST_GRANT_S = 1.0


@dataclass(frozen=True, slots=True)
class Turn:
    """The batches granted together. `aim_event_ts` is the window end that the turn was granted to sweep, if any."""

    stage: Stage
    granted_wall_ts: float
    wait_no: int
    expected_s: float
    sweep: bool
    aim_event_ts: float | None
    lane: int = 0
    batches: int = 1
    reason: str = ""
    waited_s: float = 0.0

    def is_lost(self, seen: QueryReport, now_wall_ts: float) -> bool:
        """A grant that never arrived: the query waits on with the number that it was granted."""
        return seen.waiting and seen.wait_no == self.wait_no and now_wall_ts - self.granted_wall_ts > _LOST_GRANT_S


class Retry:
    """From when on a query whose turns find nothing may have another: each time it waits twice as long."""

    def __init__(self) -> None:
        self.wall_ts = 0.0
        self._fruitless_turns = 0

    def found(self) -> None:
        self._fruitless_turns, self.wall_ts = 0, 0.0

    def found_nothing(self, now_wall_ts: float, longest_s: float) -> None:
        self._fruitless_turns += 1
        backoff_s = FIRST_RETRY_S * 2 ** min(10, self._fruitless_turns - 1)
        self.wall_ts = now_wall_ts + min(LONGEST_RETRY_S, longest_s, backoff_s)

    def step_clock(self, by_s: float) -> None:
        self.wall_ts += by_s if self.wall_ts > 0 else 0.0
