"""Where results go. A result is known by its window and revision, so writing it again changes nothing.

`Append` keeps every revision, `Latest` the last one of each window; any function that foreachBatch would take does too.
Both write a Parquet file for each window, whole or not at all, on local disks and wherever pyarrow can write.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from slackwater.errors import ConfigurationError
from slackwater.late.arrow import pa, pc, pq
from slackwater.late.files import Files, files_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame

    from slackwater.late.ledger import Emitted


class Sink(Protocol):
    """Takes the results of an execution: rows with `window`, `revision` and `kind`.

    It may be called by two threads, for different windows; for the same execution again after a crash.
    """

    def write(self, results: DataFrame, emitted: Emitted) -> None: ...


class _Folder(ABC):
    """location: a folder, a URI, or Files whose temporary folder begins with `_`, so that Spark does not read it."""

    def __init__(self, location: str | Path | Files) -> None:
        self._files = location if isinstance(location, Files) else files_at(location, temporary="_temporary")
        self._made = False
        self._making = threading.Lock()

    @abstractmethod
    def name(self, window: int, revision: int) -> str:
        """Of the file that holds a result."""

    def _make(self) -> None:
        """Once, before the first file: what an earlier run left is swept, and nothing that another thread writes."""
        with self._making:
            if not self._made:
                self._files.make_folder(self._files.temporary)
                self._files.remove_all([left.name for left in self._files.listed(self._files.temporary)])
                self._made = True

    def write(self, results: DataFrame, emitted: Emitted) -> None:
        self._make()
        table = to_arrow(results)
        starts = pc.cast(pc.struct_field(table["window"], "start"), pa.int64())
        for window, revision in emitted.revisions.items():
            rows = table.filter(pc.equal(starts, window * 1000))
            self._files.put(self.name(window, revision), partial(pq.write_table, rows))


class Append(_Folder):
    """All revisions, in a folder of Parquet files that Spark reads as one table; `latest` reduces them."""

    def name(self, window: int, revision: int) -> str:
        return f"window_{window}_revision_{revision}.parquet"


class Latest(_Folder):
    """The last revision of each window: its file is replaced, so that readers see the one before or this one."""

    def name(self, window: int, revision: int) -> str:
        del revision
        return f"window_{window}.parquet"


@dataclass
class Function:
    """A function of a frame and a number that grows from execution to execution, and is the same for one repeated.

    concurrent: it may be called while another call runs; otherwise results on time wait for late ones before them.
    """

    function: Callable[[DataFrame, int], Any]
    concurrent: bool = False

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def write(self, results: DataFrame, emitted: Emitted) -> None:
        if self.concurrent:
            self.function(results, emitted.number)
            return
        with self._lock:
            self.function(results, emitted.number)


def sink_of(given: Any) -> Sink:
    if hasattr(given, "write") and not isinstance(given, type):
        return given  # type: ignore[no-any-return]
    if callable(given) and not isinstance(given, type):
        return Function(given)
    raise ConfigurationError(
        f"{given!r} is no sink. Give late.Append(path), late.Latest(path), or a function (frame, number) such as "
        "foreachBatch takes."
    )


def latest(results: DataFrame) -> DataFrame:
    """Of results with all their revisions, the last one of each window: a revision replaces its window as a whole."""
    from pyspark.sql import Window  # noqa: PLC0415 - only where Spark is
    from pyspark.sql import functions as F  # noqa: PLC0415, N812

    newest = F.max("revision").over(Window.partitionBy("window"))
    return results.withColumn("_newest", newest).where(F.col("revision") == F.col("_newest")).drop("_newest")


def to_arrow(frame: DataFrame) -> Any:
    """Collect a frame; Spark 3.5 has it under another name."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    return pa.Table.from_batches(frame._collect_as_arrow(), to_arrow_schema(frame.schema))  # noqa: SLF001
