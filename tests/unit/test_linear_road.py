"""Linear Road's rules on a few reports that can be followed by hand, and what holds for any traffic."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.errors import ConfigurationError
from slackwater.workloads.linear_road import follow_entries, follow_side
from slackwater.workloads.linear_road_oracle import Accident, Alert, Toll, judge, toll_of
from slackwater.workloads.linear_road_traffic import (
    EXIT_LANE,
    SEGMENT_FEET,
    Report,
    Traffic,
    write_json,
    write_parquet,
)


def report(time, vid, seg=10, *, speed=30, lane=1, direction=0, pos=None):
    return Report(time, vid, speed, 0, lane, direction, seg, seg * SEGMENT_FEET if pos is None else pos)


def crowd(cars, minute, seg=10, speed=30):
    """So many cars with one report each in a minute."""
    return [report(60 * (minute - 1) + vid % 60, 1000 * minute + vid, seg, speed=speed) for vid in range(cars)]


def stopping(vid, first_s, seg, reports=4, *, direction=0, lane=1):
    return [report(first_s + 30 * step, vid, seg, speed=0, direction=direction, lane=lane) for step in range(reports)]


def of_car(rows, vid):
    return [row for row in rows if row.vid == vid]


@pytest.mark.parametrize(
    ("nov", "lav", "accident", "toll"),
    [
        (60, 30, False, 200),
        (51, 39, False, 2),
        (150, 0, False, 20_000),
        (50, 30, False, 0),
        (60, 40, False, 0),
        (60, 30, True, 0),
        (60, None, False, 0),
    ],
)
def test_tolls_follow_from_cars_and_speed_of_the_minutes_before(nov, lav, accident, toll):
    assert toll_of(nov, lav, accident=accident) == toll


def test_a_car_that_enters_after_sixty_slow_ones_pays_two_hundred():
    found = judge([*crowd(60, minute=1), report(70, 7)])
    assert of_car(found.tolls, 7) == [Toll(7, 70, 0, 0, 10, 30, 200)]


def test_the_number_of_cars_is_of_the_minute_before_and_their_speed_of_five():
    crowded = [*crowd(60, minute=1, speed=30), *crowd(55, minute=2, speed=35)]
    (second,) = of_car(judge([*crowded, report(60 * 2 + 5, 7)]).tolls, 7)
    # (60·30 + 55·35) / 115 = 32.4
    assert (second.lav, second.toll) == (32, 2 * 5**2)
    (later,) = of_car(judge([*crowded, report(60 * 5 + 59, 7)]).tolls, 7)
    # Minute 6 sees minutes 1 to 5, and nobody in minute 5.
    assert (later.lav, later.toll) == (32, 0)
    (last,) = of_car(judge([*crowded, report(60 * 6, 7)]).tolls, 7)
    assert (last.lav, last.toll) == (35, 0)
    (none,) = of_car(judge([*crowded, report(60 * 7, 7)]).tolls, 7)
    assert (none.lav, none.toll) == (None, 0)


def test_a_car_that_reports_twice_in_a_minute_is_one_car_and_halves_are_rounded_up():
    twice = [*crowd(50, minute=1, speed=30), *(r._replace(time=59, speed=31) for r in crowd(50, minute=1))]
    assert of_car(judge([*twice, report(61, 7)]).tolls, 7) == [Toll(7, 61, 0, 0, 10, 31, 0)]


def test_a_toll_is_told_once_for_each_segment_and_not_on_the_way_out():
    found = judge(
        [
            report(0, 7, 10, lane=0),
            report(30, 7, 10),
            report(60, 7, 11),
            report(90, 7, 12, lane=EXIT_LANE),
            report(300, 7, 12, lane=0),
        ]
    )
    assert [(toll.time, toll.seg) for toll in found.tolls] == [(0, 10), (60, 11), (300, 12)]


def test_two_cars_that_stand_at_one_place_for_four_reports_are_an_accident_until_one_moves():
    standing = [*stopping(1, 0, 20), *stopping(2, 10, 20, reports=6)]
    assert judge(standing).accidents == [Accident(0, 0, 20, 1, 2, 100, None)]
    found = judge([*standing, report(130, 1, 21)])
    assert found.accidents == [Accident(0, 0, 20, 1, 2, 100, 130)]


@pytest.mark.parametrize(
    "others",
    [
        stopping(2, 10, 20, reports=3),
        stopping(2, 10, 20, lane=2),
        stopping(2, 10, 21),
        [*stopping(2, 10, 20, reports=2), report(70, 2, 21), *stopping(2, 100, 20, reports=2)],
        [r._replace(xway=1) for r in stopping(2, 10, 20)],
    ],
    ids=["too few reports", "another lane", "another segment", "not in a row", "another expressway"],
)
def test_no_accident_without_two_stopped_cars_at_one_place(others):
    assert judge([*stopping(1, 0, 20, reports=8), *others]).accidents == []


def test_cars_that_stood_at_one_place_one_after_the_other_never_collided():
    reports = [*stopping(1, 0, 20), report(120, 1, 21), *stopping(2, 30, 20)]
    # Car 2 is stopped in the very second in which car 1 reports that it has moved.
    assert reports[-1].time == 120
    assert judge(reports).accidents == judge(reversed(reports)).accidents == []


@pytest.mark.parametrize(
    ("direction", "seg", "warned"),
    [(0, 20, True), (0, 16, True), (0, 15, False), (0, 21, False), (1, 20, True), (1, 24, True), (1, 25, False)],
)
def test_an_accident_warns_who_enters_up_to_four_segments_upstream_and_they_pay_nothing(direction, seg, warned):
    crash = [r for vid in (1, 2) for r in stopping(vid, 0, 20, reports=10, direction=direction)]
    slow = [r._replace(dir=direction) for r in crowd(60, minute=2, seg=seg)]
    found = judge([*crash, *slow, report(125, 7, seg, direction=direction)])
    assert found.accidents[0].since == 90
    assert of_car(found.alerts, 7) == ([Alert(7, 125, 0, direction, 20)] if warned else [])
    assert (of_car(found.tolls, 7)[0].toll > 0) is not warned


def test_an_accident_counts_from_the_next_minute_and_no_longer_once_a_car_moves():
    crash = [r for vid in (1, 2) for r in stopping(vid, 0, 20, reports=7)]
    reports = [*crash, report(210, 1, 21), *(report(at, 100 + at, 18) for at in (119, 120, 209, 210))]
    assert [alert.time for alert in judge(reports).alerts] == [120, 209]


def test_of_two_accidents_the_nearest_is_told():
    crashes = [r for vid, seg in ((1, 20), (2, 20), (3, 22), (4, 22)) for r in stopping(vid, 0, seg, reports=9)]
    assert [alert.seg for alert in judge([*crashes, report(130, 7, 19)]).alerts] == [20]
    assert [alert.seg for alert in judge([*crashes, report(130, 7, 21)]).alerts] == [22]


traffics = st.builds(
    Traffic,
    seed=st.integers(0, 1000),
    minutes=st.integers(1, 6),
    xways=st.integers(1, 2),
    cars_per_minute=st.integers(4, 20),
    crashes=st.integers(0, 2),
)


@settings(max_examples=25, deadline=None)
@given(traffic=traffics)
def test_cars_report_every_thirty_seconds_drive_one_way_and_leave_by_the_exit_lane(traffic):
    by_car: dict[int, list[Report]] = {}
    for found in traffic.reports():
        by_car.setdefault(found.vid, []).append(found)
    assert len(by_car) == 2 * traffic.xways * traffic.minutes * traffic.cars_per_minute
    for reports in by_car.values():
        assert reports[0].lane == 0
        assert all(r.seg == r.pos // SEGMENT_FEET and 0 <= r.seg < 100 and 0 <= r.speed <= 70 for r in reports)
        assert all(r.lane in (1, 2, 3) for r in reports[1:-1])
        for before, after in pairwise(reports):
            assert after.time - before.time == 30
            assert (after.xway, after.dir) == (before.xway, before.dir)
            assert after.pos >= before.pos if after.dir == 0 else after.pos <= before.pos


@settings(max_examples=20, deadline=None)
@given(traffic=traffics, order=st.randoms())
def test_the_order_in_which_reports_come_changes_no_verdict(traffic, order):
    reports = traffic.reports()
    assert reports == traffic.reports()
    shuffled = list(reports)
    order.shuffle(shuffled)
    assert judge(shuffled) == judge(reports)


@settings(max_examples=20, deadline=None)
@given(traffic=traffics)
def test_every_entry_has_one_toll_and_alerts_never_cost(traffic):
    reports = traffic.reports()
    found = judge(reports)
    entered: Counter[tuple[int, int]] = Counter()
    last: dict[int, Report] = {}
    for r in reports:
        before = last.get(r.vid)
        if r.lane != EXIT_LANE and (before is None or before.seg != r.seg):
            entered[r.vid, r.time] += 1
        last[r.vid] = r
    assert Counter((toll.vid, toll.time) for toll in found.tolls) == entered
    warned = {(alert.vid, alert.time) for alert in found.alerts}
    assert warned <= entered.keys()
    assert all(toll.toll == 0 for toll in found.tolls if (toll.vid, toll.time) in warned)


class State:
    """Spark's group state, in memory."""

    def __init__(self):
        self.kept = None

    @property
    def exists(self):
        return self.kept is not None

    @property
    def get(self):
        return self.kept

    def update(self, new):
        self.kept = new


