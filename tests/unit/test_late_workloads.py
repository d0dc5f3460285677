"""Late events by their definition, and the oracles against counting rows one by one."""

from __future__ import annotations

from collections import Counter
from math import log
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.errors import ConfigurationError
from slackwater.workloads.bigrams import Bigrams
from slackwater.workloads.late_events import (
    BURST,
    LATENESS_STREAM,
    LOG_NORMAL,
    QUIET,
    LateSpec,
    event_times_ms,
    window_counts,
)
from slackwater.workloads.late_workloads import LATE_WORKLOADS
from slackwater.workloads.linear_road_60s import LinearRoad60s
from slackwater.workloads.rate_source import mixed, row_times_ms
from slackwater.workloads.stock_market import StockMarket

CREATED_MS = 1_700_000_000_123
MIX = ((0.6, NormalDist(1, 0.4)), (0.3, NormalDist(4, 0.6)), (0.1, NormalDist(8, 0.6)))


def spec(rate=100, window_s=2.0, past_windows=3, seed=7, **more):
    return LateSpec("late", rate, window_s, past_windows, 64, seed, **more)


def past_windows_of(query, numbers):
    rows = np.arange(numbers)
    behind_ms = row_times_ms(rows, query.rate, CREATED_MS) - event_times_ms(query, CREATED_MS, rows)
    assert (behind_ms % query.window_ms == 0).all()
    return behind_ms // query.window_ms


def late_by(k):
    """How many of the late rows of a burst are k windows late or more."""
    return 1.0 if k == 1 else sum(weight * (1 - part.cdf(k - 0.5)) for weight, part in MIX)


@pytest.mark.parametrize("k", range(1, 11))
def test_thresholds_are_those_of_the_log_normal_and_of_the_mix_of_normals(k):
    late = 1 - NormalDist().cdf(log(1.5))
    assert LOG_NORMAL[k - 1] / 2**31 == pytest.approx(NormalDist().cdf(log(k + 0.5)), abs=1e-9)
    assert QUIET[k - 1] / 2**31 == pytest.approx(1 - late / 1.5 * late_by(k), abs=1e-9)
    assert BURST[k - 1] / 2**31 == pytest.approx(1 - 4 * late / 1.5 * late_by(k), abs=1e-9)


@pytest.mark.parametrize("seed", [0, 1, 2, 77])
def test_lateness_follows_the_rounded_log_normal(seed):
    found = np.bincount(past_windows_of(spec(rate=1000, past_windows=10, seed=seed), 200_000), minlength=11) / 200_000
    drawn = np.random.default_rng(seed).lognormal(0, 1, 1_000_000)
    by_definition = np.clip(np.round(drawn) - 1, 0, 10).astype(int)
    assert found == pytest.approx(np.bincount(by_definition, minlength=11) / 1_000_000, abs=0.005)


@given(past_windows=st.integers(1, 10), seed=st.integers(0, 1000), bursts=st.booleans())
@settings(max_examples=30, deadline=None)
def test_no_row_is_later_than_the_past_windows_and_those_beyond_stay_in_the_last(past_windows, seed, bursts):
    all_of_them = past_windows_of(spec(past_windows=10, seed=seed, bursts=bursts), 3000)
    clipped = past_windows_of(spec(past_windows=past_windows, seed=seed, bursts=bursts), 3000)
    assert (clipped == np.minimum(all_of_them, past_windows)).all()


def test_bursts_have_four_times_as_many_late_rows_and_no_more_than_the_log_normal_in_all():
    late = past_windows_of(spec(rate=1000, bursts=True), 360_000) > 0
    by_second = late.reshape(6, 60, 1000).mean(axis=(0, 2))
    assert by_second[:10].mean() == pytest.approx(4 * by_second[10:].mean(), rel=0.05)
    assert late.mean() == pytest.approx(1 - NormalDist().cdf(log(1.5)), abs=0.005)


