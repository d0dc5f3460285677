"""Seeded traffic for Linear Road: cars that enter, report every 30 s, are held up, crash, and leave.

On each side of an expressway there is one congested zone of four segments with a busy ramp at its beginning, for a
part of the time; drivers there do 12 to 28 mph, elsewhere 50 to 70. Half of the cars enter at that ramp, the others
anywhere. A car is in lane 0 when it enters, in 1 to 3 on its way, and in 4 with its last report, at its exit. A crash
is a pair of cars that drive as one, up to the same place, stand there for 5 to 12 reports, and drive on.

Plain Python; a seed gives the same reports everywhere.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

REPORT_EVERY_S = 30
SEGMENTS = 100
SEGMENT_FEET = 5280
ROAD_FEET = SEGMENTS * SEGMENT_FEET
FEET_PER_MPH = 44  # in 30 s
ENTRY_LANE, EXIT_LANE = 0, 4
ZONE_SEGMENTS = 4


class Report(NamedTuple):
    """A position report, Linear Road's type 0; `time` in seconds from the start."""

    time: int
    vid: int
    speed: int
    xway: int
    lane: int
    dir: int
    seg: int
    pos: int


class _Zone(NamedTuple):
    """Where and when traffic is dense, in feet from where the side begins."""

    from_feet: int
    to_feet: int
    from_s: int
    to_s: int

    def holds(self, feet: int, at_s: int) -> bool:
        return self.from_feet <= feet < self.to_feet and self.from_s <= at_s < self.to_s


@dataclass(frozen=True)
class Traffic:
    """cars_per_minute enter each direction of each expressway; of them `crashes` pairs collide."""

    seed: int
    minutes: int = 10
    xways: int = 1
    cars_per_minute: int = 40
    crashes: int = 2

    def __post_init__(self) -> None:
        for name in ("minutes", "xways", "cars_per_minute"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"traffic needs {name} of 1 or more; got {getattr(self, name)}.")
        if not 0 <= 2 * self.crashes <= self.minutes * self.cars_per_minute:
            raise ConfigurationError(
                f"{self.crashes} crashes need {2 * self.crashes} cars, and {self.minutes * self.cars_per_minute} enter "
                "each direction: ask for fewer crashes or more cars."
            )

    def reports(self) -> list[Report]:
        """All reports, by time and then by car."""
        found: list[Report] = []
        for xway in range(self.xways):
            for direction in (0, 1):
                found += self._side(xway, direction)
        return sorted(found)

    def _side(self, xway: int, direction: int) -> Iterator[Report]:
        rng = random.Random(f"linear-road-{self.seed}-{xway}-{direction}")
        zone = self._zone(rng)
        cars = self.minutes * self.cars_per_minute
        first_vid = (2 * xway + direction) * cars
        for number in range(cars):
            vid = first_vid + number
            if number < 2 * self.crashes and number % 2:
                continue
            # A crash that begins late would not be seen.
            latest_s = 60 * self.minutes // (4 if number < 2 * self.crashes else 1)
            trip = list(self._trip(rng, zone, enters_s=rng.randrange(latest_s), crashes=number < 2 * self.crashes))
            yield from _driven(trip, vid, xway, direction, later_s=0)
            if number < 2 * self.crashes:
                yield from _driven(trip, vid + 1, xway, direction, later_s=rng.randrange(REPORT_EVERY_S))

    def _zone(self, rng: random.Random) -> _Zone:
        first = rng.randrange(5, SEGMENTS - 30)
        begins_s = rng.randrange(60)
        lasts_s = 60 * self.minutes * 3 // 4
        return _Zone(first * SEGMENT_FEET, (first + ZONE_SEGMENTS) * SEGMENT_FEET, begins_s, begins_s + lasts_s)

    def _trip(
        self, rng: random.Random, zone: _Zone, *, enters_s: int, crashes: bool
    ) -> Iterator[tuple[int, int, int, int]]:
        """(time, speed, lane, feet) of each report of one car."""
        ramp = zone.from_feet // SEGMENT_FEET if rng.random() < 0.5 else rng.randrange(SEGMENTS - 10)
        feet = ramp * SEGMENT_FEET + rng.randrange(SEGMENT_FEET)
        exit_feet = min(ROAD_FEET - 1, feet + rng.randrange(4 if crashes else 2, 12) * SEGMENT_FEET)
        # Nobody stops on a ramp: the place of a crash is that of a lane.
        stands_from = rng.randrange(2, 5) if crashes else None
        stands_for = rng.randrange(5, 13)
        lane, at_s, step = ENTRY_LANE, enters_s, 0
        while at_s < 60 * self.minutes:
            standing = stands_from is not None and stands_from <= step < stands_from + stands_for
            slow = zone.holds(feet, at_s)
            mph = rng.randrange(12, 29) if slow else rng.randrange(50, 71)
            yield at_s, 0 if standing else mph, lane, feet
            if lane == EXIT_LANE:
                return
            step, at_s = step + 1, at_s + REPORT_EVERY_S
            stays = stands_from is not None and stands_from < step < stands_from + stands_for
            if not stays:
                feet += mph * FEET_PER_MPH
                lane = rng.randrange(1, 4)
            if feet >= exit_feet:
                feet, lane = exit_feet, EXIT_LANE


def _driven(
    trip: Iterable[tuple[int, int, int, int]], vid: int, xway: int, direction: int, later_s: int
) -> Iterator[Report]:
    for at_s, mph, lane, feet in trip:
        pos = feet if direction == 0 else ROAD_FEET - 1 - feet
        yield Report(at_s + later_s, vid, mph, xway, lane, direction, pos // SEGMENT_FEET, pos)


def write_json(reports: Iterable[Report], file: Path) -> None:
    """One JSON object a line."""
    with file.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(report._asdict()) + "\n" for report in reports)


def write_parquet(reports: Iterable[Report], file: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415  # only needed for files of this kind
    import pyarrow.parquet as pq  # noqa: PLC0415

    columns = list(zip(*reports, strict=True)) or [()] * len(Report._fields)
    arrays = {name: pa.array(values, pa.int64()) for name, values in zip(Report._fields, columns, strict=True)}
    pq.write_table(pa.table(arrays), file)
