"""Taxi trips over given rows: Klink's chain and aggregate by cell, and DEBS 2015's ten busiest routes.

The routes are the first query of that challenge: which pairs of cells had most trips in 30 minutes. The challenge wants
an answer whenever it changes; here there is one for each window, every 10 minutes. Counting routes and ranking them are
two queries, the second one over what the first one wrote. Among routes with as many trips the one with the latest
drop-off goes first, then the one with lower cells.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from math import floor
from typing import TYPE_CHECKING, Any

import numpy as np

from slackwater.workloads.base import QuerySpec
from slackwater.workloads.finite import Stage, window_starts_ms
from slackwater.workloads.nyt import aggregated, cleaned, in_cells, priced
from slackwater.workloads.nyt_trips import COLUMNS, trips_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame

    from slackwater.workloads.finite import Answers, Frames, Rows

FIRST_MS = 1_356_998_400_000  # 2013-01-01 00:00 UTC, DEBS's
SPAN_MS = 2 * 3_600_000
DELAY_S = 60.0
HOUR_MS = 3_600_000
CELL_WINDOW_S, CELL_SLIDE_S = 600.0, 300.0
CELL_PHASES_MS = (0, 100_000)
ROUTE_WINDOW_S, ROUTE_SLIDE_S = 1800.0, 600.0
TOP = 10
# Trips are drawn from so many, the first ones most often: routes that are busier than others.
POOL = 400
ROUTE = ("start_x", "start_y", "end_x", "end_y")
_TIMES = {"pickup_datetime": "pickup_ms", "dropoff_datetime": "dropoff_ms"}


@dataclass(frozen=True)
class NytFinite:
    name: str = "nyt"
    about: str = "New York taxi: fares by cell in sliding windows, and the ten busiest routes of DEBS 2015"

    @property
    def tables(self) -> dict[str, str]:
        columns = (f"{_TIMES[name]} BIGINT" if name in _TIMES else f"{name} {kind}" for name, kind in COLUMNS.items())
        return {"trips": ", ".join(columns)}

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (
            *(_cells(f"cells_{number}", phase_ms) for number, phase_ms in enumerate(CELL_PHASES_MS)),
            Stage(
                "routes",
                ("trips",),
                _routes,
                "window_start TIMESTAMP, start_x BIGINT, start_y BIGINT, end_x BIGINT, end_y BIGINT, trips BIGINT, "
                "newest TIMESTAMP",
                _without_closing,
                ("window_start", *ROUTE),
            ),
            Stage(
                "top_routes",
                ("routes",),
                _top_routes,
                "window_start TIMESTAMP, rank INT, start_x BIGINT, start_y BIGINT, end_x BIGINT, end_y BIGINT, "
                "trips BIGINT",
                _without_closing,
                ("window_start", "rank"),
            ),
        )

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.stages)

    def generate(self, seed: int, size: int) -> Rows:
        """Out of order by less than the watermark's delay; some broken, as recorded ones are."""
        rng = random.Random(f"nyt-{seed}")
        pool = trips_of(np.arange(POOL, dtype=np.int64), seed)
        rows = []
        for number in range(size):
            dropoff_ms = FIRST_MS + number * SPAN_MS // size - rng.randrange(round(1000 * DELAY_S))
            which = int(POOL * rng.random() ** 3)
            rows.append(_trip(rng, dropoff_ms, *(int(column[which]) for column in pool)))
        return {"trips": rows}

    def closing(self, rows: Rows) -> Rows:
        """Two trips in a corner of the grid where no other is, so that the last window of the first one is over too."""
        newest_ms = max(row["dropoff_ms"] for row in rows["trips"])
        corner = {"pickup_longitude": -74.913585, "pickup_latitude": 41.474937} | {
            "dropoff_longitude": -74.913585,
            "dropoff_latitude": 41.474937,
        }
        trip = _trip(random.Random(0), newest_ms, 0, 0, 0, 0, 100, 600, 500, 0)
        return {"trips": [trip | corner | {"dropoff_ms": newest_ms + hours * HOUR_MS} for hours in (2, 4)]}

    def expected(self, rows: Rows) -> Answers:
        trips = [trip for trip in map(_judged, rows["trips"]) if trip is not None]
        answers = {
            f"cells_{number}": list(_expected_cells(trips, phase_ms)) for number, phase_ms in enumerate(CELL_PHASES_MS)
        }
        counts: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        for trip in trips:
            for start_ms in window_starts_ms(trip["dropoff_ms"], 1_800_000, 600_000):
                counts[start_ms, *trip["start"], *trip["end"]].append(trip["dropoff_ms"])
        answers["routes"] = sorted((*route, len(ends_ms), max(ends_ms)) for route, ends_ms in counts.items())
        by_window: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
        for (start_ms, *route), ends_ms in counts.items():
            by_window[start_ms].append((-len(ends_ms), -max(ends_ms), *route))
        answers["top_routes"] = [
            (start_ms, place, *route, -count)
            for start_ms, busiest in sorted(by_window.items())
            for place, (count, _, *route) in enumerate(sorted(busiest)[:10], 1)
        ]
        return answers


def _typed(trips: DataFrame) -> DataFrame:
    return trips.selectExpr(
        *(f"timestamp_millis({_TIMES[name]}) AS {name}" if name in _TIMES else name for name in COLUMNS)
    )


def _clean(frames: Frames) -> DataFrame:
    return priced(in_cells(cleaned(_typed(frames["trips"]))))


