"""Windows that end together: who waits behind whom, and how much earlier each should prepare.

Where the watermarks of many queries arrive at once, their turns queue up, and work that is left for a turn is paid by
everybody behind it. Cores are idle before, so it pays to do it then, though an early batch costs its fixed part again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slackwater.core.model import QueryView

# The turns of a crowd and their preparations must leave this share of the time between two results free.
_MOST_OF_A_SLIDE = 0.8


@dataclass(frozen=True, slots=True)
class Place:
    """A query among those whose turns queue up.

    behind: how many turns its own may hold up.
    lead_s: how long before its watermark it should have prepared, so that others can do so after it.
    """

    behind: float = 1.0
    lead_s: float = 0.0


ALONE = Place()


def places(queries: Iterable[QueryView], abreast: int) -> Mapping[str, Place]:
    """Of all queries whose turns would run into each other, so many abreast; the others are alone."""
    found: dict[str, Place] = {}
    crowd: list[QueryView] = []
    until_wall_ts = 0.0
    for query in sorted([query for query in queries if query.windowed], key=_due):
        if query.swm_sure_wall_ts >= until_wall_ts:
            found.update(_within(crowd, abreast))
            crowd, until_wall_ts = [], query.swm_sure_wall_ts
        crowd.append(query)
        until_wall_ts += query.turn_cost_s / abreast
    found.update(_within(crowd, abreast))
    return found


def _due(query: QueryView) -> tuple[float, str]:
    return query.swm_sure_wall_ts, query.key


def _within(crowd: Sequence[QueryView], abreast: int) -> Iterable[tuple[str, Place]]:
    """Whoever is due first prepares last: the rows that come in between are then fewest where most wait."""
    if len(crowd) <= abreast:
        return
    work_s = sum(query.turn_cost_s + query.batch_cost_s for query in crowd) / abreast
    if work_s > _MOST_OF_A_SLIDE * min(query.slide_s or 0.0 for query in crowd):
        return
    behind, ends_wall_ts = len(crowd) / abreast, crowd[0].swm_wall_ts
    for query in crowd:
        yield query.key, Place(behind, max(0.0, query.swm_wall_ts - ends_wall_ts))
        ends_wall_ts -= (query.batch_cost_s + query.row_cost_s * query.backlog_rows) / abreast
