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
    """Least vector first, compared entry by entry; equal ones by key. The urgency is the place in that order."""
    order = sorted(
        range(len(snapshot.queries)),
        key=lambda index: (priority(index, snapshot.queries[index]), snapshot.queries[index].key),
    )
    return [
        Choice(snapshot.queries[index].key, snapshot.queries[index].eligible, float(place), reason(index))
        for place, index in enumerate(order)
    ]
