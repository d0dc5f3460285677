"""Delays by epoch (Klink Eq. 3–6): mean μ and mean square χ of each epoch, over the last h of them.

    E[d] = mean(μ)          Var[d] = (mean(χ) − mean(μ)²)·(1 + 1/m)

The variance is that of one new delay, which is what the sweeping watermark brings. The paper's Eq. 6 is that of a
mean over epochs: it shrinks as the history grows, and an interval built on it covers next to nothing. Delays with a
long tail are far from normal, so the mean cube is kept as well, and ranges lean towards the tail (the first term of
Cornish and Fisher's expansion).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import NormalDist

_Moments = tuple[float, float, float]

_FIRST_SIGMA_S = 0.5
_MOST_SKEW = 3.0
_LEAST_VARIANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Delay:
    """Expectation, standard deviation and skewness of the next delay."""

    mean_s: float
    sigma_s: float
    skew: float = 0.0

    def range_s(self, confidence: float) -> tuple[float, float]:
        """From where to where the next delay lies with this confidence, half of the rest on either side (Eq. 7)."""
        z = NormalDist().inv_cdf(0.5 + confidence / 2)
        lean = (z * z - 1) * max(-_MOST_SKEW, min(_MOST_SKEW, self.skew)) / 6
        return self.mean_s + (lean - z) * self.sigma_s, self.mean_s + (lean + z) * self.sigma_s


class EpochHistory:
    """The last `history` epochs and the one under way; adding and asking cost the same however long it is."""

    def __init__(self, history: int = 400) -> None:
        self._epochs: deque[_Moments] = deque(maxlen=history)
        self._total: _Moments = (0.0, 0.0, 0.0)
        self._count = 0
        self._sums: _Moments = (0.0, 0.0, 0.0)

    def add(self, delay_s: float) -> None:
        self.add_many(1, (delay_s, delay_s**2, delay_s**3))

    def add_many(self, count: int, sums: _Moments) -> None:
        """Many events at once, by their number and the sums of their delays, squares and cubes."""
        self._count += count
        self._sums = _plus(self._sums, sums)

    def end_epoch(self) -> None:
        """A watermark swept a window: what was seen since the last sweep becomes one epoch."""
        if not self._count:
            return
        if len(self._epochs) == self._epochs.maxlen:
            self._total = _plus(self._total, self._epochs[0], -1.0)
        epoch = _plus((0.0, 0.0, 0.0), self._sums, 1 / self._count)
        self._epochs.append(epoch)
        self._total = _plus(self._total, epoch)
        self._count, self._sums = 0, (0.0, 0.0, 0.0)

    def __len__(self) -> int:
        return len(self._epochs)

    def delay(self) -> Delay:
        """What to expect next. Before anything was seen: at once, give or take half a second."""
        epochs, total = len(self._epochs), self._total
        if self._count:
            epochs += 1
            total = _plus(total, self._sums, 1 / self._count)
        if not epochs:
            return Delay(0.0, _FIRST_SIGMA_S)
        mean, square, cube = (value / epochs for value in total)
        variance = max(0.0, square - mean * mean)
        sigma = math.sqrt(variance * (1 + 1 / epochs))
        third = cube - 3 * mean * square + 2 * mean**3
        skew = third / variance**1.5 if variance > _LEAST_VARIANCE else 0.0
        return Delay(mean, max(sigma, _FIRST_SIGMA_S / (epochs + 1)), skew)


def _plus(a: _Moments, b: _Moments, times: float = 1.0) -> _Moments:
    return a[0] + times * b[0], a[1] + times * b[1], a[2] + times * b[2]
