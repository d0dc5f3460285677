"""A workload's stages as streaming queries that run at once, and can be stopped and started again.

Every stage writes to a folder of its own, from which later stages read. Spark's file sink counts each micro-batch once,
however often it was begun, so what is in the folders is what a user's own sink would have after a restart.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from slackwater.errors import ConfigurationError, SlackwaterError
from slackwater.workloads.finite import check_stages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from slackwater.late.files import Files
    from slackwater.verify.feed import Feed
    from slackwater.verify.model import Row
    from slackwater.workloads.finite import FiniteWorkload, Stage

_POLL_S = 0.02


class Pipeline:
    """Folders: `feed` has the input, `out/STAGE` what a stage gave, `checkpoints/STAGE` how far it is."""

    def __init__(
        self,
        spark: SparkSession,
        workload: FiniteWorkload,
        feed: Feed,
        folder: Path,
        stores: Callable[[Path], Files] | None = None,
    ) -> None:
        """`stores` gives the files on which stages that take late rows keep their windows, by folder."""
        check_stages(workload)
        self._stores = stores
        self._spark = spark
        self._workload = workload
        self._feed = feed
        self._folder = folder
        self._late: set[str] = set()
        self._queries: dict[str, StreamingQuery] = {}
        for stage in workload.stages:
            # A folder that a later stage reads must be there before its writer has written.
            self._out(stage.name).mkdir(parents=True)

    def start(self) -> None:
        """Start all stages, from their checkpoints where there are some; continuous, as fast as they can."""
        for stage in self._workload.stages:
            self._queries[stage.name] = self._start(stage)

    def stop(self) -> None:
        """Stop all stages, in the middle of a batch if need be. Calling it again does nothing."""
        while self._queries:
            self._stop(next(reversed(self._queries)))

    def restart(self, name: str) -> None:
        """Stop one stage, if it still runs, and start it from its checkpoint."""
        self._stop(name)
        self._queries[name] = self._start(next(stage for stage in self._workload.stages if stage.name == name))

    def query(self, name: str) -> StreamingQuery:
        """The run of a stage; the last one, if it has ended."""
        return self._queries[name]

    def _stop(self, name: str) -> None:
        query = self._queries.pop(name)
        query.stop()
        if name in self._late:
            from slackwater import late  # noqa: PLC0415  # only where such a stage is

            late.handle(query).await_end()

    def batches(self) -> dict[str, int]:
        """How many micro-batches each stage has committed."""
        return {stage.name: _committed(self._checkpoint(stage.name)) for stage in self._workload.stages}

    def files_taken(self) -> dict[str, int]:
        """How many files of its input each stage that reads one table has committed."""
        return {
            stage.name: _files_committed(self._checkpoint(stage.name))
            for stage in self._workload.stages
            if len(stage.reads) == 1 and stage.reads[0] in self._workload.tables
        }

    def await_batches(self, count: int, deadline_ts: float) -> None:
        """Until one of the stages has committed so many; `deadline_ts` is of the monotonic clock."""
        while max(self.batches().values()) < count:
            for query in self._queries.values():
                _raise_if_failed(query)
            if time.monotonic() > deadline_ts:
                raise SlackwaterError(f"no query has done {count} batches in time; {self._standing()}.")
            time.sleep(_POLL_S)

    def finish(self, deadline_ts: float) -> None:
        """Until every stage, in order, has taken all that there is and emitted what is due."""
        for stage in self._workload.stages:
            query = self._queries[stage.name]
            if not _all_taken(query, deadline_ts):
                raise SlackwaterError(f"{stage.name} has not taken all of its input in time; {self._standing()}.")
            if stage.name in self._late:
                from slackwater import late  # noqa: PLC0415

                if not late.handle(query).settle(max(0.0, deadline_ts - time.monotonic())):
                    raise SlackwaterError(f"{stage.name} has not corrected all windows in time; {self._standing()}.")
                _raise_if_failed(query)

    def answer(self, name: str) -> tuple[list[str], list[Row]]:
        """The columns of an output, and its rows with times in milliseconds."""
        stage = next(stage for stage in self._workload.stages if stage.name == name)
        settled = stage.settle(self._emitted(stage))
        rows = settled.selectExpr(
            *(f"unix_millis(`{column}`)" if kind == "timestamp" else f"`{column}`" for column, kind in settled.dtypes)
        ).collect()
        return settled.columns, [tuple(row) for row in rows]

    def _start(self, stage: Stage) -> StreamingQuery:
        _forget_nothing(self._checkpoint(stage.name))
        built: Any = stage.build({name: self._stream(name) for name in stage.reads})
        name = f"{self._workload.name}:{stage.name}"
        if not isinstance(built, DataFrame):
            from slackwater import late  # noqa: PLC0415

            self._late.add(stage.name)
            sink = late.Append(self._out(stage.name))
            store = self._stores(self._checkpoint(stage.name) / "windows") if self._stores is not None else None
            return built.start(sink, self._checkpoint(stage.name), store=store, name=name)
        self._check_columns(stage, built)
        return (
            built.writeStream.format("parquet")
            .queryName(name)
            .outputMode("append")
            .option("path", str(self._out(stage.name)))
            .option("checkpointLocation", str(self._checkpoint(stage.name)))
            .start()
        )

    def _stream(self, name: str) -> DataFrame:
        if name in self._workload.tables:
            reader = self._spark.readStream.schema(self._workload.tables[name]).option("maxFilesPerTrigger", 1)
            return reader.json(str(self._feed.inbox(name)))
        stage = next(stage for stage in self._workload.stages if stage.name == name)
        if name in self._late:
            raise ConfigurationError(
                f"{name!r} of {self._workload.name} corrects its results; a later stage would read them twice."
            )
        # All files of a batch together: one at a time would let the first ones move the watermark past the others.
        return self._spark.readStream.schema(stage.columns).parquet(str(self._out(name)))

    def _emitted(self, stage: Stage) -> DataFrame:
        reader = self._spark.read
        if stage.name in self._late:
            from slackwater import late  # noqa: PLC0415

            shape = f"window STRUCT<start: TIMESTAMP, end: TIMESTAMP>, {stage.columns}, revision BIGINT"
            return late.latest(reader.schema(shape).parquet(str(self._out(stage.name)))).drop("revision")
        return reader.schema(stage.columns).parquet(str(self._out(stage.name)))

    def _check_columns(self, stage: Stage, built: DataFrame) -> None:
        """What a stage says that it gives is what its files are read as."""
        said = self._spark.createDataFrame([], stage.columns).dtypes
        if built.dtypes != said:
            raise ConfigurationError(
                f"stage {stage.name!r} of {self._workload.name} gives {_ddl(built.dtypes)}; its columns are said to be "
                f"{_ddl(said)}."
            )

    def _out(self, name: str) -> Path:
        return self._folder / "out" / name

    def _checkpoint(self, name: str) -> Path:
        return self._folder / "checkpoints" / name

    def _standing(self) -> str:
        done = ", ".join(f"{name} {count}" for name, count in self.batches().items())
        return f"batches so far: {done}"


def _ddl(types: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in types)


def _committed(checkpoint: Path) -> int:
    commits = checkpoint / "commits"
    return sum(file.name.isdigit() for file in commits.iterdir()) if commits.is_dir() else 0


def _files_committed(checkpoint: Path) -> int:
    """By the last committed batch's offsets: a file source counts batches that took files, here one file each."""
    commits, done = checkpoint / "commits", -1
    if commits.is_dir():
        done = max((int(file.name) for file in commits.iterdir() if file.name.isdigit()), default=-1)
    if done < 0:
        return 0
    offset = (checkpoint / "offsets" / str(done)).read_text("utf-8").splitlines()[-1]
    return int(json.loads(offset)["logOffset"]) + 1 if offset.startswith("{") else 0