def test_lateness_says_nothing_about_what_a_row_holds():
    numbers = np.arange(100_000)
    assert abs(np.corrcoef(mixed(numbers, 5, LATENESS_STREAM), mixed(numbers, 5, 2))[0, 1]) < 0.01


@given(
    window_ms=st.integers(100, 5000),
    slide_share=st.floats(0.1, 1.0),
    seed=st.integers(0, 50),
    bursts=st.booleans(),
    first=st.integers(0, 10_000),
)
@settings(max_examples=25, deadline=None)
def test_window_counts_are_those_of_counting_one_by_one(window_ms, slide_share, seed, bursts, first):
    slide_ms = max(1, round(window_ms * slide_share))
    query = spec(window_s=window_ms / 1000, slide_s=slide_ms / 1000, seed=seed, bursts=bursts)
    numbers = range(first, first + 300)
    brute: Counter[int] = Counter()
    for event_ms in event_times_ms(query, CREATED_MS, np.array(numbers)).tolist():
        start = event_ms // slide_ms * slide_ms
        while start + window_ms > event_ms:
            brute[start] += 1
            start -= slide_ms
    assert window_counts(query, CREATED_MS, numbers) == brute


@pytest.mark.parametrize("name", LATE_WORKLOADS)
def test_tumbling_windows_hold_every_row_once_and_each_has_a_result(name):
    query, numbers = spec(window_s=5.0), range(3000)
    workload = LATE_WORKLOADS[name]
    counts = workload.window_counts(query, CREATED_MS, numbers)
    assert sum(counts.values()) == len(numbers)
    found = workload.expected(query, CREATED_MS, numbers)
    assert found.keys() == counts.keys()
    assert all(rows and rows == sorted(rows) for rows in found.values())


@pytest.mark.parametrize("name", LATE_WORKLOADS)
def test_no_rows_have_no_windows(name):
    assert LATE_WORKLOADS[name].expected(spec(), CREATED_MS, range(0)) == {}
    assert LATE_WORKLOADS[name].window_counts(spec(), CREATED_MS, range(0)) == {}


@pytest.mark.parametrize("name", LATE_WORKLOADS)
def test_a_result_changes_when_a_late_row_comes_and_not_otherwise(name):
    query, workload = spec(rate=50, window_s=5.0), LATE_WORKLOADS[name]
    before = workload.expected(query, CREATED_MS, range(1500))
    after = workload.expected(query, CREATED_MS, range(1600))
    touched = workload.window_counts(query, CREATED_MS, range(1500, 1600)).keys()
    assert {start for start in after if before.get(start) != after[start]} <= touched
    if name == "average":
        assert {start for start in after if before.get(start) != after[start]} == touched


@pytest.mark.parametrize("name", LATE_WORKLOADS)
def test_the_papers_settings_are_there(name):
    workload = LATE_WORKLOADS[name]
    assert {
        "average": (10_000, 20.0, 2304),
        "bigrams": (5000, 30.0, 3584),
        "stock-market": (10_000, 30.0, 1664),
        "linear-road": (10_000, 60.0, 1536),
    }[name] == (workload.rate, workload.window_s, workload.payload_bytes)


@pytest.mark.parametrize(
    "wrong",
    [
        {"past_windows": 0},
        {"past_windows": 11},
        {"window_s": 0.0},
        {"slide_s": 3.0},
        {"slide_s": 0.0},
    ],
)
def test_a_stream_that_cannot_be_is_refused(wrong):
    with pytest.raises(ConfigurationError):
        spec(**wrong)


def test_a_payload_of_nothing_is_refused():
    with pytest.raises(ConfigurationError):
        LateSpec("late", 100, 2.0, 1, 0, 7)


