"""Network delays of events and watermarks, as in Klink 6: uniform, and Zipf with constant 0.99."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Delays(Protocol):
    @property
    def name(self) -> str: ...

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """`count` delays in seconds."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Anything from 0 to `longest_s`, alike."""

    longest_s: float = 1.0
    name: str = "uniform"

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        return rng.uniform(0.0, self.longest_s, count)


@dataclass(frozen=True)
class Zipf:
    """Rank k of `ranks` with probability ~ 1/k^exponent; rank k is a delay of k/ranks of the longest.

    An exponent below 1 has no infinite Zipf law, so the ranks are finite, as in the YCSB generator that made the
    constant 0.99 usual.
    """

    exponent: float = 0.99
    ranks: int = 1000
    longest_s: float = 1.0
    name: str = "zipf"

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        weights = 1.0 / np.arange(1, self.ranks + 1) ** self.exponent
        cumulated = np.cumsum(weights / weights.sum())
        ranks = np.searchsorted(cumulated, rng.random(count), side="right") + 1
        found: NDArray[np.float64] = np.minimum(ranks, self.ranks) * (self.longest_s / self.ranks)
        return found
