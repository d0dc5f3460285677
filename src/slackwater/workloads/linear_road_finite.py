"""Linear Road over given rows: by its full rules as chained queries, and in Klink's short windows."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from slackwater.workloads import linear_road, linear_road_windows
from slackwater.workloads.base import QuerySpec
from slackwater.workloads.finite import Stage, window_starts_ms
from slackwater.workloads.linear_road_oracle import judge
from slackwater.workloads.linear_road_traffic import Report, Traffic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from slackwater.workloads.finite import Answers, Frames, Rows

HOUR_S = 3600
MINUTES = 10
REPORTS_PER_CAR = 6
STATISTICS = "xway BIGINT, dir BIGINT, seg BIGINT, minute BIGINT, nov BIGINT, lav BIGINT"
ALERTS = "vid BIGINT, time BIGINT, xway BIGINT, dir BIGINT, seg BIGINT"


@dataclass(frozen=True)
class LinearRoadFinite:
    """Statistics, accidents and entries from reports; alerts and tolls from what those wrote."""

    name: str = "linear-road"
    about: str = "Linear Road by its rules: statistics, accidents, alerts and tolls"

    @property
    def tables(self) -> dict[str, str]:
        return {"reports": linear_road.SCHEMA}

    @property
    def stages(self) -> tuple[Stage, ...]:
        reports = ("reports",)
        return (
            Stage("statistics", reports, _statistics, STATISTICS, _on_roads, ("xway", "dir", "seg", "minute")),
            Stage("accidents", reports, _accidents, linear_road.NEWS_SCHEMA, _last_news),
            Stage("entries", reports, _entries, linear_road.ENTRIES_SCHEMA, _on_roads),
            Stage("alerts", ("entries",), _alerts, ALERTS, _on_roads, ("vid", "time")),
            Stage(
                "tolls",
                ("entries", "statistics"),
                _tolls,
                "vid BIGINT, time BIGINT, xway BIGINT, dir BIGINT, seg BIGINT, lav BIGINT, toll BIGINT",
                _on_roads,
                ("vid", "time"),
            ),
        )

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("statistics", "accidents", "alerts", "tolls")

    def generate(self, seed: int, size: int) -> Rows:
        """In the order of time, as cars send them."""
        cars = max(2, size // (2 * MINUTES * REPORTS_PER_CAR))
        traffic = Traffic(seed, minutes=MINUTES, cars_per_minute=cars, crashes=2)
        return {"reports": [report._asdict() for report in traffic.reports()]}

    def closing(self, rows: Rows) -> Rows:
        """Two cars on no road, an hour and two later: statistics of the first one's minutes move the join on."""
        newest = max(row["time"] for row in rows["reports"])
        cars = [Report(newest + hours * HOUR_S, -hours, 50, -1, 1, 0, 0, 0) for hours in (1, 2)]
        return {"reports": [car._asdict() for car in cars]}

    def expected(self, rows: Rows) -> Answers:
        verdict = judge(Report(**row) for row in rows["reports"])
        return {
            "statistics": _expected_statistics(rows),
            "accidents": [tuple(accident) for accident in verdict.accidents],
            "alerts": [tuple(alert) for alert in verdict.alerts],
            "tolls": [tuple(toll) for toll in verdict.tolls],
        }


def _statistics(frames: Frames) -> DataFrame:
    return linear_road.statistics(frames["reports"])


def _accidents(frames: Frames) -> DataFrame:
    return linear_road.accident_news(frames["reports"])


def _entries(frames: Frames) -> DataFrame:
    return linear_road.entries_seen(frames["reports"])


def _alerts(frames: Frames) -> DataFrame:
    warned = frames["entries"].where("accident_seg IS NOT NULL")
    return warned.selectExpr("vid", "time", "xway", "dir", "accident_seg AS seg")


def _tolls(frames: Frames) -> DataFrame:
    return linear_road.tolls_joined(frames["entries"], frames["statistics"])


def _on_roads(emitted: DataFrame) -> DataFrame:
    return emitted.where("xway >= 0")


