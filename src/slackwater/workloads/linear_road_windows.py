"""Linear Road in short windows, as Klink runs it: accidents and tolls from three feeds that are joined.

As in the paper: windows of 5 s that slide by 3 s, a join over three sub-streams of 6500 reports every 2 s each, and a
mix of sliding and tumbling windows. The first feed counts the cars of a segment, the second one takes their mean speed,
the third one looks for accidents; joined on segment and window they give its toll, and a tumbling window, as long as
the slide, adds the segments of each expressway and direction up. `linear_road.py` has the benchmark's full rules; here
a window knows nothing of earlier ones and of segments downstream.

Chosen here: traffic is made, as in `linear_road_60s.py`, and a car reports every second, as with Linear Road's 30 s no
car could report four times within 5 s. The three feeds carry the same reports, as a splitter would hand them to three
operators: Spark would read a source once for each anyway, and those reads of the rate source have creation times of
their own.

A slot reports every second and holds one car after the other, each for 60 reports. One in a hundred cars stops at its
21st report. Slots come in pairs, and one in 50 pairs of cars crashes: both drive as one and stop. A quarter of
stretches of 8 segments is congested, for two cars' time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from slackwater.workloads.base import Window
from slackwater.workloads.rate_oracle import due_windows, numbers_between, rate_offers
from slackwater.workloads.rate_source import generated, mixed, rate_rows, read_creation_ms, with_mixed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from slackwater.workloads.base import Payload, QuerySpec
    from slackwater.workloads.nyt_trips import Numbers
    from slackwater.workloads.rate_oracle import Offered

FEEDS = 3
REPORTS_PER_TRIP = 60
CARS_PER_EXPRESSWAY = 3000
SEGMENT_FEET = 5280
ROAD_FEET = 100 * SEGMENT_FEET
STRETCH_SEGMENTS = 8
STRETCHES = 16
STOPS_AT_REPORT = 20
CRASHES_ONE_IN = 50
STOPPED_REPORTS = 4
TOLL_FREE_CARS = 50
TOLL_BELOW_MPH = 40
PHASE_STREAM, CRASH_STREAM, ENTRY_STREAM, DRIVER_STREAM, CONGESTION_STREAM = 2, 3, 4, 5, 6
_SEGMENT = ("xway", "dir", "segment")


@dataclass(frozen=True)
class LinearRoadWindows:
    """`rate` of a query is that of its three feeds together."""

    source_partitions: int = 1
    name: str = "linear-road"

    def build(self, spark: SparkSession, spec: QuerySpec) -> DataFrame:
        feeds = [rate_rows(spark, feed_rate(spec), self.source_partitions) for _ in range(FEEDS)]
        return self.from_numbers(feeds, spec)

    def from_numbers(self, feeds: Sequence[DataFrame], spec: QuerySpec) -> DataFrame:
        """The query over three frames of rows `timestamp`, `value`, streamed or not."""
        return over_reports([reports(numbered, spec) for numbered in feeds], spec)

    def oracle(self, spec: QuerySpec, checkpoint: Path) -> LinearRoadWindowsOracle:
        return LinearRoadWindowsOracle(spec, [read_creation_ms(checkpoint, source) for source in range(FEEDS)])


def over_reports(feeds: Sequence[DataFrame], spec: QuerySpec) -> DataFrame:
    """The query over three feeds of reports."""
    first, second, third = feeds
    return totals(tolls(cars(first, spec), speeds(second, spec), accidents(third, spec)), spec)


def feed_rate(spec: QuerySpec) -> int:
    return spec.rate // FEEDS


def expressways(spec: QuerySpec) -> int:
    return max(1, feed_rate(spec) // CARS_PER_EXPRESSWAY)


def reports(numbered: DataFrame, spec: QuerySpec) -> DataFrame:
    """Position reports: event_time, car, speed, xway, dir, segment, place."""
    slots, ways = feed_rate(spec), expressways(spec)
    phased = with_mixed(numbered, spec.seed, phase=(f"value % {slots} div 2", PHASE_STREAM)).selectExpr(
        "timestamp AS event_time",
        f"value % {slots} AS slot",
        f"value div {slots} + phase % {REPORTS_PER_TRIP} AS sent",
    )
    trips = phased.selectExpr(
        "event_time",
        f"sent div {REPORTS_PER_TRIP} AS trip",
        f"sent % {REPORTS_PER_TRIP} AS step",
        f"sent div {REPORTS_PER_TRIP} * {slots} + slot AS car",
        f"sent div {REPORTS_PER_TRIP} * {slots} + slot - slot % 2 AS pair",
    )
    crashing = with_mixed(trips, spec.seed, crash=("pair", CRASH_STREAM)).selectExpr(
        "*", f"crash % {CRASHES_ONE_IN} = 0 AS crashes", f"IF(crash % {CRASHES_ONE_IN} = 0, pair, car) AS driver"
    )
    bits = with_mixed(crashing, spec.seed, entry=("driver", ENTRY_STREAM), habit=("driver", DRIVER_STREAM)).selectExpr(
        "*",
        f"entry % {2 * ways} AS side",
        f"(entry div {2 * ways} % 100) * (entry div {200 * ways} % 100) div 105 AS enters_at",
        "crashes OR habit div 60 % 100 = 0 AS stops",
    )
    stretch = f"(trip div 2 * {2 * ways} + side) * {STRETCHES} + enters_at div {STRETCH_SEGMENTS}"
    driven = (
        with_mixed(bits, spec.seed, congestion=(stretch, CONGESTION_STREAM))
        .selectExpr("*", "IF(congestion % 4 = 0, 15, 50) + habit % 20 AS cruising")
        .selectExpr(
            "*",
            f"""enters_at * {SEGMENT_FEET} + habit div 6000 % {SEGMENT_FEET}
                + cruising * 22 * IF(stops, least(step, {STOPS_AT_REPORT}), step) div 15 AS feet""",
        )
        .selectExpr("*", f"IF(side % 2 = 0, feet, {ROAD_FEET} - 1 - feet) AS position")
    )
    return generated(
        driven,
        ["event_time"],
        [
            "car",
            f"IF(stops AND step >= {STOPS_AT_REPORT}, 0L, cruising) AS speed",
            "side div 2 AS xway",
            "side % 2 AS dir",
            f"position div {SEGMENT_FEET} AS segment",
            "4 * position + 1 + habit div 20 % 3 AS place",
        ],
    )


def cars(feed: DataFrame, spec: QuerySpec) -> DataFrame:
    """How many cars were in a segment."""
    return _sliding(feed, spec, "CAST(size(collect_set(car)) AS BIGINT) AS cars")


def speeds(feed: DataFrame, spec: QuerySpec) -> DataFrame:
    """Their mean speed, rounded."""
    return _sliding(feed, spec, "(2 * sum(speed) + count(*)) div (2 * count(*)) AS mph")


def accidents(feed: DataFrame, spec: QuerySpec) -> DataFrame:
    """In how many places of a segment two cars or more reported the same place four times or more.

    Only reports of standing cars are kept until the window leaves: one that moves is never twice at one place.
    """
    standing = _sliding(feed, spec, "collect_list(IF(speed = 0, struct(place, car), NULL)) AS seen")
    stopped = f"filter(array_distinct(seen), car -> size(filter(seen, s -> s = car)) >= {STOPPED_REPORTS})"
    crashed = "filter(array_distinct(stopped.place), p -> size(filter(stopped.place, other -> other = p)) >= 2)"
    return standing.selectExpr("window", *_SEGMENT, f"{stopped} AS stopped").selectExpr(
        "window", *_SEGMENT, f"CAST(size({crashed}) AS BIGINT) AS accidents"
    )


def tolls(cars: DataFrame, speeds: DataFrame, accidents: DataFrame) -> DataFrame:
    """The three feeds together: a toll for each segment that all of them reported."""
    together = cars.join(speeds, ["window", *_SEGMENT]).join(accidents, ["window", *_SEGMENT])
    due = f"cars > {TOLL_FREE_CARS} AND mph < {TOLL_BELOW_MPH} AND accidents = 0"
    over = f"(cars - {TOLL_FREE_CARS})"
    return together.selectExpr("*", f"IF({due}, 2 * {over} * {over}, 0L) AS toll")


def totals(tolled: DataFrame, spec: QuerySpec) -> DataFrame:
    """The segments of an expressway and direction, in a tumbling window that ends with the sliding one."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # Spark's own convention; loaded on use

    length = f"{spec.slide_ms} milliseconds"
    phase = f"{(spec.phase_ms + spec.window_ms) % spec.slide_ms} milliseconds"
    return (
        tolled.groupBy(F.window("window", length, length, phase).alias("total"), "xway", "dir")
        .agg(
            F.count("*").alias("segments"),
            F.sum("cars").alias("cars"),
            F.sum("accidents").alias("accidents"),
            F.sum(F.expr("IF(toll > 0, 1L, 0L)")).alias("tolled"),
            F.sum("toll").alias("tolls"),
        )
        .select(
            F.col("total.start").alias("window_start"),
            *("xway", "dir", "segments", "cars", "accidents", "tolled", "tolls"),
            F.current_timestamp().alias("batch_ts"),
        )
    )


