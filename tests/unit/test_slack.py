"""Expected slack under a normal arrival that has not happened yet."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.core.slack import expected_slack, truncated_mean

moments = st.floats(-1e4, 1e4)
sigmas = st.floats(0, 1e3)
costs = st.floats(0, 1e3)


@pytest.mark.parametrize(
    ("lower", "mean", "sigma", "expected"),
    [
        # At the mean: μ + σ·φ(0)/½ = μ + σ·√(2/π).
        (10.0, 10.0, 1.0, 10.0 + math.sqrt(2 / math.pi)),
        (10.0, 10.0, 3.0, 10.0 + 3 * math.sqrt(2 / math.pi)),
        # One σ past the mean: φ(1)/(1 − Φ(1)) = 0.24197/0.15866 = 1.52514.
        (11.0, 10.0, 1.0, 11.52514),
        # One σ before: φ(1)/Φ(1) = 0.24197/0.84134 = 0.28760.
        (9.0, 10.0, 1.0, 10.28760),
        # Long before it, nothing is cut off.
        (0.0, 100.0, 1.0, 100.0),
    ],
)
def test_truncated_mean_by_hand(lower: float, mean: float, sigma: float, expected: float):
    assert truncated_mean(lower, mean, sigma) == pytest.approx(expected, abs=1e-4)


def test_slack_long_before_the_watermark_is_the_time_left_minus_the_cost():
    assert expected_slack(0.0, 100.0, 1.0, 101.6, 2.0) == pytest.approx(98.0)


def test_slack_at_the_expected_time_still_hopes_for_the_rest_of_the_distribution():
    slack = expected_slack(10.0, 10.0, 1.0, 11.645, 0.5)
    assert slack == pytest.approx(math.sqrt(2 / math.pi) - 0.5)


def test_slack_past_the_sure_time_is_minus_overdue_minus_cost():
    assert expected_slack(15.0, 10.0, 1.0, 12.0, 0.5) == -3.5


def test_the_query_that_is_overdue_longest_has_the_least_slack():
    overdue = [expected_slack(100.0, sure - 1, 0.5, sure, 0.3) for sure in (99.0, 95.0, 70.0)]
    assert overdue == sorted(overdue, reverse=True)


@settings(deadline=None, max_examples=300)
@given(moments, moments, sigmas, costs, st.floats(0, 1e4), st.floats(0, 4))
def test_slack_falls_as_time_passes(
    now: float, mean: float, sigma: float, cost: float, passed: float, sure_sigmas: float
):
    sure = mean + sure_sigmas * sigma
    before = expected_slack(now, mean, sigma, sure, cost)
    after = expected_slack(now + passed, mean, sigma, sure, cost)
    assert after <= before + 1e-6


@settings(deadline=None, max_examples=200)
@given(moments, moments, sigmas, costs, costs)
def test_slack_falls_by_exactly_what_the_cost_grows(now: float, mean: float, sigma: float, cost: float, more: float):
    sure = mean + 1.645 * sigma
    cheap = expected_slack(now, mean, sigma, sure, cost)
    dear = expected_slack(now, mean, sigma, sure, cost + more)
    assert cheap - dear == pytest.approx(more, abs=1e-6)


@settings(deadline=None, max_examples=200)
@given(moments, st.floats(0.01, 1e4), costs)
def test_without_doubt_slack_is_the_time_left_minus_the_cost(now: float, left: float, cost: float):
    mean = now + left
    certain = left - cost
    assert expected_slack(now, mean, 0.0, mean, cost) == pytest.approx(certain, abs=1e-6)
    assert expected_slack(now, mean, 1e-4, mean + 1.645e-4, cost) == pytest.approx(certain, abs=1e-3)


@settings(deadline=None, max_examples=300)
@given(
    st.floats(-1e12, 1e12),
    st.floats(-1e12, 1e12),
    st.floats(0, 1e12) | st.floats(0, 1e-300),
    st.floats(0, 1e12),
    st.floats(0, 1e12),
)
def test_slack_is_finite_always(now: float, mean: float, sigma: float, later: float, cost: float):
    assert math.isfinite(expected_slack(now, mean, sigma, mean + later, cost))


@settings(deadline=None, max_examples=200)
@given(moments, moments, sigmas)
def test_what_has_not_come_yet_is_expected_now_or_later(now: float, mean: float, sigma: float):
    assert truncated_mean(now, mean, sigma) >= max(now, mean) - 1e-6
