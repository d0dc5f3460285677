"""A windowed query that takes late rows, written as a Spark user writes `groupBy(window(...)).agg(...)`."""

from __future__ import annotations

import inspect
import logging
import re
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from slackwater.drivers.spark.restart import started_again_by
from slackwater.drivers.spark.sessions import tell
from slackwater.errors import ConfigurationError
from slackwater.late.aggregates import decompose
from slackwater.late.arrow import pa
from slackwater.late.bounds import Bound, Predicted
from slackwater.late.checkpoint import last_committed, query_id
from slackwater.late.files import Files, files_at
from slackwater.late.functions import EVENTS, LATEST, Aggregates, Rows, WindowFunction, assigned
from slackwater.late.memory import Options
from slackwater.late.parts import WINDOW
from slackwater.late.run import Run
from slackwater.late.sinks import sink_of, to_arrow
from slackwater.late.staleness import LEAST_BOUND
from slackwater.late.stopping import keep_stops_quiet
from slackwater.late.store import WindowStore
from slackwater.late.windows import Duration, Windows, duration_ms
from slackwater.late.writing import travel_along

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

_RESERVED: Final = ("window", "revision", "kind", WINDOW, EVENTS, LATEST)
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

_runs: dict[str, Run] = {}
_runs_lock = threading.Lock()


def window(
    frame: DataFrame,
    event_time: str,
    size: Duration,
    slide: Duration | None = None,
    *,
    watermark: Duration,
    allowed_lateness: Duration | Predicted,
    staleness: float | None = None,
    offset: Duration = 0,
) -> WindowedFrame:
    """Windows over a streaming frame that are corrected when rows come late.

    size, slide, offset: as for Spark's `window`; without a slide, tumbling.
    watermark: how far the watermark stays behind the greatest event time: when it passes a window's end, the result
        leaves.
    allowed_lateness: how long after its end, by the watermark, a window takes rows; what comes later is a dead letter.
        `Predicted(...)` learns it.
    staleness: the greatest share t·n/(T·N) by which a result may lag behind the rows that came (Aion): it is executed
        again as seldom as that allows. None: only once more, when no more rows may come.
    """
    if not getattr(frame, "isStreaming", False):
        raise ConfigurationError("late.window takes a streaming frame (spark.readStream); this one is a batch frame.")
    if event_time not in frame.columns:
        raise ConfigurationError(f"event_time={event_time!r} is no column; there are: {', '.join(frame.columns)}.")
    kind = frame.schema[event_time].dataType.typeName()
    if kind != "timestamp":
        raise ConfigurationError(f"event_time={event_time!r} is a {kind}; a timestamp is needed. Cast it first.")
    taken = [name for name in frame.columns if name in (WINDOW, EVENTS, LATEST)]
    if taken:
        raise ConfigurationError(f"the column {taken[0]!r} has a name that is used inside. Rename it first.")
    if staleness is not None and not LEAST_BOUND <= staleness <= 1:
        raise ConfigurationError(f"a staleness bound of {staleness!r}: a number from {LEAST_BOUND:g} to 1 is needed.")
    size_ms = duration_ms(size, "a window")
    windows = Windows(
        size_ms, size_ms if slide is None else duration_ms(slide, "a slide"), duration_ms(offset, "an offset")
    )
    delay_ms = duration_ms(watermark, "a watermark delay")
    Bound(allowed_lateness, size_ms)
    return WindowedFrame(frame, event_time, windows, delay_ms, allowed_lateness, staleness)


