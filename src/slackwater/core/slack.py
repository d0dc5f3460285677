"""Expected slack (Klink Eq. 8–10, Algorithm 1), put right where the printed equations slip; of many queries at once.

Slack is the time that is left until the sweeping watermark is expected, minus the cost of getting it to the sink.
The arrival is normal with mean μ and deviation σ; given that it has not come by now, its expectation is that of
the normal truncated below at now. Once even the sure time is past, the query is overdue and slack is minus the
time overdue minus the cost, so that among late queries the latest goes first. Finite always.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]

_SQRT_2 = math.sqrt(2)
_SQRT_2PI = math.sqrt(2 * math.pi)
_LEAST_TAIL = 1e-12
_FARTHEST_SIGMAS = 40.0
_erfc = np.frompyfunc(math.erfc, 1, 1)


def expected_slack(
    now_s: float, mean_s: Column | float, sigma_s: Column | float, sure_s: Column | float, cost_s: Column | float
) -> Column:
    """E[arrival | arrival ≥ now] − now − cost before the sure time; −(overdue + cost) after it."""
    arrival = np.where(now_s >= np.asarray(sure_s), sure_s, truncated_mean(now_s, mean_s, sigma_s))
    slack: Column = arrival - now_s - cost_s
    return slack


def truncated_mean(lower_s: float, mean_s: Column | float, sigma_s: Column | float) -> Column:
    """Mean of a normal that is known to lie at or above `lower_s`; tends to max(mean, lower) as σ → 0."""
    mean, sigma = np.asarray(mean_s, np.float64), np.asarray(sigma_s, np.float64)
    spread = np.where(sigma > 0, sigma, 1.0)
    with np.errstate(over="ignore"):
        z = np.clip((lower_s - mean) / spread, -_FARTHEST_SIGMAS, _FARTHEST_SIGMAS)
    tail = 0.5 * np.asarray(_erfc(z / _SQRT_2), np.float64)
    density = np.exp(-0.5 * z * z) / _SQRT_2PI
    known = (sigma <= 0) | (tail < _LEAST_TAIL)
    found: Column = np.where(known, np.maximum(mean, lower_s), mean + spread * density / np.maximum(tail, _LEAST_TAIL))
    return found