def _sliding(feed: DataFrame, spec: QuerySpec, aggregate: str) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    length, slide, phase = (f"{ms} milliseconds" for ms in (spec.window_ms, spec.slide_ms, spec.phase_ms))
    return (
        feed.withWatermark("event_time", f"{spec.delay_ms} milliseconds")
        .groupBy(F.window("event_time", length, slide, phase), *_SEGMENT)
        .agg(F.expr(aggregate))
    )


class Reports(NamedTuple):
    """The oracle's reports; a segment is (2·xway + dir) · 100 + its number."""

    car: Numbers
    speed: Numbers
    segment: Numbers
    place: Numbers


class LinearRoadWindowsOracle:
    """What the query must emit, from the definition of the traffic and each feed's creation time."""

    def __init__(self, spec: QuerySpec, creations_ms: Sequence[int], offered: Sequence[Offered] | None = None) -> None:
        self.spec = spec
        self.creations_ms = tuple(creations_ms)
        self._offered = offered or [rate_offers(feed_rate(spec), creation) for creation in creations_ms]

    def windows_due(self, from_ms: int, to_ms: int) -> list[Window]:
        """Tumbling windows with something in them whose deadline lies in [from_ms, to_ms)."""
        due = (
            Window(sliding.end_ms - self.spec.slide_ms, sliding.end_ms, sliding.deadline_ms)
            for sliding in due_windows(self.spec, from_ms, to_ms)
        )
        return [window for window in due if self.expected(window.start_ms)]

    def expected(self, window_start_ms: int) -> list[Payload]:
        """(xway, dir, segments, cars, accidents, segments with a toll, tolls), sorted."""
        found: dict[int, list[int]] = {}
        for segment, count, _, crashes, toll in self.segments(window_start_ms):
            total = found.setdefault(segment // 100, [0, 0, 0, 0, 0])
            for place, more in enumerate((1, count, crashes, int(toll > 0), toll)):
                total[place] += more
        return [(side // 2, side % 2, *found[side]) for side in sorted(found)]

    def segments(self, window_start_ms: int) -> list[tuple[int, int, int, int, int]]:
        """(segment, cars, mean speed, accidents, toll) of the sliding window that ends with this tumbling one."""
        end_ms = window_start_ms + self.spec.slide_ms
        first, second, third = (
            reports_of(numbers_between(end_ms - self.spec.window_ms, end_ms, feed_rate(self.spec), creation), self.spec)
            for creation in self.creations_ms
        )
        cars_in = Counter(segment for segment, _ in set(zip(first.segment.tolist(), first.car.tolist(), strict=True)))
        reported = Counter(second.segment.tolist())
        miles: Counter[int] = Counter()
        for segment, mph in zip(second.segment.tolist(), second.speed.tolist(), strict=True):
            miles[segment] += mph
        watched = set(third.segment.tolist())
        sighted = Counter(zip(*(c.tolist() for c in (third.segment, third.place, third.car)), strict=True))
        standing = Counter((segment, place) for (segment, place, _), n in sighted.items() if n >= STOPPED_REPORTS)
        crashed = Counter(segment for (segment, _), stopped in standing.items() if stopped >= 2)
        rows = []
        for segment in sorted(cars_in.keys() & reported.keys() & watched):
            mean = (2 * miles[segment] + reported[segment]) // (2 * reported[segment])
            toll = _toll(cars_in[segment], mean, crashed[segment])
            rows.append((segment, cars_in[segment], mean, crashed[segment], toll))
        return rows

    def ingestible_ms(self, deadline_ms: int) -> int:
        """When the last feed offers a report at or after the deadline: Spark takes the least of their watermarks."""
        return max(offered(deadline_ms, lambda numbers: numbers >= 0) for offered in self._offered)


def _toll(cars_in: int, mph: int, crashes: int) -> int:
    if cars_in <= TOLL_FREE_CARS or mph >= TOLL_BELOW_MPH or crashes:
        return 0
    return 2 * (cars_in - TOLL_FREE_CARS) ** 2


def reports_of(numbers: Numbers, spec: QuerySpec) -> Reports:
    """The same reports in numpy: Spark's side and this one share constants and no code."""
    slots, ways = feed_rate(spec), expressways(spec)
    second, slot = np.divmod(numbers, slots)
    sent = second + mixed(slot // 2, spec.seed, PHASE_STREAM) % REPORTS_PER_TRIP
    trip, step = np.divmod(sent, REPORTS_PER_TRIP)
    car = trip * slots + slot
    crashes = mixed(car - slot % 2, spec.seed, CRASH_STREAM) % CRASHES_ONE_IN == 0
    driver = np.where(crashes, car - slot % 2, car)

    entry, side = np.divmod(mixed(driver, spec.seed, ENTRY_STREAM), 2 * ways)
    enters_at = (entry % 100) * (entry // 100 % 100) // 105
    habit = mixed(driver, spec.seed, DRIVER_STREAM)
    stops = crashes | (habit // 60 % 100 == 0)
    stretch = (trip // 2 * 2 * ways + side) * STRETCHES + enters_at // STRETCH_SEGMENTS
    congested = mixed(stretch, spec.seed, CONGESTION_STREAM) % 4 == 0
    cruising = habit % 20 + np.where(congested, 15, 50)

    moved = np.where(stops, np.minimum(step, STOPS_AT_REPORT), step)
    feet = enters_at * SEGMENT_FEET + habit // 6000 % SEGMENT_FEET + cruising * 22 * moved // 15
    position = np.where(side % 2 == 0, feet, ROAD_FEET - 1 - feet)
    return Reports(
        car=car,
        speed=np.where(stops & (step >= STOPS_AT_REPORT), 0, cruising),
        segment=side * 100 + position // SEGMENT_FEET,
        place=4 * position + 1 + habit // 20 % 3,
    )
