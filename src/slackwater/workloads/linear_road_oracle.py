"""Linear Road's rules in plain Python, one report after the other: what the pipeline in `linear_road.py` must give.

Minute m of a time t is t/60 + 1. In minute m a segment has NOV, the number of cars that reported there in minute m - 1,
and LAV, the mean of all speeds reported there in minutes m - 5 to m - 1, rounded (halves up).

A car is stopped from its fourth consecutive report at one place (expressway, direction, lane and position) until it
reports another one. Two cars that are stopped at one place at the same time are an accident; it is over once either
moves, and counts from the minute after it was found.

A car enters a segment with its first report there, unless that is in the exit lane; a car that had left enters anew. It
then gets a toll: 2·(NOV - 50)² if NOV > 50, LAV < 40 and no accident lies in its segment or the four next ones
downstream, else nothing. For an accident there it gets an alert, for the nearest one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slackwater.workloads.linear_road_traffic import Report

EXIT_LANE = 4
STOPPED_REPORTS = 4
TOLL_FREE_CARS = 50
TOLL_BELOW_MPH = 40
LAV_MINUTES = 5
SEEN_SEGMENTS = 4

_Place = tuple[int, int, int, int]
_Segment = tuple[int, int, int]


class Toll(NamedTuple):
    """`lav` is None where nobody reported in the five minutes before."""

    vid: int
    time: int
    xway: int
    dir: int
    seg: int
    lav: int | None
    toll: int


class Alert(NamedTuple):
    """`seg` is the accident's."""

    vid: int
    time: int
    xway: int
    dir: int
    seg: int


class Accident(NamedTuple):
    """From `since` on both cars were stopped; `until`, when one had moved, is None if none did."""

    xway: int
    dir: int
    seg: int
    first_vid: int
    second_vid: int
    since: int
    until: int | None


@dataclass
class Verdict:
    tolls: list[Toll] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)
    accidents: list[Accident] = field(default_factory=list)


def minute_of(time_s: int) -> int:
    return time_s // 60 + 1


def toll_of(nov: int, lav: int | None, *, accident: bool) -> int:
    if nov <= TOLL_FREE_CARS or lav is None or lav >= TOLL_BELOW_MPH or accident:
        return 0
    return 2 * (nov - TOLL_FREE_CARS) ** 2


def judge(reports: Iterable[Report]) -> Verdict:
    """Every toll, alert and accident of these reports, each sorted."""
    road = _Road()
    ordered = sorted(reports, key=lambda report: report.time)
    for _, together in groupby(ordered, key=lambda report: report.time):
        road.second(list(together))
    return road.verdict()


@dataclass
class _Car:
    last: Report
    same_place: int = 1


class _Road:
    def __init__(self) -> None:
        self.cars: dict[int, _Car] = {}
        self.seen: defaultdict[tuple[_Segment, int], set[int]] = defaultdict(set)
        self.speeds: defaultdict[tuple[_Segment, int], list[int]] = defaultdict(list)
        self.stopped: defaultdict[_Place, set[int]] = defaultdict(set)
        self.open: list[Accident] = []
        self.found = Verdict()

    def second(self, reports: list[Report]) -> None:
        """What happened at one moment; first to everybody, so that the order of reports does not matter."""
        entering = [report for report in reports if self._enters(report)]
        for report in reports:
            segment = (report.xway, report.dir, report.seg)
            self.seen[segment, minute_of(report.time)].add(report.vid)
            self.speeds[segment, minute_of(report.time)].append(report.speed)
            self._follow(report)
        for report in entering:
            self._notify(report)

    def verdict(self) -> Verdict:
        # One car stopped in the moment in which the other moved: they never stood together.
        lasted = [a for a in (*self.found.accidents, *self.open) if a.until is None or a.since < a.until]
        by_pair = sorted(lasted, key=lambda a: (a.since, a.first_vid, a.second_vid))
        return Verdict(sorted(self.found.tolls), sorted(self.found.alerts), by_pair)

    def _enters(self, report: Report) -> bool:
        if report.lane == EXIT_LANE:
            return False
        car = self.cars.get(report.vid)
        if car is None or car.last.lane == EXIT_LANE:
            return True
        return (car.last.xway, car.last.dir, car.last.seg) != (report.xway, report.dir, report.seg)

    def _follow(self, report: Report) -> None:
        car = self.cars.get(report.vid)
        if car is None:
            self.cars[report.vid] = _Car(report)
            return
        before, now = _place(car.last), _place(report)
        car.last = report
        if now != before:
            car.same_place = 1
            self._moved(report.vid, before, report.time)
            return
        car.same_place += 1
        if car.same_place == STOPPED_REPORTS:
            for other in self.stopped[now]:
                first, second = sorted((other, report.vid))
                self.open.append(Accident(report.xway, report.dir, report.seg, first, second, report.time, None))
            self.stopped[now].add(report.vid)

    def _moved(self, vid: int, place: _Place, time_s: int) -> None:
        self.stopped[place].discard(vid)
        over = [accident for accident in self.open if vid in (accident.first_vid, accident.second_vid)]
        self.open = [accident for accident in self.open if accident not in over]
        self.found.accidents += [accident._replace(until=time_s) for accident in over]

    def _notify(self, report: Report) -> None:
        minute = minute_of(report.time)
        segment = (report.xway, report.dir, report.seg)
        nov = len(self.seen.get((segment, minute - 1), ()))
        lav = self._lav(segment, minute)
        ahead = self._accident_ahead(report)
        toll = toll_of(nov, lav, accident=ahead is not None)
        self.found.tolls.append(Toll(report.vid, report.time, *segment, lav, toll))
        if ahead is not None:
            self.found.alerts.append(Alert(report.vid, report.time, report.xway, report.dir, ahead))

    def _lav(self, segment: _Segment, minute: int) -> int | None:
        speeds = [mph for back in range(1, LAV_MINUTES + 1) for mph in self.speeds.get((segment, minute - back), ())]
        return (2 * sum(speeds) + len(speeds)) // (2 * len(speeds)) if speeds else None

    def _accident_ahead(self, report: Report) -> int | None:
        """The segment of the nearest accident that counts now, from the car's own to the fourth downstream."""
        near = {}
        for accident in self.open:
            if (accident.xway, accident.dir) == (report.xway, report.dir) and (
                minute_of(report.time) > minute_of(accident.since)
            ):
                ahead = accident.seg - report.seg if report.dir == 0 else report.seg - accident.seg
                if 0 <= ahead <= SEEN_SEGMENTS:
                    near[ahead] = accident.seg
        return near[min(near)] if near else None


def _place(report: Report) -> _Place:
    return report.xway, report.dir, report.lane, report.pos
