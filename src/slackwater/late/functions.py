"""What is computed over a window, and what must be kept of its rows to compute it again.

Two kinds: any pandas function, for which the rows are kept, and Spark's aggregates, for which a row of mergeable
partials is kept for each batch, window and key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql import functions as F  # noqa: N812

from slackwater.drivers.spark.plan import EXECUTES_IN_BATCH
from slackwater.late.parts import NO_WINDOW, WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from slackwater.late.aggregates import Decomposed
    from slackwater.late.manifest import Kind

EVENTS: Final = "_events"
LATEST: Final = "_event_time"


class WindowFunction(Protocol):
    """`kept` is what a batch leaves, `executed` the result over all that was kept; both have a column `_window`."""

    @property
    def kind(self) -> Kind: ...

    @property
    def event_time(self) -> str: ...

    @property
    def counted(self) -> str | None: ...

    @property
    def blocking(self) -> bool:
        """Must all rows of a window be there before the function begins?"""
        ...

    @property
    def kept_for(self) -> str:
        """What the kept rows serve, in words: rows for one thing are no good for another."""
        ...

    def kept(self, batch: DataFrame) -> DataFrame: ...

    def executed(self, kept: DataFrame, windows: int) -> DataFrame:
        """`windows`: how many of them are in `kept`."""
        ...


def assigned(frame: DataFrame, event_time: str, size_ms: int, slide_ms: int, offset_ms: int) -> DataFrame:
    """Each row once for each of its windows, with the window's start in ms.

    By Spark's own `window`, so that the plan shows the windows to whoever schedules the query. Rows without an event
    time would be dropped by it; they go along, to be counted, once each.
    """
    time = F.coalesce(_quoted(event_time), F.expr(EXECUTES_IN_BATCH))
    lengths = (f"{ms} milliseconds" for ms in (size_ms, slide_ms, offset_ms))
    start = F.unix_millis(F.col(f"{WINDOW}.start"))
    known = F.when(_quoted(event_time).isNotNull(), start).otherwise(F.lit(NO_WINDOW))
    once = _quoted(event_time).isNotNull() | (start >= -slide_ms)  # of the windows just before 0, the last
    return frame.withColumn(WINDOW, F.window(time, *lengths)).where(once).withColumn(WINDOW, known)


@dataclass(frozen=True)
class Rows:
    """`function(rows)` or `function(key, rows)`, as for applyInPandas over groupBy(window, *keys)."""

    function: Callable[..., Any]
    schema: StructType
    keys: tuple[str, ...]
    event_time: str
    size_ms: int
    takes_key: bool
    blocking: bool = True
    counted: None = None
    kind: Kind = "rows"

    @property
    def kept_for(self) -> str:
        return "any function"

    def kept(self, batch: DataFrame) -> DataFrame:
        return batch

    def executed(self, kept: DataFrame, windows: int) -> DataFrame:
        from pyspark.sql.types import LongType, StructField, StructType  # noqa: PLC0415

        result = StructType([StructField(WINDOW, LongType()), *self.schema.fields])
        call = _grouped(self.function, self.size_ms, self.takes_key)
        if windows == 1 and not self.keys:  # one group: no need to shuffle whole rows to find it
            kept = kept.coalesce(1)
        return kept.groupBy(WINDOW, *map(_quoted, self.keys)).applyInPandas(call, result)


def _grouped(function: Callable[..., Any], size_ms: int, takes_key: bool) -> Callable[[tuple[Any, ...], Any], Any]:
    """The user's function sees what groupBy(window, *keys).applyInPandas would show it."""

    def call(key: tuple[Any, ...], rows: Any) -> Any:
        import pandas as pd  # noqa: PLC0415 - in a task

        start, *keys = key
        shown = rows.drop(columns=[WINDOW])
        if takes_key:
            bounds = {"start": pd.Timestamp(start, unit="ms"), "end": pd.Timestamp(start + size_ms, unit="ms")}
            found = function((bounds, *keys), shown)
        else:
            found = function(shown)
        found = found.copy(deep=False)
        found.insert(0, WINDOW, start)
        return found

    return call


@dataclass(frozen=True)
class Aggregates:
    decomposed: Decomposed
    keys: tuple[str, ...]
    source_time: str
    blocking: bool = False
    event_time: str = LATEST
    counted: str = EVENTS
    kind: Kind = "aggregates"

    @property
    def kept_for(self) -> str:
        return f"{', '.join(map(str, self.decomposed.partial))} by {', '.join(self.keys) or 'window'}"

    def kept(self, batch: DataFrame) -> DataFrame:
        about = (F.count(F.lit(1)).alias(EVENTS), F.max(_quoted(self.source_time)).alias(LATEST))
        return self._by(batch).agg(*about, *self.decomposed.partial)

    def executed(self, kept: DataFrame, windows: int) -> DataFrame:
        del windows
        merged = self._by(kept).agg(*self.decomposed.merge)
        return merged.select(WINDOW, *map(_quoted, self.keys), *self.decomposed.finish)

    def _by(self, frame: DataFrame) -> Any:
        return frame.groupBy(WINDOW, *map(_quoted, self.keys))


def _quoted(name: str) -> Column:
    escaped = name.replace("`", "``")
    return F.col(f"`{escaped}`")
