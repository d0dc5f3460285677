"""New York taxi trips: a long chain of stateless steps, then a sliding aggregate, as Klink runs them.

As in the paper: many stateless operators and one aggregate over windows of 2 s that slide by 1 s, 7000 trips/s a query.
Cells are those of DEBS 2015: squares of 500 m, 300 by 300, numbered from 1. Chosen here: the trips are made
(`nyt_trips.py`; the paper has recorded ones), and so are the steps of the chain and what is aggregated: trips, fares,
miles, the dearest mile and the mean tip by the cell, or by the route (both cells), where trips started.

Sums are of whole cents and hundredths of a mile, so that their order cannot change them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from slackwater.workloads.nyt_trips import MICRO, csv_lines, parsed, trip_columns, trips_of
from slackwater.workloads.rate_oracle import due_windows, numbers_between, rate_offers
from slackwater.workloads.rate_source import rate_rows, read_creation_ms

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from slackwater.workloads.base import Payload, QuerySpec, Window
    from slackwater.workloads.nyt_trips import Numbers, Trips
    from slackwater.workloads.rate_oracle import Offered

PayloadKind = Literal["columns", "csv"]
Key = Literal["cell", "route"]

WEST, CELL_WIDTH = -74.913585, 0.005986
NORTH, CELL_HEIGHT = 41.474937, 0.004491556
CELLS = 300
MPH_MAX = 100
_KEYS: dict[Key, tuple[str, ...]] = {
    "cell": ("start_x", "start_y"),
    "route": ("start_x", "start_y", "end_x", "end_y"),
}


@dataclass(frozen=True)
class Nyt:
    """`payload="csv"` makes each trip a line of text that the query parses; "columns" leaves that out."""

    payload: PayloadKind = "columns"
    by: Key = "cell"
    source_partitions: int = 1
    name: str = "nyt"

    def build(self, spark: SparkSession, spec: QuerySpec) -> DataFrame:
        return self.from_numbers(rate_rows(spark, spec.rate, self.source_partitions), spec)

    def from_numbers(self, numbered: DataFrame, spec: QuerySpec) -> DataFrame:
        """The query over rows `timestamp`, `value`, streamed or not."""
        trips = trip_columns(numbered, spec.seed)
        if self.payload == "csv":
            trips = parsed(csv_lines(trips))
        return over_trips(trips, spec, self.by)

    def oracle(self, spec: QuerySpec, checkpoint: Path) -> NytOracle:
        return NytOracle(spec, creation_ms=read_creation_ms(checkpoint), by=self.by)


def over_trips(trips: DataFrame, spec: QuerySpec, by: Key = "cell") -> DataFrame:
    """The query over trips."""
    return aggregated(priced(in_cells(cleaned(trips))), spec, by)


def cleaned(trips: DataFrame) -> DataFrame:
    """Without trips whose recorder failed."""
    return (
        trips.where("pickup_longitude <> 0 AND pickup_latitude <> 0")
        .where("dropoff_longitude <> 0 AND dropoff_latitude <> 0")
        .where("trip_distance > 0")
        .where("trip_time_in_secs > 0")
        .where("fare_amount > 0")
    )


def in_cells(trips: DataFrame) -> DataFrame:
    """With the cells of both ends; trips that leave the grid are left out."""
    for end, place in (("start", "pickup"), ("end", "dropoff")):
        x = f"1 + floor(({place}_longitude - ({WEST}D)) / {CELL_WIDTH}D + 0.5D)"
        y = f"1 + floor(({NORTH}D - {place}_latitude) / {CELL_HEIGHT}D + 0.5D)"
        trips = trips.selectExpr("*", f"{x} AS {end}_x").selectExpr("*", f"{y} AS {end}_y")
        trips = trips.where(f"{end}_x BETWEEN 1 AND {CELLS} AND {end}_y BETWEEN 1 AND {CELLS}")
    return trips


def priced(trips: DataFrame) -> DataFrame:
    """With whole cents and hundredths of a mile, the fare per mile and the tip; faster than any taxi is left out."""
    return (
        trips.selectExpr("*", "CAST(round(100 * fare_amount) AS BIGINT) AS fare_cents")
        .selectExpr("*", "CAST(round(100 * trip_distance) AS BIGINT) AS distance")
        .where(f"36 * distance <= {MPH_MAX} * trip_time_in_secs")
        .selectExpr("*", "100 * fare_cents div distance AS cents_per_mile")
        .selectExpr("*", "100 * CAST(round(100 * tip_amount) AS BIGINT) div fare_cents AS tip_percent")
    )


def aggregated(trips: DataFrame, spec: QuerySpec, by: Key) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # Spark's own convention; loaded on use

    length, slide, phase = (f"{ms} milliseconds" for ms in (spec.window_ms, spec.slide_ms, spec.phase_ms))
    return (
        trips.withWatermark("dropoff_datetime", f"{spec.delay_ms} milliseconds")
        .groupBy(F.window("dropoff_datetime", length, slide, phase), *_KEYS[by])
        .agg(
            F.count("*").alias("trips"),
            F.sum("fare_cents").alias("fare_cents"),
            F.sum("distance").alias("distance"),
            F.max("cents_per_mile").alias("cents_per_mile_max"),
            F.expr("sum(tip_percent) div count(*)").alias("tip_percent_mean"),
        )
        .select(
            F.col("window.start").alias("window_start"),
            *_KEYS[by],
            "trips",
            "fare_cents",
            "distance",
            "cents_per_mile_max",
            "tip_percent_mean",
            F.current_timestamp().alias("batch_ts"),
        )
    )


class NytOracle:
    """The rows that the query must emit, from the definition of the trips and the rate source's rule.

    offered: who tells when rows are there, where it is not the rate source.
    """

    def __init__(self, spec: QuerySpec, creation_ms: int, by: Key = "cell", offered: Offered | None = None) -> None:
        self._offered = offered or rate_offers(spec.rate, creation_ms)
        self.spec = spec
        self.creation_ms = creation_ms
        self.by: Key = by

    def windows_due(self, from_ms: int, to_ms: int) -> list[Window]:
        """Windows with a clean trip in them whose deadline lies in [from_ms, to_ms)."""
        return [window for window in due_windows(self.spec, from_ms, to_ms) if self._kept_in(window.start_ms).size]

    def expected(self, window_start_ms: int) -> list[Payload]:
        """(cells…, trips, fare in cents, hundredths of a mile, dearest mile, mean tip) of one window, sorted."""
        trips = trips_of(self._kept_in(window_start_ms), self.spec.seed)
        ends = [(trips.pickup_lon, trips.pickup_lat), (trips.dropoff_lon, trips.dropoff_lat)]
        cells = [side for lon, lat in ends[: 1 if self.by == "cell" else 2] for side in _cell(lon, lat)]
        keys, at = np.unique(np.stack(cells), axis=1, return_inverse=True)
        at = at.ravel()
        counts = np.bincount(at, minlength=keys.shape[1])
        dearest = np.zeros_like(counts)
        np.maximum.at(dearest, at, 100 * trips.fare // trips.distance)
        columns = (
            *keys,
            counts,
            _sums(at, trips.fare, counts.size),
            _sums(at, trips.distance, counts.size),
            dearest,
            _sums(at, 100 * trips.tip // trips.fare, counts.size) // counts,
        )
        return sorted(zip(*(column.tolist() for column in columns), strict=True))

    def ingestible_ms(self, deadline_ms: int) -> int:
        """When the source first offers a clean trip at or after the deadline: others do not move the watermark."""
        return self._offered(deadline_ms, self._kept)

    def _kept_in(self, window_start_ms: int) -> Numbers:
        end_ms = window_start_ms + self.spec.window_ms
        numbers = numbers_between(window_start_ms, end_ms, self.spec.rate, self.creation_ms)
        found: Numbers = numbers[self._kept(numbers)]
        return found

    def _kept(self, numbers: Numbers) -> NDArray[np.bool_]:
        return is_clean(trips_of(numbers, self.spec.seed))


def is_clean(trips: Trips) -> NDArray[np.bool_]:
    """Which trips the query keeps."""
    kept: NDArray[np.bool_] = (trips.distance > 0) & (trips.seconds > 0) & (trips.fare > 0)
    kept &= trips.distance * 36 <= MPH_MAX * trips.seconds
    for lon, lat in ((trips.pickup_lon, trips.pickup_lat), (trips.dropoff_lon, trips.dropoff_lat)):
        x, y = _cell(lon, lat)
        kept &= (lon != 0) & (lat != 0) & (x >= 1) & (x <= CELLS) & (y >= 1) & (y <= CELLS)
    return kept


def _cell(lon: Numbers, lat: Numbers) -> tuple[Numbers, Numbers]:
    x = 1 + np.floor((lon / MICRO - WEST) / CELL_WIDTH + 0.5)
    y = 1 + np.floor((NORTH - lat / MICRO) / CELL_HEIGHT + 0.5)
    return x.astype(np.int64), y.astype(np.int64)


def _sums(at: Numbers, values: Numbers, size: int) -> Numbers:
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, at, values)
    return sums
