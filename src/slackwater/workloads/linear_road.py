"""Linear Road on plain PySpark: statistics, accidents, tolls and alerts, by the rules of `linear_road_oracle.py`.

Over a frame of all reports, `tolls` and `alerts` give exactly what the oracle does. On a stream:

- `statistics` is the same function. NOV and LAV of a minute come out once the watermark has passed its beginning, and
  are exact as long as no report is later than the delay.
- `accident_news` follows each side of an expressway with applyInPandasWithState. It is exact as long as a car's reports
  arrive in the order of their times from one batch to the next; within a batch order does not matter. A car that leaves
  an expressway without reporting the exit lane, and comes back, is seen as never gone. Cars in the exit lane are
  forgotten, so that the state does not grow with every car that ever passed; nobody crashes there.
- `entries_seen` follows each side too, with the same care: which cars enter which segments, and the accident ahead. Its
  rows with an accident are the alerts.
- `tolls_joined` joins those entries with the statistics. Spark has no operator that gives both of one stream, so they
  are queries of their own, and this one reads what they wrote. A toll leaves when the watermark has passed its minute:
  Linear Road wants it 5 s after a car has entered.

Linear Road's emission time is whoever writes the rows' to add: it is the time at which they leave.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from slackwater.workloads.linear_road_oracle import (
    EXIT_LANE,
    LAV_MINUTES,
    SEEN_SEGMENTS,
    STOPPED_REPORTS,
    TOLL_BELOW_MPH,
    TOLL_FREE_CARS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from pyspark.sql import DataFrame

SCHEMA = "time BIGINT, vid BIGINT, speed BIGINT, xway BIGINT, lane BIGINT, dir BIGINT, seg BIGINT, pos BIGINT"
NEWS_SCHEMA = "xway BIGINT, dir BIGINT, seg BIGINT, first_vid BIGINT, second_vid BIGINT, since BIGINT, until BIGINT"
ENTRIES_SCHEMA = "vid BIGINT, time BIGINT, xway BIGINT, dir BIGINT, seg BIGINT, minute BIGINT, accident_seg BIGINT"
_SEGMENT = ("xway", "dir", "seg")
_PLACE = ("xway", "dir", "lane", "pos")
_MINUTE_OF = "{} div 60 + 1"
_OVER = f"(nov - {TOLL_FREE_CARS})"
_DUE = f"nov > {TOLL_FREE_CARS} AND lav < {TOLL_BELOW_MPH} AND accident_seg IS NULL"
_TOLL = f"IF({_DUE}, 2 * {_OVER} * {_OVER}, 0L)"


def statistics(reports: DataFrame, delay_s: float = 0.0) -> DataFrame:
    """(xway, dir, seg, minute, nov, lav): what holds in that minute, for segments with reports in the five before."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # Spark's own convention; loaded on use

    length, slide = f"{60 * LAV_MINUTES} seconds", "60 seconds"
    timed = reports.withColumn("event_time", F.expr("timestamp_seconds(time)")).withWatermark(
        "event_time", f"{round(1000 * delay_s)} milliseconds"
    )
    last_minute = "IF(time >= unix_seconds(before.end) - 60, vid, NULL)"
    return (
        timed.withColumn("before", F.window("event_time", length, slide))
        .groupBy("before", *_SEGMENT)
        .agg(
            F.expr(f"CAST(size(collect_set({last_minute})) AS BIGINT)").alias("nov"),
            F.expr("(2 * sum(speed) + count(*)) div (2 * count(*))").alias("lav"),
        )
        .selectExpr(*_SEGMENT, "unix_seconds(before.end) div 60 + 1 AS minute", "nov", "lav")
    )


