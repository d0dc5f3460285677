"""The rival that Klink compares its estimator with: a line through past delays, fitted by gradient descent (LR).

Klink 6.2.5 does not say how LR comes to a range. Here it is the line's next value plus and minus the root mean square
of its past errors: what a fit knows of itself.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from slackwater.core.epochs import Delay

_STEP = 0.5


class LinearRegression:
    """Delay over the number of the watermark, by gradient descent on the squared error, begun where it last ended."""

    def __init__(self, history: int = 400, passes: int = 10) -> None:
        self._delays: deque[float] = deque(maxlen=history)
        self._errors: deque[float] = deque(maxlen=history)
        self._passes = passes
        self._level = 0.0
        self._slope = 0.0

    def add(self, delay_s: float) -> None:
        """The delay of one sweeping watermark."""
        if self._delays:
            self._errors.append(delay_s - self._next())
        else:
            self._level = delay_s
        self._delays.append(delay_s)
        seen = np.fromiter(self._delays, np.float64, len(self._delays))
        x = np.arange(1 - len(seen), 1) / len(seen)
        for _ in range(self._passes):
            error = self._level + self._slope * x - seen
            self._level -= _STEP * float(error.mean())
            self._slope -= _STEP * float((error * x).mean())

    def delay(self) -> Delay:
        if not self._errors:
            return Delay(self._level, 0.0)
        mean_square = math.fsum(error * error for error in self._errors) / len(self._errors)
        return Delay(self._next(), math.sqrt(mean_square))

    def _next(self) -> float:
        return self._level + self._slope / max(1, len(self._delays))
