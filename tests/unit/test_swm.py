"""When a sweeping watermark can be read: the lag of the maximum, and clumps."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slackwater.core.swm import DelayEstimator, SwmEstimator

NOW = 1_200_000.0


def test_known_delays_give_the_papers_own_estimate():
    """Delays 0.2 and 0.4 in one epoch, 0.6 in another: E[d] = (0.3 + 0.6) / 2."""
    estimator = DelayEstimator()
    estimator.observe_delays(2, 0.6, 0.2, 0.072)
    estimator.end_epoch()
    estimator.observe_delays(1, 0.6, 0.36, 0.216)
    estimator.end_epoch()
    arrival = estimator.arrival(NOW)
    assert arrival.wall_ts == pytest.approx(NOW + 0.45)
    assert arrival.sigma_s == pytest.approx(math.sqrt((0.1 + 0.36) / 2 - 0.45**2) * math.sqrt(1.5), abs=0.1)
    estimator.missed(NOW + 9, NOW)
    assert estimator.arrival(NOW) == arrival


def _rate_source(step_s: float, settle_s: float, reads_s: list[float]) -> SwmEstimator:
    """A source whose whole steps become readable `settle_s` after they end, last row 1 ms before the end."""
    estimator = SwmEstimator()
    for read_s in reads_s:
        clumps = math.floor((read_s - settle_s) / step_s)
        estimator.observe(NOW + read_s, NOW + clumps * step_s - 0.001)
    return estimator


def test_nothing_seen_means_no_lag_and_a_wide_guess():
    arrival = SwmEstimator().arrival(NOW)
    assert arrival.wall_ts == NOW
    assert arrival.sigma_s > 0


def test_mean_lag_is_the_mean_over_epochs_of_their_means():
    estimator = SwmEstimator()
    for lag_s in (1.0, 3.0):
        estimator.observe(NOW + lag_s, NOW)
    estimator.end_epoch()
    estimator.observe(NOW + 5.0, NOW)
    estimator.end_epoch()
    # Means of the epochs: 2 and 5, not (1 + 3 + 5) / 3.
    assert estimator.lag().mean_s == pytest.approx(3.5)


def test_variance_is_that_of_a_new_observation():
    estimator = SwmEstimator()
    for lag_s in (1.0, 3.0, 1.0, 3.0):
        estimator.observe(NOW + lag_s, NOW)
        estimator.end_epoch()
    # Mean 2, mean square (1 + 9 + 1 + 9) / 4 = 5, variance (5 − 4)·(1 + 1/4).
    assert estimator.lag().sigma_s == pytest.approx(math.sqrt(1.25))


def test_an_epoch_counts_before_it_has_ended():
    estimator = SwmEstimator()
    estimator.observe(NOW + 0.7, NOW)
    assert estimator.arrival(NOW + 60).wall_ts == pytest.approx(NOW + 60.7)


def test_an_epoch_without_batches_leaves_no_trace():
    estimator = SwmEstimator()
    estimator.observe(NOW + 0.7, NOW)
    estimator.end_epoch()
    before = estimator.lag()
    estimator.end_epoch()
    assert estimator.lag() == before


def test_history_is_bounded_and_old_epochs_are_forgotten():
    estimator = SwmEstimator(history=3)
    for lag_s in (100.0, 1.0, 1.0, 1.0):
        estimator.observe(NOW + lag_s, NOW)
        estimator.end_epoch()
    assert estimator.lag().mean_s == pytest.approx(1.0)


def test_a_steady_lag_becomes_surer_with_every_epoch():
    estimator = SwmEstimator()
    sigmas = []
    for epoch in range(20):
        estimator.observe(NOW + epoch * 10 + 0.5, NOW + epoch * 10)
        estimator.end_epoch()
        sigmas.append(estimator.lag().sigma_s)
    assert sigmas == sorted(sigmas, reverse=True)
    assert sigmas[-1] < 0.1


def test_clumps_of_a_rate_source_are_found():
    estimator = _rate_source(1.0, 0.05, [3.4, 5.7, 6.2, 9.9, 11.1, 14.3])
    # The event at 20.5 comes with the clump that ends at 21, which can be read 0.05 s later.
    arrival = estimator.arrival(NOW + 20.5)
    assert NOW + 20.99 <= arrival.wall_ts < NOW + 21.5


@pytest.mark.parametrize("within_s", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_every_event_time_within_a_clump_arrives_with_that_clump(within_s: float):
    estimator = _rate_source(1.0, 0.05, [3.4, 5.7, 6.2, 9.9, 11.1, 14.3])
    assert estimator.arrival(NOW + 20 + within_s).wall_ts == pytest.approx(
        estimator.arrival(NOW + 20.5).wall_ts, abs=1e-6
    )


def test_the_next_clump_arrives_one_step_later():
    estimator = _rate_source(1.0, 0.05, [3.4, 5.7, 6.2, 9.9, 11.1, 14.3])
    earlier, later = estimator.arrival(NOW + 20.5), estimator.arrival(NOW + 21.5)
    assert later.wall_ts - earlier.wall_ts == pytest.approx(1.0, abs=0.005)


def test_steps_of_a_minute_are_found():
    estimator = _rate_source(60.0, 2.0, [70.0, 200.0, 250.0, 430.0, 500.0])
    for _ in range(2):
        estimator.found_nothing()
    assert NOW + 599 <= estimator.arrival(NOW + 545).wall_ts <= NOW + 660


def test_a_batch_that_came_too_early_moves_the_estimate_later():
    estimator = _rate_source(1.0, 0.4, [3.41, 5.42, 7.41, 10.42, 12.41])
    before = estimator.arrival(NOW + 20.5).wall_ts
    assert before < NOW + 21.4
    estimator.missed(before, NOW + 20.5)
    assert estimator.arrival(NOW + 20.5).wall_ts > before


def test_misses_lead_to_the_true_arrival_in_a_few_steps():
    settle_s = 0.4
    estimator = _rate_source(1.0, settle_s, [3.41, 5.42, 7.41, 10.42, 12.41])
    truth = NOW + 21 + settle_s
    for _ in range(10):
        guess = estimator.arrival(NOW + 20.5).wall_ts
        if guess >= truth:
            break
        estimator.missed(guess, NOW + 20.5)
    assert truth <= estimator.arrival(NOW + 20.5).wall_ts < truth + 0.5


def test_a_miss_on_a_continuous_stream_is_harmless():
    estimator = SwmEstimator()
    estimator.observe(NOW + 0.5, NOW)
    before = estimator.arrival(NOW + 10)
    estimator.missed(NOW + 9, NOW + 10)
    assert estimator.arrival(NOW + 10) == before


@pytest.mark.parametrize("seed", range(50))
def test_a_continuous_stream_is_not_taken_for_clumps(seed: int):
    chance = random.Random(seed)
    estimator, wall_ts = SwmEstimator(), NOW
    for _ in range(12):
        wall_ts += chance.uniform(0.3, 12.0)
        estimator.observe(wall_ts, wall_ts - 0.4)
    assert estimator.arrival(NOW + 500).wall_ts == pytest.approx(NOW + 500.4, abs=1e-6)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["observe", "missed", "end_epoch"]),
            st.floats(0, 2e9),
            st.floats(-1e6, 2e9),
        ),
        max_size=40,
    ),
    st.floats(0, 2e9),
)
@example([("observe", 1e9 + i, 3e8 * i) for i in range(6)], 1e9)  # must not search for long
def test_the_estimate_is_finite_whatever_was_seen(events: list[tuple[str, float, float]], event_ts: float):
    estimator = SwmEstimator()
    for kind, wall_ts, seen_event_ts in events:
        if kind == "observe":
            estimator.observe(wall_ts, seen_event_ts)
        elif kind == "missed":
            estimator.missed(wall_ts, seen_event_ts)
        else:
            estimator.end_epoch()
    arrival = estimator.arrival(event_ts)
    assert math.isfinite(arrival.wall_ts)
    assert math.isfinite(arrival.sigma_s)
    assert arrival.sigma_s >= 0


def late_reader() -> SwmEstimator:
    """Rows come every second, but it looked only every ten, seven seconds after each deadline at 5, 15, 25, …"""
    estimator = SwmEstimator()
    for turn in range(5):
        estimator.observe(12.1 + 10 * turn, 11.999 + 10 * turn)
    return estimator


def test_whoever_always_looks_late_puts_the_long_step_to_the_test_and_finds_the_short_one():
    estimator = late_reader()
    assert estimator.arrival(55.0).wall_ts == pytest.approx(55.1, abs=0.01)
    estimator.observe(55.11, 54.999)
    assert estimator.arrival(65.0).wall_ts == pytest.approx(65.999, abs=0.2)
    assert estimator.arrival(64.9).wall_ts == pytest.approx(64.999, abs=0.2)


def test_a_step_that_is_long_indeed_is_trusted_after_two_tests_that_found_nothing():
    estimator = late_reader()
    estimator.found_nothing()
    assert estimator.arrival(55.0).wall_ts < 56
    estimator.found_nothing()
    assert estimator.arrival(55.0).wall_ts == pytest.approx(61.999, abs=0.2)
