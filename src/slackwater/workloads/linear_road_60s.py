"""Linear Road as Aion runs it: the tolls of every segment from the position reports of one minute.

As in the paper: reports of a minute give the number of cars and their mean speed for each segment, and the accidents
there; both are joined on the segment, and a toll follows. 10 000 events/s, windows of 60 s, 1536 bytes of payload. This
is not the full benchmark: a window knows nothing of earlier minutes and of segments downstream, and nobody's account is
charged. A car is stopped when it reports the same place (direction, lane, position) four times or more within the
window; two stopped cars at one place are an accident; the toll is 2·(cars - 50)² where there are more than 50 cars,
their reports' mean speed is 40 mph or less, and there is no accident.

Chosen here: traffic is made (the paper has MIT-SIMLab's), and a car reports every 10 s, as with Linear Road's 30 s no
car could report four times in a minute. One expressway for every 1000 reports/s.

Traffic is a function of a report's number. A slot reports every 10 s and holds one car after the other, each for 12
reports. A car enters at a segment (low ones are busier) and keeps its speed: slow where its stretch of 8 segments is
congested, which is so for a quarter of stretches and changes every two cars. One in a hundred cars stops at its fourth
report. Slots come in pairs, and one in 400 pairs of cars crashes: both drive as one and stop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from slackwater.workloads.late_events import expected_by_window, late_rows, payload_sql, window_counts
from slackwater.workloads.rate_source import mixed, rate_rows, with_mixed

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from slackwater.workloads.base import Payload
    from slackwater.workloads.late_events import LateSpec

REPORT_EVERY_S = 10
REPORTS_PER_TRIP = 12
REPORTS_PER_S_AND_EXPRESSWAY = 1000
SEGMENT_FEET = 5280
ROAD_FEET = 100 * SEGMENT_FEET
STRETCH_SEGMENTS = 8
STRETCHES = 16
STOPS_AT_REPORT = 3
STOPPED_REPORTS = 4
TOLL_FREE_CARS = 50
TOLL_SPEED = 40
PHASE_STREAM, CRASH_STREAM, ENTRY_STREAM, DRIVER_STREAM, CONGESTION_STREAM = 2, 3, 4, 5, 6


@dataclass(frozen=True)
class LinearRoad60s:
    name: str = "linear-road"
    window_s: float = 60.0
    rate: int = 10_000
    payload_bytes: int = 1536
    keys: tuple[str, ...] = ("xway",)
    schema: str = (
        "xway BIGINT, dir BIGINT, segment BIGINT, cars BIGINT, mean_speed DOUBLE, stopped BIGINT, accidents BIGINT, "
        "toll BIGINT"
    )

    def events(self, spark: SparkSession, spec: LateSpec) -> DataFrame:
        return self.from_numbers(rate_rows(spark, spec.rate), spec)

    def from_numbers(self, numbered: DataFrame, spec: LateSpec) -> DataFrame:
        return _positions(_trips(late_rows(numbered, spec), spec), spec)

    @staticmethod
    def function(rows: pd.DataFrame) -> pd.DataFrame:
        segment = ["xway", "dir", "segment"]
        reports = rows.groupby([*segment, "lane", "position", "car"]).size()
        stopped = reports[reports >= STOPPED_REPORTS].reset_index()
        crashes = stopped.groupby([*segment, "lane", "position"]).size()
        found = rows.groupby(segment).agg(cars=("car", "nunique"), mean_speed=("speed", "mean"))
        found["stopped"] = stopped.groupby(segment)["car"].nunique().reindex(found.index, fill_value=0)
        found["accidents"] = crashes[crashes > 1].groupby(segment).size().reindex(found.index, fill_value=0)
        tolled = (found["cars"] > TOLL_FREE_CARS) & (found["mean_speed"] <= TOLL_SPEED) & (found["accidents"] == 0)
        found["toll"] = (2 * (found["cars"] - TOLL_FREE_CARS) ** 2).where(tolled, 0)
        found["mean_speed"] = [round(mph, 6) for mph in found["mean_speed"].tolist()]
        return found.reset_index()

    def expected(self, spec: LateSpec, created_ms: int, numbers: range) -> dict[int, list[Payload]]:
        def result(rows: NDArray[np.int64], _event_ms: NDArray[np.int64]) -> list[Payload]:
            return _oracle(rows, spec)

        return expected_by_window(spec, created_ms, numbers, result)

    def window_counts(self, spec: LateSpec, created_ms: int, numbers: range) -> dict[int, int]:
        return window_counts(spec, created_ms, numbers)


def expressways(spec: LateSpec) -> int:
    return max(1, spec.rate // REPORTS_PER_S_AND_EXPRESSWAY)


def _trips(rows: DataFrame, spec: LateSpec) -> DataFrame:
    """Each report's car, how many reports it has sent before, and the bits that its trip is made of."""
    slots = spec.rate * REPORT_EVERY_S
    phased = with_mixed(rows, spec.seed, phase=(f"value % {slots} div 2", PHASE_STREAM)).selectExpr(
        "value",
        "arrival",
        "event_time",
        f"value % {slots} AS slot",
        f"value div {slots} + phase % {REPORTS_PER_TRIP} AS reports",
    )
    cars = phased.selectExpr(
        "*",
        f"reports div {REPORTS_PER_TRIP} AS trip",
        f"reports % {REPORTS_PER_TRIP} AS step",
        f"reports div {REPORTS_PER_TRIP} * {slots} + slot AS car",
        f"reports div {REPORTS_PER_TRIP} * {slots} + slot - slot % 2 AS pair",
    )
    crashes = with_mixed(cars, spec.seed, crash=("pair", CRASH_STREAM)).selectExpr(
        "*", "crash % 400 = 0 AS crashes", "IF(crash % 400 = 0, pair, car) AS driver"
    )
    bits = with_mixed(crashes, spec.seed, entry=("driver", ENTRY_STREAM), habit=("driver", DRIVER_STREAM))
    ways = expressways(spec)
    return bits.selectExpr(
        "*",
        f"entry % {ways} AS xway",
        f"entry div {ways} % 2 AS dir",
        f"(entry div {2 * ways} % 100) * (entry div {200 * ways} % 100) div 105 AS enters_at",
        "crashes OR habit div 60 % 100 = 0 AS stops",
    )


