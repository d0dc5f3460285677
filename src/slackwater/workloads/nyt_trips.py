"""Taxi trips in the form of DEBS 2015's grand challenge: 17 columns, made from a row's running number.

A trip ends at its row's event time. Its fields are whole numbers (millionths of a degree, cents, hundredths of a mile,
seconds), digits in mixed radix of bits mixed from its number (`rate_source.py`); Spark's columns are those divided by
their unit. A whole number divided by its unit, and the text of that decimal when parsed, are the same double, so that
the oracle's numbers are exactly the query's.

Nine in ten trips start, and end, in Manhattan, the others at one of two airports. As in the recorded data some are
broken: 2 in 100 places are (0, 0), 1 lies outside the grid of cells; 1 in 100 distances is zero, 1 in 100 fares is
negative, and 1 in 100 clocks told a twentieth of the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from slackwater.workloads.rate_source import generated, mixed, with_mixed

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    Numbers = NDArray[np.int64]

COLUMNS = {
    "medallion": "STRING",
    "hack_license": "STRING",
    "pickup_datetime": "TIMESTAMP",
    "dropoff_datetime": "TIMESTAMP",
    "trip_time_in_secs": "BIGINT",
    "trip_distance": "DOUBLE",
    "pickup_longitude": "DOUBLE",
    "pickup_latitude": "DOUBLE",
    "dropoff_longitude": "DOUBLE",
    "dropoff_latitude": "DOUBLE",
    "payment_type": "STRING",
    "fare_amount": "DOUBLE",
    "surcharge": "DOUBLE",
    "mta_tax": "DOUBLE",
    "tip_amount": "DOUBLE",
    "tolls_amount": "DOUBLE",
    "total_amount": "DOUBLE",
}

PICKUP_STREAM, DROPOFF_STREAM, RIDE_STREAM, CAB_STREAM = 2, 3, 4, 5
STEPS = 3000
MICRO = 1_000_000


class Area(NamedTuple):
    """A box of places: its south-western corner and the width of its steps, in millionths of a degree."""

    below: int  # the area's digits are those below this one and not below the area before
    west: int
    south: int
    step_east: int
    step_north: int


MANHATTAN = Area(88, -74_020_000, 40_700_000, 30, 33)
LA_GUARDIA = Area(93, -73_876_000, 40_770_000, 2, 2)
KENNEDY = Area(97, -73_792_000, 40_641_000, 2, 2)
NOWHERE = Area(99, 0, 0, 0, 0)
OFF_THE_GRID = Area(100, -72_900_000, 40_800_000, 30, 33)
AREAS = (MANHATTAN, LA_GUARDIA, KENNEDY, NOWHERE, OFF_THE_GRID)


def trip_columns(numbered: DataFrame, seed: int) -> DataFrame:
    """The 17 columns, from rows of the rate source: `timestamp` and `value`."""
    bits = with_mixed(
        numbered,
        seed,
        pickup=("value", PICKUP_STREAM),
        dropoff=("value", DROPOFF_STREAM),
        ride=("value", RIDE_STREAM),
        cab=("value", CAB_STREAM),
    )
    whole = (
        bits.selectExpr(
            "timestamp",
            "ride",
            "cab",
            f"{_coordinate('pickup', 'west')} AS pickup_lon",
            f"{_coordinate('pickup', 'south')} AS pickup_lat",
            f"{_coordinate('dropoff', 'west')} AS dropoff_lon",
            f"{_coordinate('dropoff', 'south')} AS dropoff_lat",
            "30 + (ride % 40) * (ride div 40 % 40) AS driven",
        )
        .selectExpr("*", "driven * (150 + ride div 1600 % 300) div 100 AS took", "ride div 480000 % 100 AS fault")
        .selectExpr(
            "*",
            "IF(fault = 0, 0, driven) AS distance",
            "(250 + driven div 20 * 50 + took div 120 * 50) * IF(fault = 1, -1, 1) AS fare",
            "IF(fault = 2, took div 20, took) AS seconds",
            "cab div 1000000 % 3 * 50 AS surcharge_cents",
            "IF(cab div 3000000 % 20 = 0, 533, 0) AS toll_cents",
            "cab div 60000000 % 2 = 1 AS by_card",
        )
        .selectExpr("*", "IF(by_card AND fare > 0, fare div 5, 0L) AS tip")
    )
    numbers = [column for column in whole.columns if column != "timestamp"]
    return generated(whole, ["timestamp"], numbers).selectExpr(
        "md5(CAST(cab % 10000 AS STRING)) AS medallion",
        "md5(CAST(cab % 1000000 AS STRING)) AS hack_license",
        "timestamp_millis(unix_millis(timestamp) - 1000 * seconds) AS pickup_datetime",
        "timestamp AS dropoff_datetime",
        "seconds AS trip_time_in_secs",
        "distance / 100D AS trip_distance",
        f"pickup_lon / {MICRO}D AS pickup_longitude",
        f"pickup_lat / {MICRO}D AS pickup_latitude",
        f"dropoff_lon / {MICRO}D AS dropoff_longitude",
        f"dropoff_lat / {MICRO}D AS dropoff_latitude",
        "IF(by_card, 'CRD', 'CSH') AS payment_type",
        "fare / 100D AS fare_amount",
        "surcharge_cents / 100D AS surcharge",
        "0.5D AS mta_tax",
        "tip / 100D AS tip_amount",
        "toll_cents / 100D AS tolls_amount",
        "(fare + surcharge_cents + 50 + tip + toll_cents) / 100D AS total_amount",
    )


def _coordinate(bits: str, side: str) -> str:
    """Of a place: the area by the last two digits, then a step within it to the east or to the north."""
    east = side == "west"
    step = f"{bits} div 100 % {STEPS}" if east else f"{bits} div {100 * STEPS} % {STEPS}"
    cases = " ".join(
        f"WHEN {bits} % 100 < {area.below} THEN "
        f"{area.west if east else area.south}L + ({step}) * {area.step_east if east else area.step_north}"
        for area in AREAS
    )
    return f"CASE {cases} END"


def csv_lines(trips: DataFrame) -> DataFrame:
    """Each trip as one line of text, with times in milliseconds, in a single column `body`."""
    parts = [
        f"CAST(unix_millis({name}) AS STRING)" if kind == "TIMESTAMP" else f"CAST({name} AS STRING)"
        for name, kind in COLUMNS.items()
    ]
    return generated(trips, [], [f"concat_ws(',', {', '.join(parts)}) AS body"])


def parsed(lines: DataFrame) -> DataFrame:
    """The columns of such lines."""
    # A field holds no comma and no quote, so a split is all the parsing that there is.
    split = lines.selectExpr("split(body, ',') AS fields")
    return split.selectExpr(
        *(
            f"timestamp_millis(CAST(fields[{place}] AS BIGINT)) AS {name}"
            if kind == "TIMESTAMP"
            else f"CAST(fields[{place}] AS {kind}) AS {name}"
            for place, (name, kind) in enumerate(COLUMNS.items())
        )
    )


class Trips(NamedTuple):
    """The oracle's trips, in whole numbers."""

    pickup_lon: Numbers
    pickup_lat: Numbers
    dropoff_lon: Numbers
    dropoff_lat: Numbers
    distance: Numbers
    seconds: Numbers
    fare: Numbers
    tip: Numbers

    def only(self, kept: NDArray[np.bool_]) -> Trips:
        return Trips(*(column[kept] for column in self))