def stops(reports: DataFrame) -> DataFrame:
    """(vid, xway, dir, lane, pos, seg, since, until): each time that a car stood; until is null while it stands."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    here = F.struct(*_PLACE)
    return (
        reports.withColumn("moved", ~here.eqNullSafe(F.lag(here).over(_by_car())))
        .withColumn("stay", F.sum(F.expr("IF(moved, 1L, 0L)")).over(_by_car()))
        .groupBy("vid", "stay", *_PLACE, "seg")
        .agg(F.sort_array(F.collect_list("time")).alias("times"))
        .withColumn("until", F.expr("lead(times[0]) OVER (PARTITION BY vid ORDER BY stay)"))
        .where(f"size(times) >= {STOPPED_REPORTS}")
        .selectExpr("vid", *_PLACE, "seg", f"times[{STOPPED_REPORTS - 1}] AS since", "until")
    )


def accidents(stopped: DataFrame) -> DataFrame:
    """(xway, dir, seg, first_vid, second_vid, since, until) of cars that stood at one place at the same time."""
    first = stopped.selectExpr(*_PLACE, "seg", "vid AS first_vid", "since AS first_since", "until AS first_until")
    second = stopped.selectExpr(*_PLACE, "vid AS second_vid", "since AS second_since", "until AS second_until")
    return (
        first.join(second, list(_PLACE))
        .where("first_vid < second_vid")
        .selectExpr(
            *_SEGMENT,
            "first_vid",
            "second_vid",
            "greatest(first_since, second_since) AS since",
            "least(first_until, second_until) AS until",
        )
        .where("until IS NULL OR since < until")
    )


def entries(reports: DataFrame) -> DataFrame:
    """The reports with which a car entered a segment."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    here = F.struct(*_SEGMENT)
    fresh = ~here.eqNullSafe(F.lag(here).over(_by_car())) | (F.lag("lane").over(_by_car()) == EXIT_LANE)
    return (
        reports.withColumn("enters", fresh)
        .where(f"enters AND lane <> {EXIT_LANE}")
        .selectExpr("vid", "time", *_SEGMENT, f"{_MINUTE_OF.format('time')} AS minute")
    )


def tolls(reports: DataFrame) -> DataFrame:
    """(vid, time, xway, dir, seg, lav, toll), one row for every car that enters a segment."""
    return (
        _warned(reports)
        .join(statistics(reports), [*_SEGMENT, "minute"], "left")
        .selectExpr("vid", "time", *_SEGMENT, "lav", f"{_TOLL} AS toll")
    )


def alerts(reports: DataFrame) -> DataFrame:
    """(vid, time, xway, dir, seg), one row for every car that enters with an accident ahead; seg is the accident's."""
    return (
        _warned(reports)
        .where("accident_seg IS NOT NULL")
        .selectExpr("vid", "time", "xway", "dir", "accident_seg AS seg")
    )


def _warned(reports: DataFrame) -> DataFrame:
    """Entries, with the segment of the nearest accident ahead that counts."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    known = accidents(stops(reports)).selectExpr(
        "xway AS a_xway", "dir AS a_dir", "seg AS accident_seg", f"{_MINUTE_OF.format('since')} AS found", "until"
    )
    ahead = F.expr("IF(dir = 0, accident_seg - seg, seg - accident_seg)")
    counts = (
        (F.col("xway") == F.col("a_xway"))
        & (F.col("dir") == F.col("a_dir"))
        & ahead.between(0, SEEN_SEGMENTS)
        & F.expr("minute > found AND (until IS NULL OR time < until)")
    )
    return (
        entries(reports)
        .join(known, counts, "left")
        .groupBy("vid", "time", *_SEGMENT, "minute")
        .agg(F.min_by("accident_seg", ahead).alias("accident_seg"))
    )


def _by_car() -> Any:
    from pyspark.sql import Window  # noqa: PLC0415

    return Window.partitionBy("vid").orderBy("time")


def accident_news(reports: DataFrame) -> DataFrame:
    """A stream of accidents: a row when one is found, with `until` null, and one when it is over."""
    from pyspark.sql.streaming.state import GroupStateTimeout  # noqa: PLC0415

    return reports.groupBy("xway", "dir").applyInPandasWithState(
        follow_side, NEWS_SCHEMA, "side STRING", "append", GroupStateTimeout.NoTimeout
    )


def entries_seen(reports: DataFrame) -> DataFrame:
    """A stream of entries, (vid, time, xway, dir, seg, minute, accident_seg): the nearest accident ahead that counts.

    Where there is none, accident_seg is null. Exact under the same conditions as `accident_news`.
    """
    from pyspark.sql.streaming.state import GroupStateTimeout  # noqa: PLC0415

    return reports.groupBy("xway", "dir").applyInPandasWithState(
        follow_entries, ENTRIES_SCHEMA, "side STRING", "append", GroupStateTimeout.NoTimeout
    )


def tolls_joined(entered: DataFrame, known: DataFrame, delay_s: float = 120.0) -> DataFrame:
    """`tolls` from streams of `entries_seen` and `statistics`: a toll leaves when the watermark has passed its minute.

    The delay is longer than a minute, as entries of one stand for its end; by how much, streams may be out of order.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # Spark's own convention; loaded on use

    def by_minute(frame: DataFrame) -> DataFrame:
        # Not its beginning: traffic starts at 1970, where Spark's watermark does, and what is not after that is late.
        end = F.expr("timestamp_seconds(60 * minute)")
        return frame.withColumn("end", end).withWatermark("end", f"{round(1000 * delay_s)} milliseconds")

    statistics_known = by_minute(known).drop("minute")
    return (
        by_minute(entered)
        .join(statistics_known, [*_SEGMENT, "end"], "left")
        .selectExpr("vid", "time", *_SEGMENT, "lav", f"{_TOLL} AS toll")
    )