def _positions(trips: DataFrame, spec: LateSpec) -> DataFrame:
    stretch = f"""((trip div 2) * {2 * expressways(spec)} + 2 * xway + dir) * {STRETCHES}
        + enters_at div {STRETCH_SEGMENTS}"""
    driven = (
        with_mixed(trips, spec.seed, congestion=(stretch, CONGESTION_STREAM))
        .selectExpr("*", "IF(congestion % 4 = 0, 15, 50) + habit % 20 AS cruising")
        .selectExpr(
            "*",
            f"""enters_at * {SEGMENT_FEET} + habit div 6000 % {SEGMENT_FEET}
                + cruising * 44 * IF(stops, least(step, {STOPS_AT_REPORT}), step) div 3 AS feet""",
        )
        .selectExpr("*", f"IF(dir = 0, feet, {ROAD_FEET} - 1 - feet) AS position")
    )
    return driven.selectExpr(
        "arrival",
        "event_time",
        "car",
        f"IF(stops AND step >= {STOPS_AT_REPORT}, 0, cruising) AS speed",
        "xway",
        "1 + habit div 20 % 3 AS lane",
        "dir",
        f"position div {SEGMENT_FEET} AS segment",
        "position",
        payload_sql("value", spec.payload_bytes),
    )


def _oracle(numbers: NDArray[np.int64], spec: LateSpec) -> list[Payload]:
    car, place, segment, speed = _reports(numbers, spec)
    segments, at = np.unique(segment, return_inverse=True)
    reports = np.bincount(at)
    mean_speed = np.bincount(at, weights=speed) / reports

    cars, car_at = np.unique(car, return_inverse=True)
    cars_in = np.bincount(np.unique(at * cars.size + car_at) // cars.size, minlength=segments.size)

    sightings, times = np.unique(place * cars.size + car_at, return_counts=True)
    standing = sightings[times >= STOPPED_REPORTS]
    standing_place, standing_car = standing // cars.size, standing % cars.size
    in_segment = np.searchsorted(segments, _segment_of(standing_place))
    stopped = np.bincount(np.unique(in_segment * cars.size + standing_car) // cars.size, minlength=segments.size)

    places, cars_there = np.unique(standing_place, return_counts=True)
    crashed = np.searchsorted(segments, _segment_of(places[cars_there >= 2]))
    accidents = np.bincount(crashed, minlength=segments.size)

    rows: list[Payload] = []
    for which, key in enumerate(segments.tolist()):
        way, count, mph = key // 100, int(cars_in[which]), float(mean_speed[which])
        tolled = count > TOLL_FREE_CARS and mph <= TOLL_SPEED and not accidents[which]
        toll = 2 * (count - TOLL_FREE_CARS) ** 2 if tolled else 0
        found = (count, round(mph, 6), int(stopped[which]), int(accidents[which]), toll)
        rows.append((way // 2, way % 2, key % 100, *found))
    return rows


def _segment_of(place: NDArray[np.int64]) -> NDArray[np.int64]:
    """A place is ((2·xway + dir) · road + position) · 4 + lane; a segment, (2·xway + dir) · 100 + its number."""
    return place // (4 * SEGMENT_FEET)


def _reports(numbers: NDArray[np.int64], spec: LateSpec) -> tuple[NDArray[np.int64], ...]:
    """(car, place, segment, speed) of each report."""
    slots, ways = spec.rate * REPORT_EVERY_S, expressways(spec)
    sent, slot = np.divmod(numbers, slots)
    trip, step = np.divmod(sent + mixed(slot // 2, spec.seed, PHASE_STREAM) % REPORTS_PER_TRIP, REPORTS_PER_TRIP)
    car = trip * slots + slot
    crashes = mixed(car - slot % 2, spec.seed, CRASH_STREAM) % 400 == 0
    driver = np.where(crashes, car - slot % 2, car)

    entry, way = np.divmod(mixed(driver, spec.seed, ENTRY_STREAM), ways)
    entry, direction = np.divmod(entry, 2)
    enters_at = (entry % 100) * (entry // 100 % 100) // 105
    habit = mixed(driver, spec.seed, DRIVER_STREAM)
    stops = crashes | (habit // 60 % 100 == 0)
    side = 2 * way + direction
    stretch = (trip // 2 * 2 * ways + side) * STRETCHES + enters_at // STRETCH_SEGMENTS
    congested = mixed(stretch, spec.seed, CONGESTION_STREAM) % 4 == 0
    cruising = habit % 20 + np.where(congested, 15, 50)

    moved = np.where(stops, np.minimum(step, STOPS_AT_REPORT), step)
    feet = enters_at * SEGMENT_FEET + habit // 6000 % SEGMENT_FEET + cruising * 44 * moved // 3
    position = np.where(direction == 0, feet, ROAD_FEET - 1 - feet)
    place = (side * ROAD_FEET + position) * 4 + habit // 20 % 3 + 1
    speed = np.where(stops & (step >= STOPS_AT_REPORT), 0, cruising)
    return car, place, _segment_of(place), speed
