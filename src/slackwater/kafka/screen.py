"""Rows that cannot be used, kept away from a query, counted, and handed on.

Spark's watermark follows the largest event time that any row has. One row of the year 3000 closes every window there
is, and all rows after it are dropped as late, in silence, for good: the watermark is in the checkpoint. So rows must be
looked at before `withWatermark`. A row without an event time (a text that is not JSON gives none) is dropped by
Spark's windows, also in silence.

    screen = Screen("event_time", ahead_s=60)
    good = screen.good(parsed)              # with counts of what was left out in the query's progress
    bad = screen.rejected(parsed)           # the others, with the reason: for a query that writes them somewhere
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column, DataFrame

OBSERVED: Final = "slackwater_rejects"
REASON: Final = "rejected"
_FIRST_MS: Final = -62_135_596_800_000  # the years 1 to 9999
_LAST_MS: Final = 253_402_300_799_999
NO_TIME, AHEAD, BEHIND = "no_event_time", "ahead", "behind"


@dataclass(frozen=True)
class Screen:
    """Which rows a query takes, by their event time against the time at which they were ingested.

    event_time, ingested: names of timestamp columns; Kafka's `timestamp` is that of the broker or the producer. A row
    more than `ahead_s` before its time is left out, and, if it is set, one more than `behind_s` after it.
    """

    event_time: str
    ingested: str = "timestamp"
    ahead_s: float = 60.0
    behind_s: float | None = None

    def __post_init__(self) -> None:
        for name, seconds in (("ahead_s", self.ahead_s), ("behind_s", self.behind_s)):
            if seconds is not None and seconds < 0:
                raise ConfigurationError(f"Screen({name}={seconds:g}): seconds that are not negative are needed.")

    def good(self, frame: DataFrame) -> DataFrame:
        """Rows that can be used. How many of each kind could not be is in each progress of the query."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  # Spark's own convention; loaded on use

        reason = self._reason()
        counts = [F.count_if(reason == kind).alias(kind) for kind in (NO_TIME, AHEAD, BEHIND)]
        return frame.observe(OBSERVED, *counts).where(reason.isNull())

    def rejected(self, frame: DataFrame) -> DataFrame:
        """The other rows, whole, with the reason in a column `rejected`."""
        return frame.withColumn(REASON, self._reason()).where(f"{REASON} IS NOT NULL")

    def _reason(self) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        # In microseconds as whole numbers: an absurd time plus a span need not be a timestamp any more.
        lead_us = F.unix_micros(F.col(self.event_time)) - F.unix_micros(F.col(self.ingested))
        reason = F.when(F.col(self.event_time).isNull(), NO_TIME).when(lead_us > round(1e6 * self.ahead_s), AHEAD)
        return reason if self.behind_s is None else reason.when(lead_us < -round(1e6 * self.behind_s), BEHIND)


def from_millis(column: str) -> Column:
    """The timestamp of milliseconds since 1970; null for a number that no calendar has, which would fail the query."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.expr(f"IF({column} BETWEEN {_FIRST_MS} AND {_LAST_MS}, timestamp_millis({column}), NULL)")


def rejects(progress: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Rows that were left out by kind, from a query's progress reports (`query.recentProgress`)."""
    total = dict.fromkeys((NO_TIME, AHEAD, BEHIND), 0)
    for report in progress:
        counts = (report["observedMetrics"] or {}).get(OBSERVED)
        if counts is not None:
            for kind in total:
                total[kind] += int(counts[kind])
    return total
