"""One execution of some windows: their rows from memory and disk, the function over them, the result to the sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from slackwater.late.errors import LateExecutionError
from slackwater.late.parts import WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from slackwater.late.functions import WindowFunction
    from slackwater.late.index import Source
    from slackwater.late.sinks import Sink
    from slackwater.late.store import WindowStore

    Held = Callable[[int, list[Source]], Mapping[str, DataFrame]]


@dataclass(frozen=True)
class Executor:
    """held: of a window's sources, the frames in memory that hold their rows, by the name of the file."""

    store: WindowStore
    function: WindowFunction
    kept_schema: StructType
    size_ms: int
    sink: Sink
    held: Held

    def execute(self, spark: SparkSession, windows: list[int], kind: str, through: int) -> None:
        """Results over all batches up to `through`; an execution that is repeated has the numbers that it had."""
        with self.store.reading(windows, through=through) as sources:
            emitted = self.store.emit(windows, kind, f"{kind}:{through}")
            results = self.function.executed(self._input(spark, sources), len(windows))
            self.sink.write(self._described(results, emitted.revisions, kind), emitted)

    def read(self, spark: SparkSession, sources: Iterable[Source], windows: Iterable[int]) -> DataFrame:
        """Rows of some windows from the files of these sources."""
        paths = sorted({self.store.path(source) for source in sources})
        return spark.read.schema(self.kept_schema).parquet(*paths).where(F.col(WINDOW).isin(list(windows)))

    def _input(self, spark: SparkSession, sources: dict[int, list[Source]]) -> DataFrame:
        """From memory what is there, the rest from the store."""
        in_memory: dict[int, tuple[DataFrame, set[int]]] = {}  # by the frame's identity: windows to take from it
        on_disk: dict[str, tuple[Source, set[int]]] = {}  # by file
        for window, found in sources.items():
            held = self.held(window, found)
            for source in found:
                name = source.file.name
                if name in held:
                    in_memory.setdefault(id(held[name]), (held[name], set()))[1].add(window)
                else:
                    on_disk.setdefault(name, (source, set()))[1].add(window)
        alike: dict[tuple[int, ...], list[Source]] = {}
        for source, wanted in on_disk.values():
            alike.setdefault(tuple(sorted(wanted)), []).append(source)
        parts = [frame.where(F.col(WINDOW).isin(sorted(wanted))) for frame, wanted in in_memory.values()]
        parts += [self.read(spark, found, wanted) for wanted, found in alike.items()]
        if not parts:
            raise LateExecutionError(f"windows {sorted(sources)}", RuntimeError("the store has no rows of them"))
        while len(parts) > 1:  # in pairs: a chain would be analysed anew at every link
            pairs = [parts[at : at + 2] for at in range(0, len(parts), 2)]
            parts = [pair[0].unionByName(pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
        return parts[0]

    def _described(self, results: DataFrame, revisions: Mapping[int, int], kind: str) -> DataFrame:
        """The window's bounds first; revision and kind last."""
        start = F.timestamp_millis(F.col(WINDOW))
        end = F.timestamp_millis(F.col(WINDOW) + F.lit(self.size_ms))
        values = [F.col(f"`{name.replace('`', '``')}`") for name in results.columns if name != WINDOW]
        return results.select(
            F.struct(start.alias("start"), end.alias("end")).alias("window"),
            *values,
            _by_window(revisions).cast("long").alias("revision"),
            F.lit(kind).alias("kind"),
        )


def _by_window(revisions: Mapping[int, int]) -> Column:
    if len(set(revisions.values())) == 1:
        return F.lit(next(iter(revisions.values())))
    pairs: list[Any] = [F.lit(value) for pair in revisions.items() for value in pair]
    return F.create_map(*pairs)[F.col(WINDOW)]