def _cells(name: str, phase_ms: int) -> Stage:
    columns = (
        "window_start TIMESTAMP, start_x BIGINT, start_y BIGINT, trips BIGINT, fare_cents BIGINT, distance BIGINT, "
        "cents_per_mile_max BIGINT, tip_percent_mean BIGINT"
    )
    spec = QuerySpec(name, 0, CELL_WINDOW_S, DELAY_S, phase_ms, 0, slide_s=CELL_SLIDE_S)
    keys = ("window_start", "start_x", "start_y")
    return Stage(name, ("trips",), partial(_by_cell, spec), columns, _without_closing, keys)


def _by_cell(spec: QuerySpec, frames: Frames) -> DataFrame:
    return aggregated(_clean(frames), spec, "cell").drop("batch_ts")


def _routes(frames: Frames) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # Spark's own convention; loaded on use

    length, slide = f"{ROUTE_WINDOW_S:g} seconds", f"{ROUTE_SLIDE_S:g} seconds"
    return (
        _clean(frames)
        .withWatermark("dropoff_datetime", f"{DELAY_S:g} seconds")
        .groupBy(F.window("dropoff_datetime", length, slide), *ROUTE)
        .agg(F.count("*").alias("trips"), F.max("dropoff_datetime").alias("newest"))
        .select(F.col("window.start").alias("window_start"), *ROUTE, "trips", "newest")
    )


def _top_routes(frames: Frames) -> DataFrame:
    """All routes of a window leave in one batch, so that no delay is needed."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    order = f"struct(-trips, -unix_micros(newest), {', '.join(ROUTE)}, trips)"
    return (
        frames["routes"]
        .withWatermark("window_start", "0 seconds")
        .groupBy("window_start")
        .agg(F.expr(f"slice(sort_array(collect_list({order})), 1, {TOP})").alias("busiest"))
        .selectExpr("window_start", "posexplode(busiest) AS (place, route)")
        .selectExpr("window_start", "place + 1 AS rank", *(f"route.{side}" for side in ROUTE), "route.trips")
    )


def _without_closing(emitted: DataFrame) -> DataFrame:
    return emitted.where("NOT (start_x = 1 AND start_y = 1)")


def _trip(
    rng: random.Random,
    dropoff_ms: int,
    pickup_lon: int,
    pickup_lat: int,
    dropoff_lon: int,
    dropoff_lat: int,
    distance: int,
    seconds: int,
    fare: int,
    tip: int,
) -> dict[str, Any]:
    surcharge, toll = rng.choice((0, 50, 100)), rng.choice((0, 0, 0, 533))
    return {
        "medallion": f"{rng.randrange(10_000):032x}",
        "hack_license": f"{rng.randrange(1_000_000):032x}",
        "pickup_ms": dropoff_ms - 1000 * seconds,
        "dropoff_ms": dropoff_ms,
        "trip_time_in_secs": seconds,
        "trip_distance": distance / 100,
        "pickup_longitude": pickup_lon / 1_000_000,
        "pickup_latitude": pickup_lat / 1_000_000,
        "dropoff_longitude": dropoff_lon / 1_000_000,
        "dropoff_latitude": dropoff_lat / 1_000_000,
        "payment_type": "CRD" if tip else "CSH",
        "fare_amount": fare / 100,
        "surcharge": surcharge / 100,
        "mta_tax": 0.5,
        "tip_amount": tip / 100,
        "tolls_amount": toll / 100,
        "total_amount": (fare + surcharge + 50 + tip + toll) / 100,
    }


def _judged(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """What counts of a trip; None where its recorder failed, it leaves the grid, or it was too fast."""
    fare, distance, tip = (round(100 * row[name]) for name in ("fare_amount", "trip_distance", "tip_amount"))
    seconds = row["trip_time_in_secs"]
    if fare <= 0 or distance <= 0 or seconds <= 0 or 3600 * distance > 100 * 100 * seconds:
        return None
    cells = []
    for place in ("pickup", "dropoff"):
        lon, lat = row[f"{place}_longitude"], row[f"{place}_latitude"]
        cell = (1 + floor((lon + 74.913585) / 0.005986 + 0.5), 1 + floor((41.474937 - lat) / 0.004491556 + 0.5))
        if 0 in (lon, lat) or not all(1 <= side <= 300 for side in cell):
            return None
        cells.append(cell)
    return {
        "dropoff_ms": row["dropoff_ms"],
        "start": cells[0],
        "end": cells[1],
        "fare": fare,
        "distance": distance,
        "per_mile": 100 * fare // distance,
        "tip_percent": 100 * tip // fare,
    }


def _expected_cells(trips: list[dict[str, Any]], phase_ms: int) -> Iterator[tuple[int, ...]]:
    groups: defaultdict[tuple[int, ...], list[dict[str, Any]]] = defaultdict(list)
    for trip in trips:
        for start_ms in window_starts_ms(trip["dropoff_ms"], 600_000, 300_000, phase_ms):
            groups[start_ms, *trip["start"]].append(trip)
    for key in sorted(groups):
        group = groups[key]
        sums = {name: sum(trip[name] for trip in group) for name in ("fare", "distance", "tip_percent")}
        dearest = max(trip["per_mile"] for trip in group)
        yield *key, len(group), sums["fare"], sums["distance"], dearest, sums["tip_percent"] // len(group)
