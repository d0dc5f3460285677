"""Expected slack (Klink Eq. 8–10, Algorithm 1), put right where the printed equations slip.

Slack is the time that is left until the sweeping watermark is expected, minus the cost of getting it to the sink.
The arrival is normal with mean μ and deviation σ; given that it has not come by now, its expectation is that of
the normal truncated below at now. Once even the sure time is past, the query is overdue and slack is minus the
time overdue minus the cost, so that among late queries the latest goes first. Finite always.
"""

from __future__ import annotations

import math

_SQRT_2 = math.sqrt(2)
_SQRT_2PI = math.sqrt(2 * math.pi)


def expected_slack(now_s: float, mean_s: float, sigma_s: float, sure_s: float, cost_s: float) -> float:
    """E[arrival | arrival ≥ now] − now − cost before the sure time; −(overdue + cost) after it."""
    if now_s >= sure_s:
        return -(now_s - sure_s) - cost_s
    return truncated_mean(now_s, mean_s, sigma_s) - now_s - cost_s


def truncated_mean(lower_s: float, mean_s: float, sigma_s: float) -> float:
    """Mean of a normal that is known to lie at or above `lower_s`; tends to max(mean, lower) as σ → 0."""
    if sigma_s <= 0:
        return max(mean_s, lower_s)
    z = (lower_s - mean_s) / sigma_s
    tail = 0.5 * math.erfc(z / _SQRT_2)
    if tail < 1e-12:
        return max(mean_s, lower_s)
    density = math.exp(-0.5 * z * z) / _SQRT_2PI
    return mean_s + sigma_s * density / tail
