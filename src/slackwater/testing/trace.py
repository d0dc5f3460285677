"""What happened while simulated queries ran."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slackwater.core.model import BatchReport, Stage


@dataclass(frozen=True, slots=True)
class Emission:
    """A window that left a query at the end of the batch that swept it."""

    query: str
    window_end_event_ts: float
    emitted_wall_ts: float
    rows: int

    @property
    def latency_s(self) -> float:
        return self.emitted_wall_ts - self.window_end_event_ts


@dataclass(frozen=True, slots=True)
class GrantSeen:
    """A grant as the driver heard it; stale if the query did not wait with that number any more."""

    wall_ts: float
    query: str
    stage: Stage
    reason: str
    stale: bool


@dataclass(slots=True)
class TurnSeen:
    """A turn as it ran: `ended_wall_ts` is that of its last batch, infinite while that one runs."""

    query: str
    granted_wall_ts: float
    ended_wall_ts: float = math.inf
    batches: int = 0
    rows: int = 0


@dataclass(slots=True)
class Trace:
    """What happened, in order of time."""

    grants: list[GrantSeen] = field(default_factory=list)
    turns: list[TurnSeen] = field(default_factory=list)
    batches: list[tuple[str, BatchReport]] = field(default_factory=list)
    emissions: list[Emission] = field(default_factory=list)

    def turns_of(self, query: str) -> list[TurnSeen]:
        return [turn for turn in self.turns if turn.query == query]

    def batches_of(self, query: str) -> list[BatchReport]:
        return [batch for name, batch in self.batches if name == query]

    def emissions_of(self, query: str) -> list[Emission]:
        return [emission for emission in self.emissions if emission.query == query]

    def most_turns_at_once(self) -> int:
        changes = [(turn.granted_wall_ts, 1) for turn in self.turns]
        changes += [(turn.ended_wall_ts, -1) for turn in self.turns]
        running = most = 0
        for _, change in sorted(changes):
            running += change
            most = max(most, running)
        return most
