"""The YSB oracle, by brute force in plain Python."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.errors import ConfigurationError
from slackwater.workloads.base import QuerySpec, window_phases_ms
from slackwater.workloads.rate_source import mixed, read_creation_ms, require_exact_event_times
from slackwater.workloads.ysb import YsbOracle, specs

CREATION_MS = 1_700_000_000_123


def spec(rate=100, window_s=2.0, delay_s=1.0, phase_ms=0, seed=7):
    return QuerySpec("q", rate, window_s, delay_s, phase_ms, seed)


def mixed_in_plain_python(number, seed):
    h = (number & 0x7FFFFFFF) ^ ((seed * 0x61C88647) & 0x7FFFFFFF)
    for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39)):
        product = (h ^ (h >> shift)) * factor
        assert product < 2**63, "Spark's ANSI mode would refuse this"
        h = product & 0x7FFFFFFF
    return h ^ (h >> 15)


def events(query, seconds):
    """(event time, ad, type) of the first seconds, straight from the definition."""
    for second in range(seconds):
        for k in range(query.rate):
            h = mixed_in_plain_python(second * query.rate + k, query.seed)
            yield CREATION_MS + 1000 * second + int(k * (1000 / query.rate) + 0.5), h % 1000, h // 1000 % 3


@given(number=st.integers(0, 2**40), seed=st.integers(0, 2**20))
def test_numpy_mixes_an_event_number_as_plain_python_does(number, seed):
    assert mixed(np.array([number]), seed)[0] == mixed_in_plain_python(number, seed)


@settings(max_examples=25, deadline=None)
@given(
    rate=st.sampled_from([1, 3, 7, 100, 333, 1000]),
    window_ms=st.integers(500, 4000),
    phase=st.floats(0, 0.99),
    seed=st.integers(0, 100),
)
def test_counts_of_every_window_agree_with_counting_events_one_by_one(rate, window_ms, phase, seed):
    query = spec(rate=rate, window_s=window_ms / 1000, phase_ms=int(phase * window_ms), seed=seed)
    oracle = YsbOracle(query, CREATION_MS)
    brute: dict[int, Counter[int]] = {}
    seconds = 10
    for event_ms, ad, kind in events(query, seconds):
        if kind == 0:
            start = event_ms - (event_ms - query.phase_ms) % query.window_ms
            brute.setdefault(start, Counter())[ad // 10] += 1
    whole = [start for start in brute if start + query.window_ms <= CREATION_MS + 1000 * seconds]
    for start in whole:
        assert oracle.expected(start) == sorted(brute[start].items())


def test_the_first_window_counts_only_what_came_after_the_source_was_created():
    query = spec(rate=1000, window_s=10.0)
    start = CREATION_MS - CREATION_MS % 10_000
    views = sum(count for _, count in YsbOracle(query, CREATION_MS).expected(start))
    inside = [kind for at, _, kind in events(query, 10) if at < start + 10_000]
    assert views == inside.count(0) < 10_000 / 3


def test_a_window_before_the_source_was_created_is_not_due():
    oracle = YsbOracle(spec(), CREATION_MS)
    assert oracle.windows_due(CREATION_MS - 60_000, CREATION_MS) == []


@given(phase_ms=st.integers(0, 1999), length_ms=st.integers(1, 20_000), offset_ms=st.integers(0, 5000))
@settings(max_examples=50, deadline=None)
def test_windows_are_due_when_their_deadline_lies_in_the_span(phase_ms, length_ms, offset_ms):
    oracle = YsbOracle(spec(phase_ms=phase_ms), CREATION_MS)
    from_ms = CREATION_MS + 10_000 + offset_ms
    found = oracle.windows_due(from_ms, from_ms + length_ms)
    assert all(from_ms <= w.deadline_ms < from_ms + length_ms for w in found)
    assert all(w.end_ms - w.start_ms == 2000 and w.deadline_ms - w.end_ms == 1000 for w in found)
    assert all((w.start_ms - phase_ms) % 2000 == 0 for w in found)
    assert len(found) in (length_ms // 2000, length_ms // 2000 + 1)


@given(deadline_after_ms=st.integers(0, 30_000), rate=st.sampled_from([1, 100, 1000]))
@settings(max_examples=50, deadline=None)
def test_a_deadline_is_ingestible_when_the_second_of_its_first_view_is_over(deadline_after_ms, rate):
    query = spec(rate=rate)
    deadline_ms = CREATION_MS + deadline_after_ms
    first = next(place for place, (at, _, kind) in enumerate(events(query, 100)) if at >= deadline_ms and kind == 0)
    assert YsbOracle(query, CREATION_MS).ingestible_ms(deadline_ms) == CREATION_MS + 1000 * (first // rate + 1)


@pytest.mark.parametrize("rate", [1, 100, 1000, 2000, 5000, 10_000, 20_000, 100_000])
def test_usual_rates_give_event_times_that_no_batch_boundary_changes(rate):
    require_exact_event_times(rate)
    step = 1000 / rate
    within = np.arange(rate)
    for seconds_before in (1, 7, 90):
        later = np.floor((within + seconds_before * rate) * step + 0.5) - 1000 * seconds_before
        assert (later == np.floor(within * step + 0.5)).all()


@pytest.mark.parametrize("rate", [0, -5, 6000])
def test_a_rate_whose_event_times_no_oracle_can_know_is_refused(rate):
    with pytest.raises(ConfigurationError):
        require_exact_event_times(rate)


@given(count=st.integers(1, 80), seed=st.integers(0, 50))
def test_spread_phases_put_one_query_into_each_slice_of_the_window(count, seed):
    places = sorted(window_phases_ms(count, 10_000, "spread", seed))
    assert [int(place * count / 10_000 + 1e-3) for place in places] == pytest.approx(range(count), abs=1)
    assert 0 <= places[0] <= places[-1] < 10_000
    assert window_phases_ms(count, 10_000, "spread", seed) == window_phases_ms(count, 10_000, "spread", seed)


def test_aligned_queries_end_their_windows_together_and_have_data_of_their_own():
    found = specs(12, rate=10, window_s=3.0, delay_s=1.0, phases="aligned", seed=3)
    assert {query.phase_ms for query in found} == {0}
    assert len({query.seed for query in found}) == len({query.name for query in found}) == 12


def test_the_creation_time_is_read_from_the_checkpoint(tmp_path):
    log = tmp_path / "sources" / "0" / "0"
    log.parent.mkdir(parents=True)
    log.write_text("v1\n1700000000123")
    assert read_creation_ms(tmp_path) == CREATION_MS
    log.write_text("v2\n{}")
    with pytest.raises(ConfigurationError, match="v2"):
        read_creation_ms(tmp_path)