def follow_side(key: tuple[int, int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """One side of an expressway over one batch: news of its accidents."""
    side = _Side(state)
    news: list[tuple[int | None, ...]] = []
    for time_s, reports in _by_second(frames):
        found, over = side.second(time_s, reports)
        news += [(*key, *accident, time_s) for accident in over]
        news += [(*key, *accident, None) for accident in found]
    side.keep(state)
    yield _whole(news, NEWS_SCHEMA)


def follow_entries(key: tuple[int, int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """One side of an expressway over one batch: which cars entered which segments, and what lies ahead of them."""
    side = _Side(state)
    entered: list[tuple[int | None, ...]] = []
    for time_s, reports in _by_second(frames):
        entering = [report for report in reports if side.enters(report)]
        side.second(time_s, reports)
        for vid, _, _, seg in entering:
            ahead = side.accident_ahead(key[1], seg, time_s)
            entered.append((vid, time_s, *key, seg, time_s // 60 + 1, ahead))
    side.keep(state)
    yield _whole(entered, ENTRIES_SCHEMA)


class _Side:
    """One side of an expressway: its cars' last places, and its open accidents.

    A car is {vid: [lane, pos, seg, reports there]}; an accident, [seg, first, second, since]; a report,
    [vid, lane, pos, seg].
    """

    def __init__(self, state: Any) -> None:
        self.cars: dict[str, list[int]]
        self.standing: list[list[int]]
        self.cars, self.standing = json.loads(state.get[0]) if state.exists else ({}, [])

    def keep(self, state: Any) -> None:
        state.update((json.dumps([self.cars, self.standing]),))

    def enters(self, report: list[int]) -> bool:
        """A car that is not known was never there, or had left."""
        vid, lane, _, seg = report
        car = self.cars.get(str(vid))
        return lane != EXIT_LANE and (car is None or car[2] != seg)

    def second(self, time_s: int, reports: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
        """What the reports of one moment change: accidents that are found, and those that are over."""
        found: list[list[int]] = []
        over: list[list[int]] = []
        # Who moves goes first: a car that stops in the same moment did not stand beside it.
        moved = [report for report in reports if self.cars.get(str(report[0]), [])[:2] != report[1:3]]
        for vid, lane, pos, seg in moved:
            ended = [accident for accident in self.standing if vid in accident[1:3]]
            self.standing = [accident for accident in self.standing if accident not in ended]
            over += ended
            self.cars.pop(str(vid), None)
            if lane != EXIT_LANE:
                self.cars[str(vid)] = [lane, pos, seg, 1]
        for vid, lane, pos, seg in (report for report in reports if report not in moved):
            car = self.cars[str(vid)]
            car[3] += 1
            if car[3] == STOPPED_REPORTS:
                found += [[seg, *sorted((other, vid)), time_s] for other in self._stopped(lane, pos) if other != vid]
        self.standing += found
        return found, over

    def accident_ahead(self, direction: int, seg: int, time_s: int) -> int | None:
        near = {}
        for accident_seg, _, _, since in self.standing:
            ahead = accident_seg - seg if direction == 0 else seg - accident_seg
            if 0 <= ahead <= SEEN_SEGMENTS and time_s // 60 > since // 60:
                near[ahead] = accident_seg
        return near[min(near)] if near else None

    def _stopped(self, lane: int, pos: int) -> list[int]:
        return [
            int(vid) for vid, (*at, _, reports) in self.cars.items() if at == [lane, pos] and reports >= STOPPED_REPORTS
        ]


def _by_second(frames: Iterator[pd.DataFrame]) -> Iterator[tuple[int, list[list[int]]]]:
    import pandas as pd  # noqa: PLC0415  # only workers need it

    for time_s, together in pd.concat(list(frames)).sort_values("vid").groupby("time"):
        yield int(time_s), together[["vid", "lane", "pos", "seg"]].to_numpy().tolist()


def _whole(rows: list[tuple[int | None, ...]], schema: str) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415

    return pd.DataFrame(rows, columns=[column.split()[0] for column in schema.split(", ")]).astype("Int64")