def followed(follow, traffic, order, batch_s):
    """What a stateful function gives, batch by batch."""
    pd = pytest.importorskip("pandas")
    states: dict[tuple[int, int], State] = {}
    rows = []
    batches: dict[int, list[Report]] = {}
    for found in traffic.reports():
        batches.setdefault(found.time // batch_s, []).append(found)
    for reports in batches.values():
        order.shuffle(reports)
        for key in {(r.xway, r.dir) for r in reports}:
            frame = pd.DataFrame([r for r in reports if (r.xway, r.dir) == key], columns=Report._fields)
            for told in follow(key, iter([frame]), states.setdefault(key, State())):
                rows += [tuple(None if pd.isna(v) else int(v) for v in row) for row in told.to_numpy().tolist()]
    return rows


@settings(max_examples=15, deadline=None)
@given(traffic=traffics, order=st.randoms(), batch_s=st.integers(20, 300))
def test_entries_followed_batch_by_batch_have_the_alerts_of_the_rules(traffic, order, batch_s):
    entered = followed(follow_entries, traffic, order, batch_s)
    expected = judge(traffic.reports())
    assert sorted(row[:5] for row in entered) == sorted(toll[:5] for toll in expected.tolls)
    assert all(minute == time // 60 + 1 for _, time, _, _, _, minute, _ in entered)
    assert sorted((*row[:4], row[6]) for row in entered if row[6] is not None) == sorted(expected.alerts)


@settings(max_examples=15, deadline=None)
@given(traffic=traffics, order=st.randoms(), batch_s=st.integers(20, 300))
def test_accidents_followed_batch_by_batch_are_those_of_the_rules(traffic, order, batch_s):
    news = followed(follow_side, traffic, order, batch_s)
    expected = judge(traffic.reports()).accidents
    assert sorted(row for row in news if row[-1] is not None) == sorted(a for a in expected if a.until is not None)
    assert sorted(row[:-1] for row in news if row[-1] is None) == sorted(a[:-1] for a in expected)


def test_ten_minutes_of_traffic_have_tolls_alerts_and_every_crash():
    found = judge(Traffic(seed=1).reports())
    assert sum(toll.toll > 0 for toll in found.tolls) > 100
    assert len(found.alerts) > 20
    assert [(a.first_vid, a.second_vid) for a in sorted(found.accidents, key=lambda a: a.first_vid)] == [
        (0, 1),
        (2, 3),
        (400, 401),
        (402, 403),
    ]


def test_more_crashes_than_cars_are_refused():
    with pytest.raises(ConfigurationError, match="fewer crashes"):
        Traffic(seed=0, minutes=1, cars_per_minute=4, crashes=3)


def test_reports_are_written_as_lines_and_as_parquet(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    reports = Traffic(seed=0, minutes=1).reports()
    write_json(reports, tmp_path / "reports.json")
    write_parquet(reports, tmp_path / "reports.parquet")
    lines = (tmp_path / "reports.json").read_text().splitlines()
    assert [Report(**json.loads(line)) for line in lines] == reports
    assert [Report(**row) for row in pq.read_table(tmp_path / "reports.parquet").to_pylist()] == reports