@dataclass(frozen=True)
class WindowedFrame:
    frame: DataFrame
    event_time: str
    windows: Windows
    delay_ms: int
    allowed_lateness: Duration | Predicted
    staleness: float | None
    keys: tuple[str, ...] = ()

    def groupBy(self, *keys: str) -> WindowedFrame:  # noqa: N802 - Spark's name
        unknown = [key for key in keys if key not in self.frame.columns]
        if unknown:
            raise ConfigurationError(
                f"groupBy({unknown[0]!r}): no such column; there are: {', '.join(self.frame.columns)}. "
                "Derive keys with withColumn before late.window."
            )
        _check_names(keys)
        return replace(self, keys=tuple(keys))

    def agg(self, *columns: Column) -> LateQuery:
        """Spark's aggregates, of which mergeable partials are kept."""
        spark = self.frame.sparkSession
        decomposed = decompose(spark, self.frame.schema, self.keys, columns)
        return LateQuery(self, Aggregates(decomposed, self.keys, self.event_time))

    def apply(self, function: Callable[..., Any], schema: str | StructType, *, blocking: bool = True) -> LateQuery:
        """A pandas function over a window's rows, as groupBy(window, *keys).applyInPandas takes it; rows are kept.

        blocking: it needs a window's rows all together. One that could begin with some of them (of several keys, say)
        needs fewer in memory: only so many as it takes to read the others.
        """
        from pyspark.sql.types import StructType, _parse_datatype_string  # noqa: PLC0415

        result = schema if isinstance(schema, StructType) else _parse_datatype_string(schema)
        if not isinstance(result, StructType):
            raise ConfigurationError(f"the function's schema {schema!r} is no list of columns, such as `mean DOUBLE`.")
        _check_names(result.names)
        takes_key = len(inspect.signature(function).parameters) == 2
        rows = Rows(function, result, self.keys, self.event_time, self.windows.size_ms, takes_key, blocking)
        return LateQuery(self, rows)


@dataclass(frozen=True)
class LateQuery:
    over: WindowedFrame
    function: WindowFunction
    options: Options = field(default_factory=Options)

    def memory(self, total: str | int | None = None, *, window: str | int | None = None, **more: Any) -> LateQuery:
        """Bounds on what is kept in memory, of all windows and of each; beyond them rows wait on disk.

        Without a total it is an eighth of what Spark may store.
        more: fields of `Options`, such as the policy that says which windows go first.
        """
        every = None if total is None else _bytes(total)
        each = None if window is None else _bytes(window)
        return replace(self, options=replace(self.options, memory_bytes=every, window_bytes=each, **more))

    def start(
        self,
        sink: Any,
        checkpoint: str | Path,
        *,
        store: str | Path | Files | None = None,
        name: str | None = None,
        trigger: Mapping[str, Any] | None = None,
    ) -> StreamingQuery:
        """Start it; the query that is returned is stopped, awaited and watched like any other.

        sink: late.Append(path), late.Latest(path), or a function such as foreachBatch takes.
        store: where windows wait, a folder or a URI; without one, `windows` in the checkpoint.
        trigger: keywords of Spark's `trigger`, such as {"processingTime": "2 seconds"}.
        """
        travel_along()
        keep_stops_quiet()
        over, spark, windows = self.over, self.over.frame.sparkSession, self.over.windows
        target = sink_of(sink)
        place, kept = str(checkpoint), self._kept()
        files = files_at(place)
        where = f"{place}/windows" if store is None else store
        _await_the_end_of(where)
        known = {"commits", "offsets", "metadata"} & files.names("")
        opened = WindowStore(
            where,
            _arrow_schema(kept),
            kind=self.function.kind,
            event_time=self.function.event_time,
            counted=self.function.counted,
            purpose=f"windows of {windows.size_ms} ms every {windows.slide_ms} ms, {windows.offset_ms} ms after the "
            f"epoch, by {over.event_time}; for {self.function.kept_for}",
            owner=query_id(place) if known else None,
            rule=self.options.compaction,
            fold_after=self.options.fold_after,
        )
        committed = last_committed(place) if known else -1
        found = opened.open(committed)
        if not known and (owner := opened.about.owner) is not None:
            opened.close()
            raise ConfigurationError(
                f"the store at {opened.files} belongs to query {owner}, and the checkpoint {place} is "
                "new: its batches would be numbered anew. Use a new store, or the old checkpoint."
            )
        for problem in found.problems:
            log.warning("%s: %s", name or place, problem.reason)
        run = Run(
            spark,
            name or place,
            over.windows,
            over.delay_ms,
            self.function,
            kept.schema,
            Bound(over.allowed_lateness, over.windows.size_ms),
            over.staleness,
            opened,
            target,
            place,
            self.options,
        )
        writer = self._streaming().writeStream.foreachBatch(run.on_batch).option("checkpointLocation", place)
        if name is not None:
            writer = writer.queryName(name)
        if trigger:
            writer = writer.trigger(**trigger)
        try:
            run.recover()
            with started_again_by(lambda: self.start(sink, checkpoint, store=store, name=name, trigger=trigger)):
                stream = writer.start()
        except BaseException:
            opened.close()
            raise
        opened.own(str(stream.id))
        run.start(stream, settle_at_end=bool({"once", "availableNow"} & (trigger or {}).keys()))
        with _runs_lock:
            for key in [key for key, run_before in _runs.items() if run_before.ended]:
                del _runs[key]
            _runs[str(stream.runId)] = run
        _tell_of(spark)
        return stream

    def _streaming(self) -> DataFrame:
        over = self.over
        frame = over.frame.withWatermark(over.event_time, f"{over.delay_ms} milliseconds")
        return assigned(frame, over.event_time, over.windows.size_ms, over.windows.slide_ms, over.windows.offset_ms)

    def _kept(self) -> DataFrame:
        """What a batch without rows would leave."""
        over = self.over
        empty = over.frame.sparkSession.createDataFrame([], over.frame.schema)
        windows = over.windows
        frame = assigned(empty, over.event_time, windows.size_ms, windows.slide_ms, windows.offset_ms)
        return self.function.kept(frame)


