"""What every workload shares: what a query is, how it starts, and what its oracle can be asked."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

Phases = Literal["spread", "aligned"]
Payload = tuple[Any, ...]
PayloadKind = Literal["columns", "json", "csv", "kept"]


@dataclass(frozen=True)
class QuerySpec:
    """One query of a workload; with the source's creation time it fixes every result.

    slide_s: None for windows that tumble. deadline_s: what a scheduler is told, seconds after a window's end by which
    its result should be out; it changes no result.
    """

    name: str
    rate: int
    window_s: float
    delay_s: float
    phase_ms: int
    seed: int
    slide_s: float | None = None
    deadline_s: float | None = None

    @property
    def slide_ms(self) -> int:
        return self.window_ms if self.slide_s is None else round(self.slide_s * 1000)

    @property
    def window_ms(self) -> int:
        return round(self.window_s * 1000)

    @property
    def delay_ms(self) -> int:
        return round(self.delay_s * 1000)


@dataclass(frozen=True)
class Window:
    """A window in event time; its deadline is its end plus the query's watermark delay."""

    start_ms: int
    end_ms: int
    deadline_ms: int


@dataclass(frozen=True)
class EmittedRow:
    """A result row, with the timestamp of the batch that emitted it."""

    window_start_ms: int
    batch_ts_ms: int
    payload: Payload


class Oracle(Protocol):
    """Says what a query must emit, and when its input was there, without asking Spark."""

    def windows_due(self, from_ms: int, to_ms: int) -> list[Window]:
        """Non-empty windows whose deadline lies in [from_ms, to_ms)."""
        ...

    def expected(self, window_start_ms: int) -> list[Payload]:
        """The result rows of one window, sorted."""
        ...

    def ingestible_ms(self, deadline_ms: int) -> int:
        """Wall time from which the source offers a row with an event time at or after `deadline_ms`."""
        ...


class Workload(Protocol):
    """A generator and a query in Spark, and an oracle outside it.

    The frame that `build` returns has `window_start` and `batch_ts` (timestamps); all its other columns,
    in order, are the payload that the oracle predicts.
    """

    @property
    def name(self) -> str: ...

    def build(self, spark: SparkSession, spec: QuerySpec) -> DataFrame: ...

    def oracle(self, spec: QuerySpec, checkpoint: Path) -> Oracle: ...


@dataclass(frozen=True)
class RunningQuery:
    """A started query; `stream` is PySpark's StreamingQuery."""

    spec: QuerySpec
    checkpoint: Path
    stream: Any
    interval_ms: int | None


def start_query(
    spark: SparkSession, workload: Workload, spec: QuerySpec, checkpoint: Path, interval_ms: int | None
) -> RunningQuery:
    """Start one query into a memory table of its own name."""
    return start_frame(workload.build(spark, spec), spec, checkpoint, interval_ms)


def start_frame(frame: DataFrame, spec: QuerySpec, checkpoint: Path, interval_ms: int | None) -> RunningQuery:
    """The same with the query's frame."""
    return started(frame.writeStream.format("memory").queryName(spec.name), spec, checkpoint, interval_ms)


def started(writer: DataStreamWriter, spec: QuerySpec, checkpoint: Path, interval_ms: int | None) -> RunningQuery:
    """A query that appends to its sink; without an interval, as soon as possible."""
    writer = writer.outputMode("append").option("checkpointLocation", str(checkpoint))
    if interval_ms is not None:
        writer = writer.trigger(processingTime=f"{interval_ms} milliseconds")
    return RunningQuery(spec=spec, checkpoint=checkpoint, stream=writer.start(), interval_ms=interval_ms)


def emitted_rows(spark: SparkSession, name: str) -> list[EmittedRow]:
    """Everything that the query `name` has put into its memory table."""
    table = spark.table(name)
    payload = [column for column in table.columns if column not in ("window_start", "batch_ts")]
    rows = table.selectExpr("unix_millis(window_start)", "unix_millis(batch_ts)", *payload).collect()
    return [EmittedRow(window_start_ms=row[0], batch_ts_ms=row[1], payload=tuple(row[2:])) for row in rows]


def query_specs(
    workload: str,
    count: int,
    *,
    rate: int,
    window_s: float,
    delay_s: float,
    phases: Phases,
    seed: int,
    slide_s: float | None = None,
    deadline_s: float | None = None,
) -> list[QuerySpec]:
    """`count` queries that differ in their data and, when spread, in where their windows begin."""
    places_ms = window_phases_ms(count, round((slide_s or window_s) * 1000), phases, seed)
    width = len(str(count - 1))
    return [
        QuerySpec(
            name=f"{workload}_{i:0{width}d}",
            rate=rate,
            window_s=window_s,
            delay_s=delay_s,
            phase_ms=phase_ms,
            seed=seed * 10_007 + i,
            slide_s=slide_s,
            deadline_s=deadline_s,
        )
        for i, phase_ms in enumerate(places_ms)
    ]


def window_phases_ms(count: int, window_ms: int, phases: Phases, seed: int) -> list[int]:
    """Where the windows of `count` queries begin; for sliding windows, `window_ms` is their slide.

    `spread` puts one query in each of `count` equal slices of the window, at a random place in its slice and
    in random order, so that few queries are spread as well as many; `aligned` lets all windows end together.
    """
    if phases == "aligned":
        return [0] * count
    rng = random.Random(f"phases-{seed}")
    slices = list(range(count))
    rng.shuffle(slices)
    return [int((place + rng.random()) / count * window_ms) for place in slices]
