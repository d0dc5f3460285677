"""The oracles of the taxi and the Linear Road queries, by brute force in plain Python; the registry of workloads."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.bench.measure import last_end_ms
from slackwater.bench.members import workload_of
from slackwater.bench.model import RunSpec
from slackwater.errors import ConfigurationError
from slackwater.workloads.base import QuerySpec
from slackwater.workloads.linear_road_windows import LinearRoadWindowsOracle, reports_of
from slackwater.workloads.nyt import NytOracle, is_clean
from slackwater.workloads.nyt_trips import Trips, trips_of
from slackwater.workloads.rate_oracle import due_windows
from slackwater.workloads.rate_source import row_times_ms
from slackwater.workloads.registry import WORKLOADS, workload_entry

CREATED_MS = 1_700_000_000_123


def trip(**changes):
    """From Times Square to Wall Street: 5.5 miles in 20 minutes for 19.50 and a tip of 3.90."""
    fields = {
        "pickup_lon": -73_985_500,
        "pickup_lat": 40_758_000,
        "dropoff_lon": -74_008_800,
        "dropoff_lat": 40_706_000,
        "distance": 550,
        "seconds": 1200,
        "fare": 1950,
        "tip": 390,
    }
    return Trips(**{name: np.array([value]) for name, value in {**fields, **changes}.items()})


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, True),
        ({"pickup_lon": 0, "pickup_lat": 0}, False),
        ({"dropoff_lon": -72_900_000}, False),
        ({"dropoff_lat": 41_480_000}, False),
        ({"distance": 0}, False),
        ({"fare": -1950}, False),
        # 5.5 miles at 100 mph take 198 s.
        ({"seconds": 198}, True),
        ({"seconds": 197}, False),
    ],
)
def test_a_trip_is_kept_unless_its_recorder_failed_or_it_left_the_grid(changes, kept):
    assert is_clean(trip(**changes)).tolist() == [kept]


@settings(max_examples=15, deadline=None)
@given(
    rate=st.sampled_from([7, 100, 333]),
    window_ms=st.integers(500, 4000),
    slide_share=st.floats(0.2, 1),
    phase=st.floats(0, 0.99),
    seed=st.integers(0, 100),
)
def test_every_sliding_window_has_the_trips_counted_one_by_one(rate, window_ms, slide_share, phase, seed):
    slide_ms = max(1, int(slide_share * window_ms))
    spec = QuerySpec("q", rate, window_ms / 1000, 1.0, int(phase * slide_ms), seed, slide_s=slide_ms / 1000)
    numbers = np.arange(6 * rate)
    trips = trips_of(numbers, seed)
    rows = list(zip(row_times_ms(numbers, rate, CREATED_MS).tolist(), *(c.tolist() for c in trips), strict=True))
    oracle = NytOracle(spec, CREATED_MS)
    due = oracle.windows_due(CREATED_MS, CREATED_MS + 6000 + spec.delay_ms)
    assert all((window.start_ms - spec.phase_ms) % slide_ms == 0 for window in due)
    for window in due:
        cells = defaultdict(list)
        for at, lon, lat, to_lon, to_lat, distance, took, fare, tip in rows:
            inside = all(1 <= n <= 300 for n in (*cell(lon, lat), *cell(to_lon, to_lat)))
            sound = lon and to_lon and distance > 0 and fare > 0 and distance / 100 / (took / 3600) <= 100
            if window.start_ms <= at < window.end_ms and inside and sound:
                cells[cell(lon, lat)].append((distance, fare, tip))
        assert oracle.expected(window.start_ms) == [
            (
                *where,
                len(found),
                sum(fare for _, fare, _ in found),
                sum(distance for distance, _, _ in found),
                max(100 * fare // distance for distance, fare, _ in found),
                sum(100 * tip // fare for _, fare, tip in found) // len(found),
            )
            for where, found in sorted(cells.items())
        ]


def cell(lon, lat):
    x = 1 + math.floor((lon / 1e6 + 74.913585) / 0.005986 + 0.5)
    return x, 1 + math.floor((41.474937 - lat / 1e6) / 0.004491556 + 0.5)


def test_nine_in_ten_trips_are_clean_and_as_long_fast_and_dear_as_taxi_trips_are():
    trips = trips_of(np.arange(100_000), seed=1)
    clean = is_clean(trips)
    assert 0.88 < clean.mean() < 0.94
    found = trips.only(clean)
    assert 30 <= found.distance.min() < found.distance.max() <= 30 + 39 * 39
    assert 250 <= found.fare.min() < found.fare.max() < 10_000
    mph = found.distance * 36 / found.seconds
    assert 7 < mph.min() < mph.max() < 25


@given(st.integers(0, 20_000), st.integers(1, 20_000))
def test_sliding_windows_are_due_once_each_slide(after_ms, length_ms):
    spec = QuerySpec("q", 10, 5.0, 1.0, 700, 0, slide_s=3.0)
    from_ms = CREATED_MS + after_ms
    due = due_windows(spec, from_ms, from_ms + length_ms)
    assert all(from_ms <= window.deadline_ms < from_ms + length_ms for window in due)
    assert all((window.start_ms - 700) % 3000 == 0 and window.end_ms - window.start_ms == 5000 for window in due)
    assert len(due) in (length_ms // 3000, length_ms // 3000 + 1)
    if due:
        assert last_end_ms(spec, from_ms + length_ms) == due[-1].end_ms


def test_segments_of_a_road_window_agree_with_reading_its_reports_one_by_one():
    spec = QuerySpec("q", 9750, 5.0, 1.0, 400, 7, slide_s=3.0)
    created = (CREATED_MS, CREATED_MS + 5, CREATED_MS + 70)
    oracle = LinearRoadWindowsOracle(spec, created)
    window = oracle.windows_due(CREATED_MS + 30_000, CREATED_MS + 40_000)[0]
    seen: list[dict[int, list[tuple[int, int, int]]]] = []
    for created_ms in created:
        by_segment = defaultdict(list)
        numbers = np.arange(45 * 3250)
        times = row_times_ms(numbers, 3250, created_ms)
        inside = numbers[(times >= window.end_ms - 5000) & (times < window.end_ms)]
        for car, speed, segment, place in zip(*(c.tolist() for c in reports_of(inside, spec)), strict=True):
            by_segment[segment].append((car, speed, place))
        seen.append(by_segment)
    cars, speeds, stops = seen
    total: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    for segment in cars.keys() & speeds.keys() & stops.keys():
        nov = len({car for car, _, _ in cars[segment]})
        mean = math.floor(sum(mph for _, mph, _ in speeds[segment]) / len(speeds[segment]) + 0.5)
        crashes = 0
        for place in {place for _, _, place in stops[segment]}:
            there = [car for car, _, where in stops[segment] if where == place]
            crashes += sum(there.count(car) >= 4 for car in set(there)) >= 2
        toll = 2 * (nov - 50) ** 2 if nov > 50 and mean < 40 and not crashes else 0
        side = total[segment // 100]
        side[:] = [a + b for a, b in zip(side, (1, nov, crashes, toll > 0, toll), strict=True)]
    expected = oracle.expected(window.start_ms)
    assert expected == [(side // 2, side % 2, *total[side]) for side in sorted(total)]
    assert sum(row[4] for row in expected) > 0
    assert sum(row[6] for row in expected) > 0


def test_a_road_window_can_be_swept_when_the_last_feed_has_a_report_after_its_deadline():
    spec = QuerySpec("q", 300, 5.0, 1.0, 0, 7, slide_s=3.0)
    oracle = LinearRoadWindowsOracle(spec, [CREATED_MS, CREATED_MS + 900, CREATED_MS + 20])
    assert oracle.ingestible_ms(CREATED_MS + 10_000) == CREATED_MS + 11_000  # the first: 10.9 and 10.02 s are earlier
    assert oracle.ingestible_ms(CREATED_MS + 10_300) == CREATED_MS + 11_020  # the third
    assert oracle.ingestible_ms(CREATED_MS + 10_950) == CREATED_MS + 11_900  # the second


def run_of(name, **changes):
    entry = workload_entry(name)
    run = RunSpec(
        workload=name,
        policy="klink",
        seed=1,
        queries=3,
        rate=entry.rate,
        window_s=entry.window_s,
        slide_s=entry.slide_s,
        delay_s=1.0,
        seconds=10.0,
        phases="spread",
        payload=entry.payloads[-1],
        **changes,
    )
    entry.check(run.payload, run.rate, run.window_s, run.slide_s)
    return run


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_can_be_had_by_name_with_its_usual_settings(name):
    workload, queries = workload_of(run_of(name))
    assert name.startswith(workload.name)
    assert len({query.name for query in queries}) == len({query.seed for query in queries}) == 3
    assert all(query.name.isidentifier() for query in queries)
    assert all(0 <= query.phase_ms < query.slide_ms for query in queries)


def test_only_the_stressed_road_has_a_deadline_of_a_third_of_its_slide():
    deadlines = {name: {query.deadline_s for query in workload_of(run_of(name))[1]} for name in WORKLOADS}
    assert deadlines.pop("linear-road-stressed") == {1.0}
    assert set().union(*deadlines.values()) == {None}


@pytest.mark.parametrize(
    ("name", "asked", "said"),
    [
        ("nyt", ("json", 100, 2.0, 1.0), "columns or csv"),
        ("nyt", ("csv", 100, 2.0, 3.0), "at most their length"),
        ("linear-road", ("columns", 100, 5.0, 3.0), "multiple of 3"),
        ("ysb", ("json", 6000, 10.0, None), "6001"),
    ],
)
def test_what_a_workload_cannot_do_is_refused_with_what_it_can(name, asked, said):
    with pytest.raises(ConfigurationError, match=said):
        workload_entry(name).check(*asked)


def test_an_unknown_workload_is_answered_with_the_nearest_name():
    with pytest.raises(ConfigurationError, match="linear-road"):
        workload_entry("linear-raod")
