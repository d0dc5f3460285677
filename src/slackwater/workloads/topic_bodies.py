"""The workloads' events as text, made in numpy from running numbers and event times: what producers put into topics.

The queries parse them in Spark; they share nothing with what is here but the form of the text.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import md5
from typing import TYPE_CHECKING, Any

from slackwater.workloads.linear_road_windows import reports_of
from slackwater.workloads.nyt_trips import CAB_STREAM, MICRO, trips_of
from slackwater.workloads.rate_source import mixed
from slackwater.workloads.ysb import ADS, EVENT_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from slackwater.workloads.base import QuerySpec
    from slackwater.workloads.nyt_trips import Numbers

AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")


def ysb_bodies(numbers: Numbers, event_ms: Numbers, spec: QuerySpec) -> list[bytes]:
    """JSON, as the benchmark's own generator writes it."""
    h = mixed(numbers, spec.seed)
    columns = (h // 3000 % 100, h // 300_000 % 100, h % ADS, h // 30_000_000 % 5, h // ADS % 3, event_ms)
    return [
        (
            f'{{"user_id":{user},"page_id":{page},"ad_id":{ad},"ad_type":"{AD_TYPES[kind]}",'
            f'"event_type":"{EVENT_TYPES[event]}","event_time":{at},"ip_address":"10.{user}.{page}.1"}}'
        ).encode()
        for user, page, ad, kind, event, at in _rows(columns)
    ]


def nyt_bodies(numbers: Numbers, event_ms: Numbers, spec: QuerySpec) -> list[bytes]:
    """One line of the 17 columns for each trip, times in milliseconds."""
    trips = trips_of(numbers, spec.seed)
    cab = mixed(numbers, spec.seed, CAB_STREAM)
    surcharge, toll, by_card = cab // 1_000_000 % 3 * 50, (cab // 3_000_000 % 20 == 0) * 533, cab // 60_000_000 % 2
    columns = (
        cab,
        event_ms - 1000 * trips.seconds,
        event_ms,
        trips.seconds,
        trips.distance / 100,
        trips.pickup_lon / MICRO,
        trips.pickup_lat / MICRO,
        trips.dropoff_lon / MICRO,
        trips.dropoff_lat / MICRO,
        by_card,
        trips.fare / 100,
        surcharge / 100,
        trips.tip / 100,
        toll / 100,
        (trips.fare + surcharge + 50 + trips.tip + toll) / 100,
    )
    return [
        (
            f"{_medallion(c % 10_000)},{_medallion(c % 1_000_000)},{picked},{dropped},{took},{miles},{lon},{lat},"
            f"{to_lon},{to_lat},{'CRD' if card else 'CSH'},{fare},{extra},0.5,{tip},{tolls},{total}"
        ).encode()
        for c, picked, dropped, took, miles, lon, lat, to_lon, to_lat, card, fare, extra, tip, tolls, total in _rows(
            columns
        )
    ]


def linear_road_bodies(numbers: Numbers, event_ms: Numbers, spec: QuerySpec) -> list[bytes]:
    """One line for each report: time in milliseconds, car, speed, expressway, direction, segment, place."""
    seen = reports_of(numbers, spec)
    side, segment = seen.segment // 100, seen.segment % 100
    columns = (event_ms, seen.car, seen.speed, side // 2, side % 2, segment, seen.place)
    return [",".join(map(str, row)).encode() for row in _rows(columns)]


def _rows(columns: tuple[NDArray[Any], ...]) -> Iterable[tuple[Any, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


@lru_cache(maxsize=100_000)
def _medallion(number: int) -> str:
    return md5(str(number).encode(), usedforsecurity=False).hexdigest()
