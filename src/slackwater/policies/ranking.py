"""What work-conserving policies share: every eligible query may start, in the order of a priority vector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.core.model import Choice

if TYPE_CHECKING:
    from collections.abc import Callable

    from slackwater.core.model import QueryView, Snapshot

Vector = tuple[float, ...]


def ranked(
    snapshot: Snapshot, priority: Callable[[int, QueryView], Vector], reason: Callable[[int], str]
) -> list[Choice]:
    """Least vector first, compared entry by entry; of equal ones, whose last turn is longest ago.

    The urgency is the place in that order.
    """

    def place_of(index: int) -> tuple[Vector, float, str]:
        query = snapshot.queries[index]
        return priority(index, query), query.last_turn_wall_ts, query.key

    order = sorted(range(len(snapshot.queries)), key=place_of)
    return [
        Choice(snapshot.queries[index].key, snapshot.queries[index].eligible, float(place), reason(index))
        for place, index in enumerate(order)
    ]
