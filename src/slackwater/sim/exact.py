"""One server, one queue, event by event: what the fluid engine is checked against.

Lindley's recursion gives each event's wait exactly from arrival and service times; queueing theory gives its mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def waits_s(arrivals_s: NDArray[np.float64], services_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """W₀ = 0, Wₙ₊₁ = max(0, Wₙ + Sₙ − (Aₙ₊₁ − Aₙ)): first in, first out."""
    steps = services_s[:-1] - np.diff(arrivals_s)
    walk = np.concatenate(([0.0], np.cumsum(steps)))
    found: NDArray[np.float64] = walk - np.minimum.accumulate(walk)
    return found


def mean_wait_s(load: float, service_s: float, *, service_cv2: float) -> float:
    """Pollaczek–Khinchine for Poisson arrivals: service_cv2 is 1 for M/M/1 and 0 for M/D/1."""
    return load * service_s * (1 + service_cv2) / (2 * (1 - load))
