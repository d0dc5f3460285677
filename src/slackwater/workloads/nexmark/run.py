"""Run a query over rows that are at hand, and return its answer: what another engine's answer is checked against."""

from __future__ import annotations

import itertools
import json
import math
import os
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  # Spark's own convention

from slackwater.errors import ConfigurationError, SlackwaterError
from slackwater.workloads.nexmark.queries import OUTPUT_MODE, build, find
from slackwater.workloads.nexmark.schema import AUCTION, BID, PERSON, Auction, Bid, Person, Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from slackwater.workloads.nexmark.oracle import Answer
    from slackwater.workloads.nexmark.schema import Event, Table

TABLES: dict[str, Table[Any]] = {"persons": PERSON, "auctions": AUCTION, "bids": BID}

_WATERMARK_MS = 4000
# Further than any window reaches; what has this much behind it is over.
_BEYOND_MS = 3_600_000
# Spark takes files in the order of their times; these stand a second apart.
_FIRST_FILE_WALL_TS = 1_700_000_000


def run_query(
    spark: SparkSession,
    name: str,
    *,
    persons: Iterable[Mapping[str, Any] | tuple[Any, ...]] = (),
    auctions: Iterable[Mapping[str, Any] | tuple[Any, ...]] = (),
    bids: Iterable[Mapping[str, Any] | tuple[Any, ...]] = (),
    streaming: bool = False,
    files: int = 3,
    timeout_s: float = 600.0,
) -> Answer:
    """The query's final answer over these rows: sorted tuples in the order of its columns, times in milliseconds.

    Rows are mappings by column name or tuples in column order (`schema.py`), times in milliseconds. With
    `streaming=True` they run through a stream in the order given: each table from `files` files, one in each
    micro-batch, after which time moves on until every window is over. The watermark then lags by the definition's 4 s,
    or by more if a row comes later than that, so that none is dropped.
    """
    query = find(name)
    rows = Rows.of(persons, auctions, bids)
    if not streaming:
        tables: dict[str, DataFrame] = dict.fromkeys(TABLES)
        tables |= {table: static(spark, TABLES[table], getattr(rows, table)) for table in query.reads}
        return answer(build(name, **tables))
    if files < 1:
        raise ConfigurationError(f"files is {files}; give 1 or more.")
    with tempfile.TemporaryDirectory(prefix="slackwater-nexmark-") as folder:
        return _streamed(spark, name, rows, files, Path(folder), timeout_s)


def static(spark: SparkSession, table: Table[Any], rows: Sequence[Event]) -> DataFrame:
    """A table that is all there."""
    return typed(table, spark.createDataFrame(list(rows), table.file_ddl))


def stream(spark: SparkSession, table: Table[Any], folder: str, files_per_batch: int | None = None) -> DataFrame:
    """A table as a stream over files of JSON lines."""
    reader = spark.readStream.schema(table.file_ddl)
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    return typed(table, reader.json(folder))


def typed(table: Table[Any], from_file: DataFrame) -> DataFrame:
    """The columns that a query reads, from those that files hold."""
    times = set(table.time_columns)
    return from_file.select(
        *(F.timestamp_millis(name).alias(name) if name in times else F.col(name) for name in table.column_names)
    )


def answer(result: DataFrame) -> Answer:
    """All rows of a static result, sorted, times in milliseconds."""
    columns = [F.unix_millis(name) if kind == "timestamp" else F.col(name) for name, kind in result.dtypes]
    return sorted(tuple(row) for row in result.select(*columns).collect())


def write_lines(table: Table[Any], rows: Iterable[Event], path: Path) -> None:
    """A file of JSON lines that `stream` reads."""
    path.write_text("".join(json.dumps(table.record(row)) + "\n" for row in rows), "utf-8")


def _streamed(spark: SparkSession, name: str, rows: Rows, files: int, folder: Path, timeout_s: float) -> Answer:
    query = find(name)
    longest_ms = max((auction.expires_ms - auction.event_ms for auction in rows.auctions), default=0)
    delay_ms = max([_WATERMARK_MS, *(1 + _latest_ms(getattr(rows, table)) for table in query.reads)])
    closing = _closing_rows(rows, delay_ms + longest_ms)
    tables: dict[str, DataFrame] = dict.fromkeys(TABLES)
    for table in query.reads:
        inbox = folder / table
        inbox.mkdir()
        parts = _parts(getattr(rows, table), files)
        if query.waits:
            parts.append(getattr(closing, table))
        for number, part in enumerate(parts):
            path = inbox / f"{number:05d}.json"
            write_lines(TABLES[table], part, path)
            os.utime(path, (_FIRST_FILE_WALL_TS + number,) * 2)
        tables[table] = stream(spark, TABLES[table], str(inbox), files_per_batch=1)
    result = build(
        name,
        **tables,
        watermark=f"{delay_ms} milliseconds",
        longest_auction=f"{longest_ms} MILLISECONDS",
    )
    sink = f"nexmark_{name}_{uuid.uuid4().hex}"
    run = (
        result.writeStream.format("memory")
        .queryName(sink)
        .outputMode(OUTPUT_MODE)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        if not run.awaitTermination(timeout_s):
            raise SlackwaterError(f"{name} did not end within {timeout_s:g} s; give fewer rows, or a longer timeout_s.")
        return answer(query.settle(spark.table(sink)))
    finally:
        run.stop()
        spark.catalog.dropTempView(sink)


def _latest_ms(rows: Sequence[Event]) -> int:
    """How far the latest row is behind the newest one before it."""
    newest = itertools.accumulate((row.event_ms for row in rows), max)
    return max((ahead - row.event_ms for row, ahead in zip(rows, newest, strict=True)), default=0)


def _parts(rows: Sequence[Event], count: int) -> list[Sequence[Event]]:
    size = max(1, math.ceil(len(rows) / count))
    return [rows[start : start + size] for start in range(0, size * count, size)]


def _closing_rows(rows: Rows, lag_ms: int) -> Rows:
    """One row for each table, so late that all windows before it are over. Its own never is, and nothing joins it."""
    events: list[Event] = [*rows.persons, *rows.auctions, *rows.bids]
    event_ms = max((row.event_ms for row in events), default=0) + lag_ms + _BEYOND_MS
    return Rows(
        (Person(-1, "", "", "", "", "", event_ms, ""),),
        (Auction(-2, "", "", 0, 0, event_ms, event_ms, -3, 0, ""),),
        (Bid(-4, -5, 0, "", "", event_ms, ""),),
    )
