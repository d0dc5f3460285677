"""A workload over given rows: the same queries over streams and over static frames, and the answers that they owe.

What the benchmark runs without end (`base.py`) is here cut to rows that are at hand, so that every answer can be
compared, row by row, with one that was worked out without Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from slackwater.late.query import LateQuery

    Frames = Mapping[str, DataFrame]
    Rows = Mapping[str, Sequence[Mapping[str, Any]]]
    """By table name; a row by column name, plain JSON values, times as BIGINT milliseconds named `*_ms`."""
    Answers = Mapping[str, list[tuple[Any, ...]]]
    """By stage name; sorted tuples in column order, times in milliseconds."""


def as_emitted(emitted: DataFrame) -> DataFrame:
    """Every row that the stream emitted belongs to the answer."""
    return emitted


@dataclass(frozen=True)
class Stage:
    """One streaming query: reads inputs, or what earlier stages wrote, and gives a frame.

    reads: names of input tables or of earlier stages. build: the same function for streams and static frames; what
    takes late rows (`slackwater.late`) is for streams only, and has `window`, a struct of start and end, before its
    columns. columns: DDL of what it gives, so that a later stage can read it from files. settle: makes the answer out
    of all rows that the stream emitted, in any order. keys: columns that name a row of the answer, by which a row that
    is there with other values can be told from one that is not there.
    """

    name: str
    reads: tuple[str, ...]
    build: Callable[[Frames], DataFrame | LateQuery]
    columns: str
    settle: Callable[[DataFrame], DataFrame] = as_emitted
    keys: tuple[str, ...] = ()


class FiniteWorkload(Protocol):
    """Stages in Spark, and their answers outside it.

    `outputs` are the stages whose rows are compared with `expected`. `closing` gives rows that push the watermark past
    all windows; they come last, and no answer of `expected` contains them. `expected` shares no code with the stages.
    """

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> str: ...

    @property
    def tables(self) -> Mapping[str, str]:
        """DDL of each input as its JSON lines hold it."""
        ...

    @property
    def stages(self) -> tuple[Stage, ...]: ...

    @property
    def outputs(self) -> tuple[str, ...]: ...

    def generate(self, seed: int, size: int) -> Rows:
        """About `size` rows, in arrival order, fixed by the seed."""
        ...

    def closing(self, rows: Rows) -> Rows: ...

    def expected(self, rows: Rows) -> Answers: ...


def window_starts_ms(event_ms: int, length_ms: int, slide_ms: int | None = None, phase_ms: int = 0) -> list[int]:
    """The windows that a time belongs to, for oracles: they begin at `phase_ms` and every slide from there."""
    slide_ms = slide_ms or length_ms
    last_ms = event_ms - (event_ms - phase_ms) % slide_ms
    return list(range(last_ms, event_ms - length_ms, -slide_ms))


def check_stages(workload: FiniteWorkload) -> None:
    """Raise ConfigurationError unless each stage reads inputs or earlier stages, and each output is a stage."""
    known = set(workload.tables)
    for stage in workload.stages:
        if stage.name in known:
            raise ConfigurationError(f"{workload.name} has two tables or stages named {stage.name!r}; rename one.")
        if missing := sorted(set(stage.reads) - known):
            raise ConfigurationError(
                f"stage {stage.name!r} of {workload.name} reads {', '.join(missing)}, which is neither an input nor an "
                f"earlier stage; known before it: {', '.join(sorted(known))}."
            )
        known.add(stage.name)
    if strange := sorted(set(workload.outputs) - {stage.name for stage in workload.stages}):
        raise ConfigurationError(f"{workload.name} names {', '.join(strange)} as output, which no stage gives.")
