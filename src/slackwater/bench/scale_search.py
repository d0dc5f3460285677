"""The largest load that is still sustained, found with few tries. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

GROWTH = 1.5


@dataclass(frozen=True)
class Bounds:
    """The largest size that was sustained, if any, and the least that was not, if any was tried."""

    sustained: int | None
    too_large: int | None


def largest(sustains: Callable[[int], bool], first: int, most: int) -> Bounds:
    """Between 1 and `most`, the largest size that is sustained, taken that smaller ones are, too.

    Sizes grow by half from `first` (or shrink, where that is too large already) until one is sustained and a greater
    one is not; then the gap is halved until it is closed. A try near the limit is the dear one, so sizes don't double.
    """
    sustained, too_large = 0, most + 1
    size = min(max(1, first), most)
    while sustained < size < too_large:
        if sustains(size):
            sustained = size
        else:
            too_large = size
        size = _next(sustained, too_large, size, most)
    return Bounds(sustained or None, None if too_large > most else too_large)


def _next(sustained: int, too_large: int, size: int, most: int) -> int:
    if too_large > most:
        return min(ceil(size * GROWTH), most)
    if sustained == 0:
        return int(size / GROWTH)
    return (sustained + too_large) // 2
