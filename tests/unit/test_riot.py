"""RIoTBench's messages, and the oracles of ETL and STATS on values worked out by hand; what streams cut apart."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.workloads.base import QuerySpec
from slackwater.workloads.finite import check_stages
from slackwater.workloads.riot import RiotEtl, RiotStats, etl, oracle, stats
from slackwater.workloads.riot.parse import bloom_words
from slackwater.workloads.riot.senml import KINDS, SENSORS, STRANGERS, messages, senml
from slackwater.workloads.riot.windows import RiotWindowsOracle, statistics_of

GOOD = ["10.00", "30.00", "100.00", "100.00", "20.00"]


def message(message_id, at_ms, texts=GOOD, sensor_id="city-00"):
    return {"message_id": message_id, "body": senml(sensor_id, at_ms, list(texts))}


def test_messages_are_fixed_by_the_seed_and_come_in_the_order_of_their_times():
    rows = messages(seed=5, size=400)
    assert rows == messages(seed=5, size=400)
    assert rows != messages(seed=6, size=400)
    times = [read.at_ms for read in map(oracle.read, rows) if read]
    assert times == sorted(times)
    assert len(set(times)) == len(times)


def test_some_messages_cannot_be_read_and_some_readings_are_out_of_range_or_no_number():
    rows = messages(seed=1, size=2000)
    read = [oracle.read(row) for row in rows]
    assert 40 <= read.count(None) <= 130
    values = [(kind, value) for one in read if one for kind, value in zip(KINDS, one.values, strict=True)]
    missing = sum(value is None for _, value in values) / len(values)
    outside = sum(value is not None and not kind.low <= value <= kind.high for kind, value in values) / len(values)
    assert 0.01 < missing < 0.03
    assert 0.04 < outside < 0.08
    strangers = sum(one is not None and one.sensor_id.startswith("stranger") for one in read)
    assert 100 < strangers < 220


def test_the_bloom_filter_passes_all_registered_sensors_and_few_others():
    words = bloom_words(sensor.sensor_id for sensor in SENSORS)
    bits = {32 * word + bit for word, held in enumerate(words) for bit in range(32) if held >> bit & 1}
    assert bits == set().union(*(oracle.bloom_bits(sensor.sensor_id) for sensor in SENSORS))
    passing = [number for number in range(STRANGERS) if oracle.bloom_bits(f"stranger-{number:03d}") <= bits]
    assert passing == [26, 29, 56, 59, 90, 102, 166, 169, 189]


def test_a_reading_out_of_range_is_replaced_by_the_mean_of_the_sensors_last_five():
    temperatures = ["99.00", "10.00", "20.00", "-3.00", "12.00", "14.00", "16.00", "18.00", "n/a"]
    rows = [message(place, 1000 + place, [text, *GOOD[1:]]) for place, text in enumerate(temperatures)]
    answer = oracle.etl(rows)["annotated"]
    # Nothing was measured before the first; -3 is replaced by (10 + 20) / 2; the last by (20+12+14+16+18) / 5.
    assert [row[3] for row in answer] == [None, 10.0, 20.0, 15.0, 12.0, 14.0, 16.0, 18.0, 16.0]
    assert [row[8] for row in answer] == [0, 0, 0, 1, 0, 0, 0, 0, 1]
    assert answer[1] == (1, "city-00", 1001, 10.0, 30.0, 100.0, 100.0, 20.0, 0, "harbour", "ward-0")


def test_the_ends_of_a_range_belong_to_it():
    low, high = ([f"{getattr(kind, side)}" for kind in KINDS] for side in ("low", "high"))
    answer = oracle.etl([message(0, 1, low), message(1, 2, high)])["annotated"]
    assert [row[3:8] for row in answer] == [tuple(kind.low for kind in KINDS), tuple(kind.high for kind in KINDS)]


def test_what_cannot_be_read_is_a_reject_and_a_stranger_is_neither():
    good = message(0, 1000)
    body = json.loads(good["body"])
    broken = [good["body"][:-1], "", "source", json.dumps({"e": body["e"]}), json.dumps({"e": body["e"][1:], "bt": 1})]
    rows = [good, *({"message_id": 1 + place, "body": text} for place, text in enumerate(broken))]
    rows.append(message(9, 1000, sensor_id="stranger-000"))
    answer = oracle.etl(rows)
    assert [row[0] for row in answer["annotated"]] == [0]
    assert answer["rejects"] == [(1 + place, text) for place, text in enumerate(broken)]


def test_the_kalman_filter_and_the_line_are_those_worked_out_by_hand():
    # p = 30.125, k = 30.125 / 30.445 = 0.989489; then p = 0.316636 + 0.125, k = 0.441636 / 0.761636 = 0.579852.
    first, second = oracle.kalman([10.0, 12.0])
    assert first == pytest.approx(9.89489, abs=1e-5)
    assert second == pytest.approx(9.89489 + 0.579852 * 2.10511, abs=1e-5)
    assert oracle.line([3.0 + 2 * place for place in range(10)]) == [23.0 + 2 * step for step in range(10)]
    assert oracle.line([1.0] * 9) == [None] * 10


def last(running, values):
    return list(running(values))[-1]


def test_sketches_are_exact_for_one_value_and_close_for_many():
    assert last(oracle.second_moments, [7.5] * 20) == 400.0
    assert last(oracle.distinct_counts, [7.5] * 20) == 64 * math.log(64 / 63)
    values = [place % 40 / 100 for place in range(600)] + [9.0] * 100
    true = sum(count**2 for count in Counter(values).values())
    # Three standard errors: 35 % of the second moment, 13 % of the distinct count.
    assert last(oracle.second_moments, values) == pytest.approx(true, rel=3 * 0.354)
    for count in (10, 100, 1000):
        assert last(oracle.distinct_counts, [place / 100 for place in range(count)]) == pytest.approx(
            count, rel=3 * 0.13
        )


class Reading(NamedTuple):
    message_id: int
    sensor_id: str
    at_ms: int
    kind: str
    value: float


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(-500, 4000), min_size=1, max_size=40),
    st.lists(st.integers(0, 40), max_size=3),
)
def test_a_sensors_readings_give_the_oracles_answer_wherever_batches_end(hundredths, cuts):
    rows = [message(place, 1000 + place, [f"{value / 100:.2f}", *GOOD[1:]]) for place, value in enumerate(hundredths)]
    readings = [
        Reading(place, "city-00", 1000 + place, "temperature", value / 100) for place, value in enumerate(hundredths)
    ]
    cleaned = [row._replace(value=row.value if 0.7 <= row.value <= 35.1 else math.nan) for row in readings]
    answer = oracle.stats(rows)
    for step, name in (
        (stats.follow_trend, "trends"),
        (stats.follow_moment, "moments"),
        (stats.follow_distinct, "distinct"),
    ):
        assert in_batches(step, readings, cuts) == [row for row in answer[name] if row[2] == "temperature"]
    filled = in_batches(etl.interpolate, cleaned, cuts)
    assert [row[4] for row in filled] == [row[3] for row in oracle.etl(rows)["annotated"]]


def in_batches(step, rows, cuts):
    """What a stream emits whose batches end at these places; its state is written down in between."""
    kept, found = None, []
    places = [0, *sorted(cuts), len(rows)]
    for start, end in itertools.pairwise(places):
        if rows[start:end]:
            kept, emitted = step(json.loads(json.dumps(kept)), rows[start:end])
            found += emitted
    return found


class Cleaned(NamedTuple):
    message_id: int
    sensor_id: str
    at_ms: int
    kind: str
    value: float
    filled: bool


def test_a_message_is_together_again_when_its_fifth_reading_is_there():
    rows = [Cleaned(4, "city-01", 77, kind.name, float(place), place == 2) for place, kind in enumerate(KINDS)]
    rows[3] = rows[3]._replace(value=math.nan)
    kept, found = etl.join(None, rows[:2])
    assert found == []
    kept, found = etl.join(json.loads(json.dumps(kept)), rows[2:])
    assert kept is None
    assert found == [(4, "city-01", 77, 0.0, 1.0, 2.0, None, 4.0, 1)]


@pytest.mark.parametrize("workload", [RiotEtl(), RiotStats()])
def test_fifteen_statistics_or_one_row_leave_for_each_message_of_a_registered_sensor(workload):
    check_stages(workload)
    rows = {"messages": [message(place, place) for place in range(3)]}
    answers = workload.expected(rows)
    assert sum(map(len, answers.values())) == {"riot-etl": 3, "riot-stats": 45}[workload.name]
    assert workload.closing(rows) == {"messages": ()}


def test_statistics_of_a_window_are_those_worked_out_by_hand():
    # The tenth estimate of a constant 5 is short of it by the product of all 1 - k: about 2e-7 of it.
    readings, estimate, predicted, moment, distinct = statistics_of([500] * 10)
    assert (readings, moment, distinct) == (10, 100.0, 256 * math.log(256 / 255))
    assert 4.99 < estimate < (predicted or 0) < 5.1
    assert statistics_of([500] * 9)[2] is None
    many = [place % 150 for place in range(400)]
    assert statistics_of(many)[4] == pytest.approx(150, rel=0.15)
    assert statistics_of([1000, 1200])[1] == pytest.approx(11.1155, abs=1e-4)


def test_a_window_of_the_benchmark_has_a_row_for_every_sensor_and_kind():
    rows = RiotWindowsOracle(QuerySpec("q", 350, 10.0, 1.0, 0, 7), creation_ms=1_000_000).expected(1_010_000)
    known = {row[0] for row in rows if row[0].startswith("city")}
    assert known == {sensor.sensor_id for sensor in SENSORS}
    assert {row[1] for row in rows} == {kind.name for kind in KINDS}
    assert 3000 < sum(row[2] for row in rows) / len(KINDS) < 3300
