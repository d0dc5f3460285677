"""Delays by epoch: golden values by hand, and what must hold of any history."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.core.epochs import Delay, EpochHistory
from slackwater.core.regression import LinearRegression


def _history(*epochs, limit=400):
    history = EpochHistory(limit)
    for epoch in epochs:
        for delay in epoch:
            history.add(delay)
        history.end_epoch()
    return history


def test_mean_and_predictive_variance_by_hand():
    """Epochs {1, 3} and {2, 6}: μ = 2, 4; χ = 5, 20; E = 3; Var = (12.5 − 9)·(1 + 1/2) = 5.25."""
    delay = _history([1, 3], [2, 6]).delay()
    assert delay.mean_s == pytest.approx(3.0)
    assert delay.sigma_s == pytest.approx(math.sqrt(5.25))


def test_the_epoch_under_way_counts():
    history = _history([1.0])
    history.add(3.0)
    assert history.delay().mean_s == pytest.approx(2.0)


def test_only_the_last_epochs_count():
    assert _history([100.0], [1.0], [1.0], [1.0], limit=3).delay().mean_s == pytest.approx(1.0)


def test_an_epoch_without_events_is_none():
    history = _history([1.0])
    history.end_epoch()
    assert len(history) == 1


def test_many_events_at_once_are_the_same_as_one_by_one():
    values = np.array([0.5, 1.0, 4.0])
    history = EpochHistory()
    history.add_many(3, (float(values.sum()), float((values**2).sum()), float((values**3).sum())))
    history.end_epoch()
    assert history.delay() == _history(values.tolist()).delay()


def test_a_symmetric_range_is_mean_and_quantile_of_the_normal():
    low, high = Delay(10.0, 2.0).range_s(0.95)
    assert (low, high) == pytest.approx((10 - 1.95996 * 2, 10 + 1.95996 * 2), abs=1e-3)


def test_a_range_leans_towards_the_longer_tail():
    symmetric, leaning = Delay(10.0, 2.0).range_s(0.95), Delay(10.0, 2.0, skew=2.0).range_s(0.95)
    assert leaning[0] > symmetric[0]
    assert leaning[1] > symmetric[1]
    assert leaning[1] - leaning[0] == pytest.approx(symmetric[1] - symmetric[0])


@settings(deadline=None, max_examples=100)
@given(st.lists(st.lists(st.floats(-1e4, 1e6), max_size=5), max_size=12), st.integers(1, 6))
def test_what_is_expected_is_finite_always(epochs, limit):
    delay = _history(*epochs, limit=limit).delay()
    low, high = delay.range_s(0.95)
    assert all(math.isfinite(value) for value in (delay.mean_s, delay.sigma_s, delay.skew, low, high))
    assert delay.sigma_s > 0
    assert low <= high


def test_the_regression_follows_a_trend_and_knows_its_error():
    line = LinearRegression(history=50)
    for epoch in range(400):
        line.add(1.0 + 0.01 * epoch)
    assert line.delay().mean_s == pytest.approx(5.0, abs=0.5)
    assert line.delay().sigma_s < 1.0