def trips_of(numbers: Numbers, seed: int) -> Trips:
    """The same trips in numpy: Spark's side and this one share constants and no code."""
    pickup_lon, pickup_lat = _places(mixed(numbers, seed, PICKUP_STREAM))
    dropoff_lon, dropoff_lat = _places(mixed(numbers, seed, DROPOFF_STREAM))
    ride, cab = mixed(numbers, seed, RIDE_STREAM), mixed(numbers, seed, CAB_STREAM)
    rest, first = np.divmod(ride, 40)
    rest, second = np.divmod(rest, 40)
    driven = 30 + first * second
    rest, pace = np.divmod(rest, 300)
    took = driven * (150 + pace) // 100
    fault = rest % 100
    metered = 250 + driven // 20 * 50 + took // 120 * 50
    fare = np.where(fault == 1, -metered, metered)
    tipped = (cab // 60_000_000 % 2 == 1) & (fare > 0)
    return Trips(
        pickup_lon,
        pickup_lat,
        dropoff_lon,
        dropoff_lat,
        distance=np.where(fault == 0, 0, driven),
        seconds=np.where(fault == 2, took // 20, took),
        fare=fare,
        tip=np.where(tipped, metered // 5, 0),
    )


def _places(bits: Numbers) -> tuple[Numbers, Numbers]:
    area = np.searchsorted(np.array([area.below for area in AREAS]), bits % 100, side="right")
    _, west, south, step_east, step_north = (np.array(column, dtype=np.int64) for column in zip(*AREAS, strict=True))
    east, north = bits // 100 % STEPS, bits // (100 * STEPS) % STEPS
    return west[area] + east * step_east[area], south[area] + north * step_north[area]