def _forget_nothing(checkpoint: Path) -> None:
    """Remove a checkpoint in which no batch was ever begun.

    A query that is stopped while it logs its first batch leaves half of that, and Spark 4.3 then refuses the checkpoint
    (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY). What users are told to do, and lose nothing by, is done here.
    """
    offsets = checkpoint / "offsets"
    if offsets.is_dir() and not any(file.name.isdigit() for file in offsets.iterdir()):
        shutil.rmtree(checkpoint)


def _all_taken(query: StreamingQuery, deadline_ts: float) -> bool:
    """Wait as processAllAvailable does, but not for ever."""
    waiter = threading.Thread(target=_wait_quietly, args=(query,), daemon=True)
    waiter.start()
    waiter.join(max(0.0, deadline_ts - time.monotonic()))
    _raise_if_failed(query)
    return not waiter.is_alive()


def _wait_quietly(query: StreamingQuery) -> None:
    with suppress(Exception):  # the query has its own error, which is told
        query.processAllAvailable()


def _raise_if_failed(query: StreamingQuery) -> None:
    error = query.exception()
    if error is not None:
        raise SlackwaterError(f"query {query.name} failed: {str(error).strip().splitlines()[0]}")
    if not query.isActive:
        raise SlackwaterError(f"query {query.name} was stopped by somebody else.")
