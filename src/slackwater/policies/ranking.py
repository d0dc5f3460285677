"""What work-conserving policies share: every eligible query may start, in the order of a priority vector."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from slackwater.core.model import Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slackwater.core.model import Snapshot


def ranked(snapshot: Snapshot, *columns: Sequence[float], reason: Callable[[int], str]) -> list[Choice]:
    """Least first by the first column, of equal ones by the next; then whose last turn is longest ago, then by key.

    A column has a value for each query, in the snapshot's order. The urgency is the place.
    """
    queries = snapshot.queries
    last_turns = [query.last_turn_wall_ts for query in queries]
    by_key = np.array(sorted(range(len(queries)), key=[query.key for query in queries].__getitem__), np.intp)
    vectors = [np.asarray(column, np.float64)[by_key] for column in (last_turns, *reversed(columns))]
    order = by_key[np.lexsort(vectors)].tolist()
    return [
        Choice(queries[index].key, queries[index].eligible, float(place), reason(index))
        for place, index in enumerate(order)
    ]
