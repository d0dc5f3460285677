"""Linear Road on plain PySpark: statistics, accidents, tolls and alerts, by the rules of `linear_road_oracle.py`.

Over a frame of all reports, `tolls` and `alerts` give exactly what the oracle does. On a stream:

- `statistics` is the same function. NOV and LAV of a minute come out once the watermark has passed its beginning, and
  are exact as long as no report is later than the delay.
- `accident_news` follows each side of an expressway with applyInPandasWithState. It is exact as long as a car's reports
  arrive in the order of their times from one batch to the next; within a batch order does not matter. A car that leaves
  an expressway without reporting the exit lane, and comes back, is seen as never gone. Cars in the exit lane are
  forgotten, so that the state does not grow with every car that ever passed; nobody crashes there.
- Tolls are for the frame only. Linear Road wants them 5 s after a car has entered, from the statistics of the minute
  that has just ended, and they need each car's report before, accidents and statistics at once: three stateful steps
  over one stream, which Spark would read once for each, to be joined when the watermark has passed that minute.

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
_SEGMENT = ("xway", "dir", "seg")
_PLACE = ("xway", "dir", "lane", "pos")
_MINUTE_OF = "{} div 60 + 1"


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
    over = f"(nov - {TOLL_FREE_CARS})"
    due = f"nov > {TOLL_FREE_CARS} AND lav < {TOLL_BELOW_MPH} AND accident_seg IS NULL"
    return (
        _warned(reports)
        .join(statistics(reports), [*_SEGMENT, "minute"], "left")
        .selectExpr("vid", "time", *_SEGMENT, "lav", f"IF({due}, 2 * {over} * {over}, 0L) AS toll")
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


def follow_side(key: tuple[int, int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """One side of an expressway over one batch: the state is its cars' last places, and its open accidents.

    A car is {vid: [lane, pos, reports there]}; an accident, [seg, first, second, since].
    """
    import pandas as pd  # noqa: PLC0415  # only workers need it

    cars, standing = json.loads(state.get[0]) if state.exists else ({}, [])
    news: list[tuple[int | None, ...]] = []
    # Who moves goes first: a car that stops in the same moment did not stand beside it.
    for time_s, together in pd.concat(list(frames)).sort_values("vid").groupby("time"):
        moved: list[list[int]] = []
        stayed: list[list[int]] = []
        for vid, lane, pos, seg in together[["vid", "lane", "pos", "seg"]].to_numpy().tolist():
            same = cars.get(str(vid), [])[:2] == [lane, pos]
            (stayed if same else moved).append([vid, lane, pos, seg])
        for vid, lane, pos, _ in moved:
            over = [accident for accident in standing if vid in accident[1:3]]
            standing = [accident for accident in standing if accident not in over]
            news += [(*key, *accident, int(time_s)) for accident in over]
            cars.pop(str(vid), None)
            if lane != EXIT_LANE:
                cars[str(vid)] = [lane, pos, 1]
        for vid, lane, pos, seg in stayed:
            cars[str(vid)][2] += 1
            if cars[str(vid)][2] == STOPPED_REPORTS:
                found = [
                    [seg, *sorted((other, vid)), int(time_s)] for other in _stopped(cars, lane, pos) if other != vid
                ]
                standing += found
                news += [(*key, *accident, None) for accident in found]
    state.update((json.dumps([cars, standing]),))
    columns = [column.split()[0] for column in NEWS_SCHEMA.split(", ")]
    yield pd.DataFrame(news, columns=columns).astype("Int64")


def _stopped(cars: dict[str, list[int]], lane: int, pos: int) -> list[int]:
    return [int(vid) for vid, (*at, reports) in cars.items() if at == [lane, pos] and reports >= STOPPED_REPORTS]