def test_bigrams_do_not_reach_from_one_post_into_the_next():
    found = Bigrams.function(pd.DataFrame({"payload": ["a b a b", "c", "b c"]}))
    assert [tuple(row) for row in found.itertuples(index=False)] == [
        ("a b", 2, 4, 3),
        ("b a", 1, 4, 3),
        ("b c", 1, 4, 3),
    ]


def quotes(*prices_at, symbol="S01"):
    return pd.DataFrame(
        [
            {"event_time": pd.Timestamp(at, unit="s"), "kind": "quote", "symbol": symbol, "price": price}
            for at, price in prices_at
        ]
    )


def tweets(count, symbol="S01"):
    one = {"event_time": pd.Timestamp(1, unit="s"), "kind": "tweet", "symbol": symbol, "price": 0}
    return pd.DataFrame([one] * count)


@pytest.mark.parametrize(("price", "warnings"), [(1049, 0), (1050, 1), (951, 0), (950, 1)])
def test_a_price_that_is_five_percent_off_the_mean_before_is_warned_of(price, warnings):
    found = StockMarket.function(quotes((0, 1000), (6, 1000), (11, price)))
    assert found["warnings"].tolist() == [warnings]


def test_stocks_that_jump_and_are_mentioned_correlate():
    rows = pd.concat(
        [quotes((0, 1000), (6, 1000), (11, 1100)), tweets(3), quotes((0, 500), (6, 500), (11, 501), symbol="S02")]
    )
    found = StockMarket.function(rows.sample(frac=1, random_state=1))
    in_utc = rows.assign(event_time=rows["event_time"].astype("datetime64[us]").dt.tz_localize("UTC"))
    pd.testing.assert_frame_equal(StockMarket.function(in_utc), found)
    assert [tuple(row) for row in found.itertuples(index=False)] == [
        ("S01", 1000, 1100, 1033.333333, 1, 3, 1.0),
        ("S02", 500, 501, 500.333333, 0, 0, 1.0),
    ]


def test_a_window_of_tweets_alone_has_no_stocks():
    assert StockMarket.function(tweets(2)).empty


def reports(car, position, times, speed=0, lane=1):
    one = {"car": car, "speed": speed, "xway": 0, "lane": lane, "dir": 0, "segment": 3, "position": position}
    return pd.DataFrame([one] * times)


def test_two_cars_that_report_one_place_four_times_are_an_accident_and_free_of_toll():
    slow = [reports(car, 16_000 + car, 1, speed=20) for car in range(60)]
    assert LinearRoad60s.function(pd.concat(slow))["toll"].tolist() == [200]
    alone = LinearRoad60s.function(pd.concat([*slow, reports(100, 15_900, 4)]))
    assert alone[["stopped", "accidents", "toll"]].to_numpy().tolist() == [[1, 0, 2 * 11**2]]
    apart = LinearRoad60s.function(pd.concat([*slow, reports(100, 15_900, 4), reports(101, 15_900, 4, lane=2)]))
    assert apart[["stopped", "accidents", "toll"]].to_numpy().tolist() == [[2, 0, 2 * 12**2]]
    moved_on = LinearRoad60s.function(pd.concat([*slow, reports(100, 15_900, 4), reports(101, 15_900, 3)]))
    assert moved_on[["stopped", "accidents", "toll"]].to_numpy().tolist() == [[1, 0, 2 * 12**2]]
    crashed = LinearRoad60s.function(pd.concat([*slow, reports(100, 15_900, 4), reports(101, 15_900, 5)]))
    assert crashed[["stopped", "accidents", "toll"]].to_numpy().tolist() == [[2, 1, 0]]


@pytest.mark.parametrize(("cars", "speed", "toll"), [(50, 20, 0), (51, 40, 2), (51, 41, 0)])
def test_few_or_quick_cars_pay_nothing(cars, speed, toll):
    found = LinearRoad60s.function(pd.concat([reports(car, 16_000 + car, 1, speed=speed) for car in range(cars)]))
    assert found["toll"].tolist() == [toll]
