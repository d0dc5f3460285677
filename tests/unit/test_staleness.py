"""Placing re-executions: greedy is the fewest, balanced the least stale, and the trigger keeps its word."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.errors import ConfigurationError
from slackwater.late.staleness import LateCdf, StalenessTrigger, deltaev, deltat, fewest, least, staleness

SPAN_S = 60.0
UNIFORM = LateCdf.of(((SPAN_S * (place + 0.5) / 2000, 1.0) for place in range(2000)), SPAN_S)
HAIR = 1 + 1e-9

times_s = st.floats(0.001, SPAN_S, allow_nan=False)
cdfs = st.lists(st.tuples(times_s, st.integers(1, 50)), min_size=1, max_size=30).map(
    lambda late: LateCdf.of(((at_s, float(weight)) for at_s, weight in late), SPAN_S)
)
bounds = st.floats(0.002, 0.9)


@settings(deadline=None, max_examples=60)
@given(cdfs, bounds)
def test_the_bound_is_kept_on_a_fine_grid(cdf, bound):
    times = fewest(cdf, bound)
    assert staleness(cdf, times) <= bound * HAIR
    for place in range(601):
        now = SPAN_S * place / 600
        last = max((time for time in times if time <= now), default=0.0)
        assert (now - last) * (cdf.by(now) - cdf.by(last)) / SPAN_S <= bound * HAIR


@settings(deadline=None, max_examples=60)
@given(cdfs, bounds)
def test_every_late_event_is_in_some_execution_and_there_are_never_more_than_cauchy_allows(cdf, bound):
    times = fewest(cdf, bound)
    assert cdf.by(times[-1]) == 1.0
    assert len(times) <= math.ceil(1 / math.sqrt(bound) * HAIR)
    assert list(times) == sorted(set(times))


@settings(deadline=None, max_examples=60)
@given(cdfs, st.lists(times_s, max_size=12))
def test_no_other_placement_that_keeps_the_bound_has_fewer_executions(cdf, times):
    placed = sorted({*times, SPAN_S})
    kept = staleness(cdf, placed)
    if kept >= 1e-6:
        assert len(fewest(cdf, min(1.0, kept * HAIR))) <= len(placed)


@settings(deadline=None, max_examples=60)
@given(cdfs, st.lists(times_s, max_size=8))
def test_no_other_placement_of_as_many_executions_is_less_stale(cdf, times):
    placed = sorted({*times, SPAN_S})
    bound, best = least(cdf, len(placed))
    assert len(best) <= len(placed)
    assert bound <= staleness(cdf, placed) + 1e-12
    assert cdf.by(best[-1]) == 1.0


@settings(deadline=None, max_examples=60)
@given(cdfs, st.integers(1, 20))
def test_the_least_staleness_is_never_above_equal_distances_in_time_or_in_events(cdf, executions):
    bound, _ = least(cdf, executions)
    assert bound <= staleness(cdf, deltat(cdf, executions)) + 1e-12
    assert bound <= staleness(cdf, deltaev(cdf, executions)) + 1e-12


@settings(deadline=None, max_examples=60)
@given(cdfs, bounds)
def test_bisection_finds_the_bound_again(cdf, bound):
    assert least(cdf, len(fewest(cdf, bound)))[0] <= bound * HAIR


def test_a_uniform_stream_is_best_executed_at_equal_distances():
    bound, times = least(UNIFORM, 4)
    assert bound == pytest.approx(1 / 16, rel=1e-2)
    assert times == pytest.approx((15, 30, 45, 60), rel=1e-2)
    assert deltaev(UNIFORM, 4) == pytest.approx(deltat(UNIFORM, 4), rel=1e-2)


def test_events_that_come_together_are_executed_as_they_come():
    cdf = LateCdf.of([(10.0, 9.0), (50.0, 1.0)], SPAN_S)
    assert fewest(cdf, 0.001)[0] == 10.0
    assert staleness(cdf, (10.0, 50.0)) == 0.0
    assert staleness(cdf, (50.0,)) == pytest.approx(50 / 60 * 0.9)
    assert staleness(cdf, ()) == 1.0


def test_a_window_that_nothing_comes_late_for_is_not_executed_again():
    empty = LateCdf.of([(0.0, 1.0), (SPAN_S + 1, 1.0)], SPAN_S)
    assert fewest(empty, 0.1) == ()
    assert least(empty, 3) == (0.0, ())
    assert deltaev(empty, 3) == ()


def test_what_cannot_be_asked_for_is_said():
    with pytest.raises(ConfigurationError, match="staleness bound of 0"):
        fewest(UNIFORM, 0.0)
    with pytest.raises(ConfigurationError, match="0 executions"):
        least(UNIFORM, 0)
    with pytest.raises(ConfigurationError, match="span of -1"):
        LateCdf.of([], -1.0)


def _follow(trigger, arrivals, span_s=SPAN_S):
    """Events by time; executions whenever due. Gives their number and the greatest t·n/T, counted here."""
    count, worst, last, now, pending = 0, 0.0, 0.0, 0.0, 0
    for at_s, events in sorted(({span_s: 0} | arrivals).items()):
        while pending and (told := trigger.next_s(now)) < at_s:
            now = told
            if trigger.due(now):
                worst, count, last, pending = max(worst, (now - last) * pending), count + 1, now, 0
                trigger.executed(now)
        now = at_s
        worst = max(worst, (now - last) * pending)
        trigger.arrived(now, events)
        pending += events
        if trigger.due(now):
            trigger.executed(now)
            count, last, pending = count + 1, now, 0
    assert trigger.pending == pending == 0
    return count, worst / span_s


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(times_s, st.integers(1, 100), min_size=1, max_size=60),
    cdfs,
    st.integers(0, 2000),
    st.floats(0.005, 0.9),
)
def test_the_trigger_keeps_the_bound_whatever_was_predicted(arrivals, cdf, expected, bound):
    trigger = StalenessTrigger(bound, cdf, expected)
    _, worst = _follow(trigger, arrivals)
    assert worst <= bound * max(expected, sum(arrivals.values())) * HAIR
    assert trigger.due(SPAN_S) is None


def test_with_the_events_that_were_predicted_the_trigger_executes_as_seldom_as_possible():
    arrivals = {SPAN_S * (place + 0.5) / 2000: 1 for place in range(2000)}
    for bound in (0.1, 0.05, 0.02):
        count, worst = _follow(StalenessTrigger(bound, UNIFORM, 2000), arrivals)
        assert count == len(fewest(UNIFORM, bound))
        assert worst / 2000 <= bound


def test_an_execution_is_told_ahead_and_comes_earlier_when_more_events_come():
    trigger = StalenessTrigger(0.05, UNIFORM, 1000)
    told = trigger.next_s(0.0)
    assert SPAN_S / 5 <= told < SPAN_S / 4
    trigger.arrived(6.0, 300)
    assert 6.0 < trigger.next_s(6.0) < told
    assert trigger.due(6.0) is None
    trigger.arrived(6.1, 3000)
    assert trigger.due(6.1) == "late"


def test_a_new_prediction_moves_the_next_execution():
    trigger = StalenessTrigger(0.05, UNIFORM, 1000)
    trigger.arrived(1.0, 10)
    before = trigger.next_s(1.0)
    trigger.replan(LateCdf.of([(2.0, 9.0), (59.0, 1.0)], SPAN_S), 1000)
    assert trigger.next_s(1.0) < before
    trigger.replan(LateCdf.of([(59.0, 1.0)], SPAN_S), 1000)
    assert trigger.next_s(1.0) > before
    with pytest.raises(ValueError, match=r"span is 60"):
        trigger.replan(LateCdf.of([(1.0, 1.0)], 10.0), 1000)


def test_the_window_ends_with_one_final_execution_and_then_takes_nothing_more():
    trigger = StalenessTrigger(0.5, UNIFORM, 1000)
    trigger.arrived(59.0)
    assert trigger.due(59.0) is None
    assert trigger.due(SPAN_S) == "final"
    assert trigger.pending == 1
    trigger.executed(SPAN_S)
    assert trigger.due(SPAN_S) is None
    with pytest.raises(ValueError, match="dead letters"):
        trigger.arrived(SPAN_S)


def test_staleness_is_counted_from_the_last_execution_with_what_came_since():
    trigger = StalenessTrigger(0.5, UNIFORM, 100)
    assert trigger.staleness(30.0) == 0.0
    trigger.arrived(0.0, 50)
    assert trigger.staleness(0.0) == 0.0
    assert trigger.staleness(6.0) == pytest.approx(6 / 60 * 50 / 100)
    trigger.executed(6.0)
    assert trigger.staleness(12.0) == 0.0


def test_with_no_prediction_at_all_what_has_come_is_taken_for_everything():
    trigger = StalenessTrigger(0.05, LateCdf.of([], SPAN_S), 0)
    assert trigger.next_s(0.0) == SPAN_S
    trigger.arrived(1.0, 5)
    assert trigger.next_s(1.0) == pytest.approx(0.05 * SPAN_S, rel=0.5)
