"""A wall clock that somebody sets, as a driver's reports show it: what happened before keeps its old time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slackwater.core.model import Report


@dataclass(frozen=True, slots=True)
class ClockStep:
    """From this true time on the clock is wrong by so many seconds."""

    from_wall_ts: float
    by_s: float

    def shown(self, wall_ts: float) -> float:
        return wall_ts + self.by_s if wall_ts >= self.from_wall_ts else wall_ts

    def applied(self, report: Report) -> Report:
        queries = tuple(
            replace(
                query,
                since_wall_ts=self.shown(query.since_wall_ts),
                batches=tuple(
                    replace(
                        batch,
                        offsets_wall_ts=self.shown(batch.offsets_wall_ts),
                        ended_wall_ts=self.shown(batch.ended_wall_ts),
                    )
                    for batch in query.batches
                ),
            )
            for query in report.queries
        )
        return replace(report, wall_ts=self.shown(report.wall_ts), queries=queries)
