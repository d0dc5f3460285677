"""How late events are, in Aion's staleness experiment (Fig. 9): log-normal, uniform, normal, and bursts.

The paper names the shapes and, for the log-normal one, mean 0 and standard deviation 1 of the logarithm. It does not
say where the span ends; here a shape has its own unit of time and any span can be laid over it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from slackwater.late.staleness import LateCdf

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_POINTS = 4001
_BURSTS = ((0.5, 0.08, 0.02), (0.2, 0.3, 0.03), (0.2, 0.55, 0.02), (0.1, 0.85, 0.03))


@dataclass(frozen=True)
class Shape:
    """A distribution by points of its CDF, straight lines between them: drawing and looking up agree exactly."""

    name: str
    at: NDArray[np.float64] = field(repr=False)
    share: NDArray[np.float64] = field(repr=False)

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.interp(rng.random(count), self.share, self.at)
        return found

    def covered(self, at: float) -> float:
        """The share that is not later than `at`."""
        return float(np.interp(at, self.at, self.share))

    def quantile(self, share: float) -> float:
        return float(np.interp(share, self.share, self.at))

    def late(self, span: float, events: int) -> LateCdf:
        """What comes within the span, as so many events at equal distances of share."""
        shares = (np.arange(events) + 0.5) / events * self.covered(span)
        return LateCdf.of(((at, 1.0) for at in np.interp(shares, self.share, self.at).tolist()), span)


def shapes() -> dict[str, Shape]:
    normal = NormalDist()
    burst = [(weight, NormalDist(mean, sigma)) for weight, mean, sigma in _BURSTS]
    middle = NormalDist(0.5, 0.15)
    found = (
        _shape("log-normal", np.geomspace(1e-3, 1e3, _POINTS), lambda at: normal.cdf(math.log(at))),
        _shape("uniform", np.linspace(0.0, 1.0, _POINTS), lambda at: at),
        _shape("normal", np.linspace(0.0, 1.5, _POINTS), middle.cdf),
        _shape("bursts", np.linspace(0.0, 1.2, _POINTS), lambda at: sum(w * part.cdf(at) for w, part in burst)),
    )
    return {shape.name: shape for shape in found}


def _shape(name: str, at: NDArray[np.float64], cdf: Callable[[float], float]) -> Shape:
    """Cut off at both ends of the points."""
    share = np.array([cdf(value) for value in at.tolist()])
    return Shape(name, at, (share - share[0]) / (share[-1] - share[0]))