def _await_the_end_of(store: str | Path | Files) -> None:
    """A run of this store whose query has just ended may still be putting things away."""
    root = (store if isinstance(store, Files) else files_at(store)).root
    with _runs_lock:
        ending = [run for run in _runs.values() if run.store.files.root == root and not run.alive]
    for run in ending:
        run.await_end()


def handle(query: StreamingQuery) -> Run:
    """What runs behind a query that LateQuery.start has started: `status()`, `settle()`, `store`."""
    with _runs_lock:
        run = _runs.get(str(query.runId))
    if run is None:
        raise ConfigurationError(f"query {query.name or query.id} was not started by late.window(…)….start() here.")
    return run


def _tell_of(spark: SparkSession) -> None:
    """Let the page and the metrics of this application show its late queries, whenever it is attached."""
    application_id = spark.sparkContext.applicationId

    def told() -> list[dict[str, Any]]:
        with _runs_lock:
            runs = [run for run in _runs.values() if run.application_id == application_id and not run.ended]
        return [run.status() for run in runs]

    tell(spark, "late", told)


def _arrow_schema(empty: DataFrame) -> Any:
    """With timestamps in UTC, whatever the session's time zone: what is on disk must not depend on it."""
    try:
        found = to_arrow(empty).schema
    except Exception as error:
        raise ConfigurationError(
            f"the rows cannot be kept, since a column has no Arrow type: {error}. Leave it out, or cast it."
        ) from error
    fields = [
        one.with_type(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(one.type) and one.type.tz else one
        for one in found
    ]
    return pa.schema([one.with_nullable(True).remove_metadata() for one in fields])


def _check_names(names: Any) -> None:
    taken = [name for name in names if name in _RESERVED]
    if taken:
        raise ConfigurationError(
            f"a column of the result is called {taken[0]!r}, which results have already. Choose another name."
        )


def _bytes(given: str | int) -> int:
    if isinstance(given, int) and given >= 0:
        return given
    match = re.fullmatch(r"(\d+)\s*([kmg]?)i?b?", str(given).strip().lower())
    if match is None:
        raise ConfigurationError(f"memory of {given!r}: a number of bytes, or one with k, m or g is needed, as `256m`.")
    return int(match[1]) * _UNITS[match[2]]
