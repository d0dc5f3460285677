"""What Spark makes of a workload's generator and query is what its oracle says, row for row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slackwater.workloads.base import QuerySpec
from slackwater.workloads.linear_road_windows import LinearRoadWindows, LinearRoadWindowsOracle
from slackwater.workloads.nyt import Nyt, NytOracle
from slackwater.workloads.nyt_trips import COLUMNS, csv_lines, parsed, trip_columns

if TYPE_CHECKING:
    from slackwater.workloads.base import Payload

pytestmark = pytest.mark.spark

CREATED_MS = 1_700_000_000_123
SECONDS = 10


def numbered(spark: Any, rate: int, created_ms: int = CREATED_MS, seconds: int = SECONDS) -> Any:
    """The rate source's rows of some seconds, all there at once."""
    within = f"CAST(floor((id % {rate}) * (1000D / {rate}) + 0.5D) AS BIGINT)"
    return spark.range(0, seconds * rate, 1, 2).selectExpr(
        "id AS value", f"timestamp_millis({created_ms} + id div {rate} * 1000 + {within}) AS timestamp"
    )


def by_window(frame: Any) -> dict[int, list[Payload]]:
    found: dict[int, list[Payload]] = {}
    for start, *payload in sorted(frame.drop("batch_ts").selectExpr("unix_millis(window_start)", "*").collect()):
        found.setdefault(start, []).append(tuple(payload[1:]))
    return found


def test_cells_of_every_whole_sliding_window_have_the_trips_and_fares_of_the_oracle(spark):
    spec = QuerySpec("q", 700, 2.0, 1.0, 300, 7, slide_s=1.0)
    found = by_window(Nyt().from_numbers(numbered(spark, spec.rate), spec))
    oracle = NytOracle(spec, CREATED_MS)
    whole = {start: rows for start, rows in found.items() if start + spec.window_ms <= CREATED_MS + 1000 * SECONDS}
    assert len(whole) in (SECONDS, SECONDS - 1)
    assert whole == {start: oracle.expected(start) for start in whole}


def test_routes_have_the_trips_and_fares_of_the_oracle(spark):
    spec = QuerySpec("q", 200, 4.0, 1.0, 0, 3, slide_s=2.0)
    found = by_window(Nyt(by="route").from_numbers(numbered(spark, spec.rate), spec))
    start = sorted(found)[1]
    assert found[start] == NytOracle(spec, CREATED_MS, by="route").expected(start)


def test_a_trip_that_was_written_as_text_is_parsed_back_exactly(spark):
    trips = trip_columns(numbered(spark, 100), seed=5)
    assert trips.columns == list(COLUMNS)
    assert {name: kind.upper() for name, kind in trips.dtypes} == COLUMNS
    assert sorted(parsed(csv_lines(trips)).collect()) == sorted(trips.collect())


def test_three_joined_feeds_give_the_cars_accidents_and_tolls_of_the_oracle(spark):
    spec = QuerySpec("q", 9750, 5.0, 1.0, 400, 7, slide_s=3.0)
    created = [CREATED_MS, CREATED_MS + 3, CREATED_MS + 40]
    feeds = [numbered(spark, spec.rate // 3, created_ms, seconds=8) for created_ms in created]
    found = by_window(LinearRoadWindows().from_numbers(feeds, spec))
    oracle = LinearRoadWindowsOracle(spec, created)
    whole = {start: rows for start, rows in found.items() if start + spec.slide_ms <= CREATED_MS + 8000}
    assert len(whole) >= 2
    assert whole == {start: oracle.expected(start) for start in whole}
    last = whole[max(whole)]
    assert sum(row[4] for row in last) > 0
    assert sum(row[6] for row in last) > 0
