"""From priorities to nice and weights: in range, in order, and with the ratios that were asked for."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slackwater.errors import ConfigurationError
from slackwater.translators.normalise import (
    FULL,
    NICE_WEIGHTS,
    NOT_ABOVE_OTHERS,
    V1_SHARES,
    V2_WEIGHT,
    NiceRange,
    exact,
    logarithmic,
    min_max,
    shares,
)


def rescaled(priorities, span):
    return logarithmic(priorities, span, "rescale")


finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(0, 1e300)
ranges = st.tuples(st.integers(-20, 19), st.integers(-20, 19)).map(lambda ends: NiceRange(min(ends), max(ends)))
ratios = st.sampled_from([logarithmic, rescaled, exact])


def schedules(values):
    return st.dictionaries(st.integers(0, 20), values, max_size=10)


def in_order(priorities, nices, span):
    assert nices.keys() == priorities.keys()
    for one in priorities:
        assert span.best <= nices[one] <= span.worst
        for other in priorities:
            if priorities[one] > priorities[other]:
                assert nices[one] <= nices[other]
            if priorities[one] == priorities[other]:
                assert nices[one] == nices[other]


@given(schedules(finite), ranges)
def test_min_max_keeps_the_order_and_uses_the_whole_range(priorities, span):
    nices = min_max(priorities, span)
    in_order(priorities, nices, span)
    if len(set(priorities.values())) > 1 and max(priorities.values()) / 2 > min(priorities.values()) / 2:
        assert nices[max(priorities, key=priorities.__getitem__)] == span.best
        assert nices[min(priorities, key=priorities.__getitem__)] == span.worst


@given(schedules(positive), ranges, ratios)
def test_ratios_keep_the_order_and_the_most_urgent_is_at_the_best(priorities, span, scale):
    nices = scale(priorities, span)
    in_order(priorities, nices, span)
    if len(set(priorities.values())) > 1:
        assert nices[max(priorities, key=priorities.__getitem__)] == span.best


@given(schedules(st.floats(1e-3, 1e3)), ranges, st.sampled_from([2.0**-9, 2.0**9]), ratios)
def test_only_ratios_count(priorities, span, factor, scale):
    scaled = {key: factor * priority for key, priority in priorities.items()}
    near, far = scale(priorities, span), scale(scaled, span)
    assert all(abs(near[key] - far[key]) <= 1 for key in priorities)


@given(st.integers(0, 39), ranges)
def test_a_ratio_of_so_many_steps_is_so_many_steps_apart(steps, span):
    assume(0 < steps <= span.worst - span.best)
    assert logarithmic({"a": 1.25**steps, "b": 1.0}, span) == {"a": span.best, "b": span.best + steps}


@given(st.integers(-20, 19), st.integers(-20, 19))
def test_exact_finds_every_weight_of_the_kernels_table(one, other):
    assume(one < other)
    weights = {"a": float(NICE_WEIGHTS[one + 20]), "b": float(NICE_WEIGHTS[other + 20])}
    assert exact(weights, NiceRange(one, 19)) == {"a": one, "b": other}


@given(schedules(st.floats(1e-2, 1e2)))
def test_exact_is_never_further_off_than_half_a_step(priorities):
    assume(len(set(priorities.values())) > 1)
    nices = exact(priorities, FULL)
    greatest = max(priorities.values())
    for key, priority in priorities.items():
        got = NICE_WEIGHTS[nices[key] + 20] / NICE_WEIGHTS[0]
        if nices[key] < FULL.worst:
            assert abs(math.log(got) - math.log(priority / greatest)) <= math.log(1.28) / 2 + 1e-9


def test_the_kernels_table_goes_by_about_a_quarter_a_step():
    steps = [more / less for more, less in pairwise(NICE_WEIGHTS)]
    assert len(NICE_WEIGHTS) == 40
    assert NICE_WEIGHTS[20] == 1024
    assert 1.19 < min(steps) <= max(steps) < 1.29


def test_ratios_that_do_not_fit_are_clamped_or_rescaled():
    priorities = {"a": 1e6, "b": 1e6 / 1.25, "c": 1.0, "d": 0.5, "e": 0.0}
    assert logarithmic(priorities) == {"a": 0, "b": 1, "c": 19, "d": 19, "e": 19}
    assert logarithmic(priorities, overflow="rescale") == {"a": 0, "b": 0, "c": 18, "d": 19, "e": 19}


@pytest.mark.parametrize("scale", [min_max, logarithmic, rescaled, exact])
@pytest.mark.parametrize("alike", [{}, {"a": 7.0}, {"a": 0.0}, {"a": 3.0, "b": 3.0}, {"a": 0.0, "b": 0.0}])
def test_no_preference_is_neutral(scale, alike):
    assert scale(alike, FULL) == dict.fromkeys(alike, 0)
    assert scale(alike, NiceRange(5, 19)) == dict.fromkeys(alike, 5)
    assert shares(alike, V1_SHARES) == dict.fromkeys(alike, 1024)
    assert shares(alike, V2_WEIGHT) == dict.fromkeys(alike, 100)


@given(schedules(positive), st.sampled_from([V1_SHARES, V2_WEIGHT]))
def test_weights_are_in_range_in_order_and_in_proportion(priorities, span):
    weights = shares(priorities, span)
    assert weights.keys() == priorities.keys()
    greatest = max(priorities.values(), default=0)
    for key, weight in weights.items():
        assert span.least <= weight <= span.most
        if len(set(priorities.values())) > 1 and weight > span.least:
            assert abs(weight / span.most - priorities[key] / greatest) <= 1 / span.most
        for other in weights:
            if priorities[key] > priorities[other]:
                assert weight >= weights[other]


def test_zero_is_as_little_as_there_is():
    assert shares({"a": 1.0, "b": 0.0}, V1_SHARES) == {"a": 262144, "b": 2}
    assert shares({"a": 8.0, "b": 1.0}, V2_WEIGHT) == {"a": 10000, "b": 1250}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(bad):
    for scale in (min_max, logarithmic, exact):
        with pytest.raises(ConfigurationError, match="finite"):
            scale({"a": bad, "b": 1.0}, NOT_ABOVE_OTHERS)
    with pytest.raises(ConfigurationError, match="finite"):
        shares({"a": bad}, V2_WEIGHT)


def test_negative_ratios_are_refused_and_pointed_to_min_max():
    for scale in (logarithmic, exact):
        with pytest.raises(ConfigurationError, match="min_max"):
            scale({"a": -1.0, "b": 1.0}, NOT_ABOVE_OTHERS)
    with pytest.raises(ConfigurationError, match="negative"):
        shares({"a": -1.0, "b": 1.0}, V1_SHARES)
    assert min_max({"a": -1.0, "b": 1.0}, FULL) == {"a": 19, "b": -20}


def test_ranges_outside_the_kernels_are_refused():
    for best, worst in ((-21, 0), (0, 20), (3, 2)):
        with pytest.raises(ConfigurationError, match="-20"):
            NiceRange(best, worst)
