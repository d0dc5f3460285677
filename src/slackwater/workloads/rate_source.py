"""Spark's rate source, whose rows arrive by the clock alone, and what a generator makes of a row's running number.

Second `s` after its creation, the source offers rows `s·rate … (s+1)·rate - 1` at once, when that second is over;
row `k` of a second has the timestamp `creation + s + round(k · 1000/rate) ms`.

A number is mixed into 31 bits, and the digits of those in mixed radix are an event's fields. Every product stays below
2^62: Spark's ANSI mode refuses to overflow. Generators (Spark) and oracles (numpy) share the constants and no code.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

MASK31 = (1 << 31) - 1
MIX_1 = 0x2C1B3C6D
MIX_2 = 0x297A2D39
SEED_STEP = 0x61C88647
STREAM_STEP = 0x3C6EF372


def rate_rows(spark: SparkSession, rate: int, partitions: int = 1) -> DataFrame:
    """The source's rows: `timestamp`, and the running number `value`."""
    require_exact_event_times(rate)
    return spark.readStream.format("rate").option("rowsPerSecond", rate).option("numPartitions", partitions).load()


def require_exact_event_times(rate: int) -> None:
    """Refuse the few rates at which the rate source's timestamps depend on where batches begin.

    It rounds `rows since the batch began * (1000 / rate)` to milliseconds. Where that can end in exactly one
    half (only if 16 divides the rate) and the quotient as a double is too small, a row falls to either side.
    """
    if rate < 1:
        raise ConfigurationError(f"the rate must be at least 1 event/s; got {rate}.")
    if rate % 16 == 0 and Fraction(1000 / rate) < Fraction(1000, rate):
        raise ConfigurationError(
            f"at {rate} events/s the event times of Spark's rate source depend on batch boundaries, so no "
            f"oracle can know the counts; use {rate + 1}."
        )


def read_creation_ms(checkpoint: Path, source: int = 0) -> int:
    """When a rate source of the query began, from its own log in the checkpoint; sources count from the left."""
    version, creation_ms = (checkpoint / "sources" / str(source) / "0").read_text("utf-8").split("\n", 1)
    if version != "v1":
        raise ConfigurationError(
            f"the rate source's log has version {version!r}, not 'v1'; this Spark is too new for the oracle."
        )
    return int(creation_ms)


def row_times_ms(numbers: NDArray[np.int64], rate: int, creation_ms: int) -> NDArray[np.int64]:
    """The source's own timestamps of these rows."""
    within = np.floor((numbers % rate) * (1000 / rate) + 0.5).astype(np.int64)
    times: NDArray[np.int64] = creation_ms + 1000 * (numbers // rate) + within
    return times


def with_mixed(frame: DataFrame, seed: int, **columns: tuple[str, int]) -> DataFrame:
    """The frame with 31 mixed bits in each new column, from (expression of a whole number ≥ 0, stream).

    Streams of one seed give unrelated bits for the same number.
    """
    kept = [column for column in frame.columns if column not in columns]
    salts = {name: ((seed * SEED_STEP) ^ (stream * STREAM_STEP)) & MASK31 for name, (_, stream) in columns.items()}
    steps = (
        [f"(({number}) & {MASK31}) ^ {salts[name]} AS {name}" for name, (number, _) in columns.items()],
        [f"(({name} ^ shiftright({name}, 15)) * {MIX_1}) & {MASK31} AS {name}" for name in columns],
        [f"(({name} ^ shiftright({name}, 12)) * {MIX_2}) & {MASK31} AS {name}" for name in columns],
        [f"{name} ^ shiftright({name}, 15) AS {name}" for name in columns],
    )
    for step in steps:
        frame = frame.selectExpr(*kept, *step)
    return frame


def generated(frame: DataFrame, kept: Sequence[str], made: Sequence[str]) -> DataFrame:
    """The columns `kept`, and the expressions `made` as columns whose origin the optimiser does not see.

    Nor would it see into a source. Otherwise it moves a query's filters, and what a join asks of its keys, down to the
    rows' numbers, with each column's expression in the place of its name: those double with each step of a mixing, and
    planning takes minutes. It cannot see through a generator, even one of a single row.
    """
    return frame.selectExpr(*kept, f"inline(array(struct({', '.join(made)})))")


def mixed(numbers: NDArray[np.int64], seed: int, stream: int = 0) -> NDArray[np.int64]:
    """The oracles' side of `with_mixed`."""
    h: NDArray[np.int64] = (numbers & MASK31) ^ (((seed * SEED_STEP) ^ (stream * STREAM_STEP)) & MASK31)
    h = ((h ^ (h >> 15)) * MIX_1) & MASK31
    h = ((h ^ (h >> 12)) * MIX_2) & MASK31
    h = h ^ (h >> 15)
    return h  # noqa: RET504  # numpy's operators return Any
