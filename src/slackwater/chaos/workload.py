"""Small queries with an oracle: counts by window and key of many queries, and one whose windows outlive memory."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from slackwater.workloads.finite import Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from slackwater.late.query import LateQuery
    from slackwater.workloads.finite import Answers, Frames, Rows

LATE = "late"
FIRST_MS = 1_600_000_000_000
WINDOW_MS = 10_000
DAY_MS = 86_400_000
_KEYS = "abc"
_COLUMNS = "window_start TIMESTAMP, k STRING, rows BIGINT, total BIGINT"
_NAMED_BY = ("window_start", "k")


@dataclass(frozen=True)
class Crowd:
    """`queries` plain ones, each over its share of the rows, and one that takes late rows where `late` is set."""

    queries: int = 3
    late: bool = True
    name: str = "crowd"
    about: str = "counts and sums by window and key, of many queries"

    @property
    def tables(self) -> dict[str, str]:
        return {"events": "event_ms BIGINT, k STRING, v BIGINT"}

    @property
    def plain(self) -> tuple[str, ...]:
        return tuple(f"counts_{number:02d}" for number in range(self.queries))

    @property
    def stages(self) -> tuple[Stage, ...]:
        plain = [
            Stage(name, ("events",), partial(_counts, number, self.queries), _COLUMNS, keys=_NAMED_BY)
            for number, name in enumerate(self.plain)
        ]
        late = [Stage(LATE, ("events",), _late, "k STRING, rows BIGINT, total BIGINT", _with_start, keys=_NAMED_BY)]
        return (*plain, *(late if self.late else ()))

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.stages)

    def generate(self, seed: int, size: int) -> Rows:
        rng = random.Random(f"{self.name}-{seed}")
        return {
            "events": [
                {"event_ms": FIRST_MS + 1000 * number, "k": rng.choice(_KEYS), "v": rng.randrange(1000)}
                for number in range(size)
            ]
        }

    def closing(self, rows: Rows) -> Rows:
        last_ms = max((row["event_ms"] for row in rows["events"]), default=FIRST_MS)
        return {"events": [{"event_ms": last_ms + DAY_MS, "k": "z", "v": share} for share in range(self.queries)]}

    def expected(self, rows: Rows) -> Answers:
        return {name: self._sums(rows, number) for number, name in enumerate(self.plain)} | (
            {LATE: self._sums(rows, None)} if self.late else {}
        )

    def _sums(self, rows: Rows, share: int | None) -> list[tuple[int, str, int, int]]:
        found: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        for row in rows["events"]:
            if share is None or row["v"] % self.queries == share:
                found[row["event_ms"] // WINDOW_MS * WINDOW_MS, row["k"]].append(row["v"])
        return sorted((start, key, len(values), sum(values)) for (start, key), values in found.items())


def _counts(share: int, shares: int, frames: Frames) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # Spark is loaded on use

    events = frames["events"].selectExpr("timestamp_millis(event_ms) AS ts", "k", "v").withWatermark("ts", "1 second")
    mine = events.where(f"v % {shares} = {share}")
    summed = mine.groupBy(F.window("ts", f"{WINDOW_MS} milliseconds"), "k").agg(
        F.count("*").alias("rows"), F.sum("v").alias("total")
    )
    return summed.selectExpr("window.start AS window_start", "k", "rows", "total")


def _late(frames: Frames) -> LateQuery:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from slackwater import late  # noqa: PLC0415

    events = frames["events"].selectExpr("timestamp_millis(event_ms) AS event_time", "k", "v")
    windows = late.window(events, "event_time", WINDOW_MS / 1000, watermark=1.0, allowed_lateness=60.0, staleness=0.1)
    return windows.groupBy("k").agg(F.count("*").alias("rows"), F.sum("v").alias("total"))


def _with_start(latest: DataFrame) -> DataFrame:
    """Without the window of the rows that only close the others: it is not in the answer."""
    return latest.where("k <> 'z'").selectExpr(
        "window.start AS window_start", *(column for column in latest.columns if column != "window")
    )
