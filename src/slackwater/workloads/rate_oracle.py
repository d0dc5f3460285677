"""What the oracles of queries on the rate source share: which windows are due, and which rows lie in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from slackwater.workloads.base import Window
from slackwater.workloads.rate_source import row_times_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from slackwater.workloads.base import QuerySpec

    Kept = Callable[[NDArray[np.int64]], NDArray[np.bool_]]
    Offered = Callable[[int, Kept], int]  # when a kept row at or after this event time was first there to be read


def due_windows(spec: QuerySpec, from_ms: int, to_ms: int) -> list[Window]:
    """The query's windows whose deadline lies in [from_ms, to_ms), empty ones too."""
    base = spec.phase_ms + spec.window_ms + spec.delay_ms
    first = -(-(from_ms - base) // spec.slide_ms)
    last = -(-(to_ms - base) // spec.slide_ms)
    starts = (spec.phase_ms + k * spec.slide_ms for k in range(first, last))
    return [Window(start, start + spec.window_ms, start + spec.window_ms + spec.delay_ms) for start in starts]


def numbers_between(from_ms: int, to_ms: int, rate: int, creation_ms: int) -> NDArray[np.int64]:
    """Running numbers of the source's rows with an event time in [from_ms, to_ms)."""
    # Rounding moves a row by at most half a millisecond, so a second more on either side is enough.
    first_s = max(0, (from_ms - creation_ms) // 1000 - 1)
    last_s = max(0, (to_ms - creation_ms) // 1000 + 1)
    numbers = np.arange(first_s * rate, last_s * rate, dtype=np.int64)
    event_ms = row_times_ms(numbers, rate, creation_ms)
    found: NDArray[np.int64] = numbers[(event_ms >= from_ms) & (event_ms < to_ms)]
    return found


def rate_offers(rate: int, creation_ms: int) -> Offered:
    """Who tells when the rows of a rate source are there."""
    return lambda deadline_ms, kept: first_offered_ms(deadline_ms, rate, creation_ms, kept)


def first_offered_ms(deadline_ms: int, rate: int, creation_ms: int, kept: Kept) -> int:
    """When the source first offers a row at or after the deadline that is kept: only those move the watermark."""
    at_ms = deadline_ms
    while True:
        numbers = numbers_between(at_ms, at_ms + 1000, rate, creation_ms)
        found = numbers[kept(numbers)]
        if found.size:
            return creation_ms + 1000 * (int(found[0]) // rate + 1)
        at_ms += 1000