def _last_news(emitted: DataFrame) -> DataFrame:
    """An accident is told when it is found and when it is over."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # Spark's own convention; loaded on use

    accident = ("xway", "dir", "seg", "first_vid", "second_vid", "since")
    return emitted.groupBy(*accident).agg(F.max("until").alias("until"))


def _expected_statistics(rows: Rows) -> list[tuple[int, ...]]:
    """For each segment and minute with reports in the five before: cars of the last one, mean speed of all."""
    cars: defaultdict[tuple[int, ...], set[int]] = defaultdict(set)
    speeds: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for row in rows["reports"]:
        segment, minute = (row["xway"], row["dir"], row["seg"]), row["time"] // 60 + 1
        cars[*segment, minute + 1].add(row["vid"])
        for later in range(1, 6):
            speeds[*segment, minute + later].append(row["speed"])
    return [
        (*key, len(cars.get(key, ())), (2 * sum(mph) + len(mph)) // (2 * len(mph)))
        for key, mph in sorted(speeds.items())
    ]


FIRST_MS = 1_600_000_000_000
DELAY_S = 1.0
SECONDS = 24
TOTALS = (
    "window_start TIMESTAMP, xway BIGINT, dir BIGINT, segments BIGINT, cars BIGINT, accidents BIGINT, tolled BIGINT, "
    "tolls BIGINT"
)


@dataclass(frozen=True)
class LinearRoadWindowsFinite:
    """Klink's three feeds that are joined, twice, with windows that begin at different times.

    The three read one table: a splitter would hand them the same reports.
    """

    name: str = "linear-road-windows"
    about: str = "Linear Road in Klink's short windows: three joined feeds, tolls of each side"
    phases_ms: tuple[int, ...] = (0, 1400)

    @property
    def tables(self) -> dict[str, str]:
        return {
            "reports": "event_ms BIGINT, car BIGINT, speed BIGINT, xway BIGINT, dir BIGINT, segment BIGINT, "
            "place BIGINT"
        }

    @property
    def stages(self) -> tuple[Stage, ...]:
        keys = ("window_start", "xway", "dir")
        return tuple(
            Stage(name, ("reports",), partial(_totals, _spec(name, phase_ms)), TOTALS, keys=keys)
            for name, phase_ms in zip(self.outputs, self.phases_ms, strict=True)
        )

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(f"tolls_{number}" for number in range(len(self.phases_ms)))

    def generate(self, seed: int, size: int) -> Rows:
        """Reports of `SECONDS`, one for each car and second, out of order by less than the watermark's delay."""
        rng = random.Random(f"linear-road-windows-{seed}")
        cars = max(1, size // SECONDS)
        rows = []
        for number in range(cars * SECONDS):
            arrival_ms = FIRST_MS + 1000 * number // cars
            event_ms = arrival_ms - rng.randrange(round(1000 * DELAY_S))
            rows.append({"event_ms": event_ms, **_seen(number % cars, number // cars)})
        return {"reports": rows}

    def closing(self, rows: Rows) -> Rows:
        newest = max(rows["reports"], key=_event_ms)
        return {"reports": [dict(newest) | {"event_ms": newest["event_ms"] + 1000 * HOUR_S}]}

    def expected(self, rows: Rows) -> Answers:
        return {
            name: _expected_totals(rows, phase_ms) for name, phase_ms in zip(self.outputs, self.phases_ms, strict=True)
        }


def _seen(car: int, second: int) -> dict[str, int]:
    """A car's place. Few segments, so that there are queues; of every 40 cars two stand together, for a while."""
    stands = car % 40 < 2 and second >= 4
    crash, direction = car // 40, car % 8 // 4
    congested = car % 2 == 0
    mph = 0 if stands else 20 + car % 9 if congested else 55 + car % 9
    segment = crash % 3 if car % 40 < 2 else int(not congested)
    place = 4 * crash + 1 if stands else 10_000 + 60 * second + car
    return {"car": car, "speed": mph, "xway": 0, "dir": direction, "segment": segment, "place": place}


def _event_ms(row: Mapping[str, Any]) -> int:
    event_ms: int = row["event_ms"]
    return event_ms


def _spec(name: str, phase_ms: int) -> QuerySpec:
    return QuerySpec(name, 0, 5.0, DELAY_S, phase_ms, 0, slide_s=3.0)


def _totals(spec: QuerySpec, frames: Frames) -> DataFrame:
    reports = frames["reports"].selectExpr("timestamp_millis(event_ms) AS event_time", "*").drop("event_ms")
    tolled = linear_road_windows.tolls(
        linear_road_windows.cars(reports, spec),
        linear_road_windows.speeds(reports, spec),
        linear_road_windows.accidents(reports, spec),
    )
    return linear_road_windows.totals(tolled, spec).drop("batch_ts")


def _expected_totals(rows: Rows, phase_ms: int) -> list[tuple[int, ...]]:
    """A sliding window of 5 s gives each segment's toll; its side's total is in the window of 3 s that ends with it."""
    windows: defaultdict[tuple[int, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows["reports"]:
        for start_ms in window_starts_ms(row["event_ms"], 5000, 3000, phase_ms):
            windows[start_ms + 5000, row["xway"], row["dir"], row["segment"]].append(row)
    totals: defaultdict[tuple[int, ...], list[int]] = defaultdict(lambda: [0] * 5)
    for (end_ms, xway, direction, _), reports in windows.items():
        cars = len({row["car"] for row in reports})
        mph = (2 * sum(row["speed"] for row in reports) + len(reports)) // (2 * len(reports))
        sighted = Counter((row["place"], row["car"]) for row in reports)
        stopped = Counter(place for (place, _), times in sighted.items() if times >= 4)
        crashes = sum(standing >= 2 for standing in stopped.values())
        toll = 2 * (cars - 50) ** 2 if cars > 50 and mph < 40 and not crashes else 0
        total = totals[end_ms - 3000, xway, direction]
        for place, more in enumerate((1, cars, crashes, int(toll > 0), toll)):
            total[place] += more
    return [(*key, *found) for key, found in sorted(totals.items())]
