"""The lateness sketch: 1 % right, mergeable, and an allowed lateness that is not below what is needed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.errors import ConfigurationError
from slackwater.late.lateness import RELATIVE_ERROR, LatenessHistory, LatenessSketch, events_needed
from slackwater.late.staleness import fewest

latenesses = st.lists(st.one_of(st.just(-1.0), st.just(0.0), st.floats(0.001, 1e6)), min_size=1, max_size=200)
RIGHT = RELATIVE_ERROR + 1e-9


def sketch_of(values):
    sketch = LatenessSketch()
    sketch.add_many(np.array(values, dtype=float))
    return sketch


@settings(deadline=None, max_examples=60)
@given(latenesses, st.floats(0.0, 1.0))
def test_quantiles_are_right_to_one_percent(values, share):
    rank = max(1, math.ceil(share * len(values)))
    true = max(0.0, sorted(values)[rank - 1])
    assert abs(sketch_of(values).quantile(share) - true) <= RIGHT * true


@settings(deadline=None, max_examples=60)
@given(latenesses, latenesses)
def test_merging_is_the_same_as_having_seen_all(some, others):
    merged = sketch_of(some)
    merged.merge(sketch_of(others))
    assert merged == sketch_of(some + others)
    assert merged.count == len(some) + len(others)


@settings(deadline=None, max_examples=60)
@given(latenesses)
def test_one_by_one_is_the_same_as_all_at_once_and_json_brings_it_back(values):
    sketch = LatenessSketch()
    for value in values:
        sketch.add(value)
    assert sketch == sketch_of(values)
    assert LatenessSketch.from_json(sketch.to_json()) == sketch


@settings(deadline=None, max_examples=60)
@given(latenesses, st.floats(0.001, 1e6))
def test_the_share_beyond_a_lateness_is_never_told_too_small(values, lateness_s):
    sketch = sketch_of(values)
    beyond = [value for value in values if value > lateness_s]
    beyond_a_bucket_less = [value for value in values if value > lateness_s / (1 + 2.1 * RELATIVE_ERROR)]
    assert len(beyond) <= round(sketch.share_beyond(lateness_s) * len(values)) <= len(beyond_a_bucket_less)


def test_events_on_time_are_counted_and_the_extremes_keep_the_number_of_buckets_bounded():
    sketch = sketch_of([-5.0, 0.0, 1e-9, 1e30, 3.0])
    assert (sketch.on_time, sketch.late_count, sketch.late_share) == (2, 3, 0.6)
    assert sketch.share_beyond(0.0) == 0.6
    assert sketch.share_beyond(-1.0) == 1.0
    assert max(sketch.late) - min(sketch.late) < 1500
    assert sketch.quantile(0.4) == 0.0


def test_the_largest_of_299_events_is_the_first_bound_for_99_percent():
    assert events_needed(0.99, 0.95) == 299
    values = list(range(1, 300))
    assert sketch_of(values[:298]).allowed_lateness() is None
    bound = sketch_of(values).allowed_lateness()
    assert bound is not None
    assert 299 <= bound <= 299 * (1 + 2.1 * RELATIVE_ERROR)


@pytest.mark.parametrize(("events", "may_exceed"), [(299, 0), (472, 0), (473, 1), (1000, 4), (100_000, 948)])
def test_the_rank_is_the_binomial_one(events, may_exceed):
    # Exceedances of the true quantile are Binomial(n, 0.01); checked against tables of tolerance limits.
    sketch = LatenessSketch()
    sketch.add(1.0, events - may_exceed)
    sketch.add(100.0, may_exceed)
    assert sketch.allowed_lateness() == pytest.approx(1.0, rel=0.03)
    sketch = LatenessSketch()
    sketch.add(1.0, events - may_exceed - 1)
    sketch.add(100.0, may_exceed + 1)
    assert sketch.allowed_lateness() == pytest.approx(100.0, rel=0.03)


def test_coverage_is_of_all_events_or_of_the_late_ones():
    sketch = LatenessSketch()
    sketch.add(0.0, 9950)
    sketch.add(10.0, 50)
    assert sketch.allowed_lateness() == 0.0
    assert sketch.allowed_lateness(late_only=True) is None
    sketch.add(10.0, 450)
    assert sketch.allowed_lateness() == pytest.approx(10.0, rel=0.03)
    assert sketch.allowed_lateness(late_only=True) == pytest.approx(10.0, rel=0.03)


def test_shares_that_are_none_are_refused():
    with pytest.raises(ConfigurationError, match="coverage of 1"):
        LatenessSketch().allowed_lateness(coverage=1.0)
    with pytest.raises(ValueError, match="no event"):
        LatenessSketch().quantile(0.5)
    with pytest.raises(ConfigurationError, match="two blocks"):
        LatenessHistory(blocks=1)


def test_the_staleness_trigger_can_be_planned_from_what_was_seen():
    sketch = sketch_of(np.random.default_rng(0).lognormal(0.0, 1.0, 5000))
    cdf = sketch.cdf(10.0)
    assert cdf.by(1.0) == pytest.approx(0.5 / 0.99, abs=0.03)
    assert cdf.by(10.0) == 1.0
    assert 3 <= len(fewest(cdf, 0.05)) <= 5


def fed(history, drawn, batch=50):
    for place in range(0, len(drawn), batch):
        history.add(sketch_of(drawn[place : place + batch]))
        yield history.allowed_lateness()


def test_the_allowed_lateness_covers_more_often_than_the_confidence_asks():
    needed = math.exp(2.3263)
    covers = []
    for trial in range(200):
        *_, bound = fed(LatenessHistory(), np.random.default_rng(trial).lognormal(0.0, 1.0, 1500), 500)
        assert bound is not None
        covers.append(bound >= needed)
    assert np.mean(covers) >= 0.95


def test_after_a_shift_upwards_it_is_right_again_within_two_blocks_and_downwards_within_three():
    needed = math.exp(2.3263)
    up, down = [], []
    for trial in range(20):
        rng = np.random.default_rng(trial)
        history = LatenessHistory()
        list(fed(history, rng.lognormal(0.0, 1.0, 5000 + int(rng.integers(500)))))
        bounds = np.array(list(fed(history, 4 * rng.lognormal(0.0, 1.0, 4000))), dtype=float)
        up.append(50 * (1 + int((bounds >= 4 * needed).argmax())))
        bounds = np.array(list(fed(history, rng.lognormal(0.0, 1.0, 4000))), dtype=float)
        down.append(50 * (1 + int((bounds <= 2 * needed).argmax())))
    assert np.quantile(up, 0.9) <= 1000
    assert np.quantile(down, 0.9) <= 1500


def test_a_steady_stream_is_remembered_up_to_the_limit_and_no_further():
    history = LatenessHistory(block_events=500, blocks=4)
    list(fed(history, np.random.default_rng(1).lognormal(0.0, 1.0, 10_000)))
    assert 1500 <= history.sketch().count < 2000


def test_a_history_comes_back_from_json_and_goes_on_alike():
    rng = np.random.default_rng(2)
    history = LatenessHistory()
    list(fed(history, rng.lognormal(0.0, 1.0, 3300)))
    again = LatenessHistory.from_json(history.to_json())
    assert again.sketch() == history.sketch()
    more = 4 * rng.lognormal(0.0, 1.0, 1500)
    assert list(fed(again, more)) == list(fed(history, more))
