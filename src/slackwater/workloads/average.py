"""Aion's first micro-benchmark: the average of a stream of random integers.

As in the paper: one windowed function, 10 000 events/s, windows of 20 s, 2304 bytes of payload. Chosen here: integers
are uniform in 0 … 999 999, and count and sum come out beside the mean.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slackwater.workloads.late_events import expected_by_window, late_rows, payload_sql, window_counts
from slackwater.workloads.rate_source import mixed, rate_rows, with_mixed

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame, SparkSession

    from slackwater.workloads.base import Payload
    from slackwater.workloads.late_events import LateSpec

INTEGERS = 1_000_000
INTEGER_STREAM = 2
KEYS = 300


@dataclass(frozen=True)
class Average:
    name: str = "average"
    window_s: float = 20.0
    rate: int = 10_000
    payload_bytes: int = 2304
    keys: tuple[str, ...] = ()
    schema: str = "mean DOUBLE, count BIGINT, sum BIGINT"

    def events(self, spark: SparkSession, spec: LateSpec) -> DataFrame:
        return self.from_numbers(rate_rows(spark, spec.rate), spec)

    def from_numbers(self, numbered: DataFrame, spec: LateSpec) -> DataFrame:
        rows = with_mixed(late_rows(numbered, spec), spec.seed, h=("value", INTEGER_STREAM))
        return rows.selectExpr(
            "arrival", "event_time", f"h % {INTEGERS} AS number", payload_sql("h", spec.payload_bytes)
        )

    @staticmethod
    def function(rows: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd  # noqa: PLC0415  # only workers need it

        # The sum is of integers, so that the order of rows cannot change it.
        total, count = int(rows["number"].sum()), len(rows)
        return pd.DataFrame({"mean": [round(total / count, 6)], "count": [count], "sum": [total]})

    def expected(self, spec: LateSpec, created_ms: int, numbers: range) -> dict[int, list[Payload]]:
        def result(rows: NDArray[np.int64], _event_ms: NDArray[np.int64]) -> list[Payload]:
            drawn = mixed(rows, spec.seed, INTEGER_STREAM) % INTEGERS
            return [(round(float(drawn.mean()), 6), drawn.size, int(drawn.sum()))]

        return expected_by_window(spec, created_ms, numbers, result)

    def window_counts(self, spec: LateSpec, created_ms: int, numbers: range) -> dict[int, int]:
        return window_counts(spec, created_ms, numbers)


def keyed(events: DataFrame) -> DataFrame:
    """The integers with a key each, for aggregates by key."""
    return events.selectExpr("event_time", f"number % {KEYS} AS key", "number")


def aggregates() -> list[Column]:
    """Of a window and key of `keyed`."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # an oracle needs no Spark

    return [
        F.count("number").alias("count"),
        F.sum("number").alias("sum"),
        F.avg("number").alias("mean"),
        F.min("number").alias("low"),
        F.max("number").alias("high"),
    ]


def expected_aggregates(spec: LateSpec, created_ms: int, numbers: range) -> dict[int, list[Payload]]:
    """The oracle of `aggregates`: (key, count, sum, mean, low, high)."""

    def result(rows: NDArray[np.int64], _event_ms: NDArray[np.int64]) -> list[Payload]:
        drawn = mixed(rows, spec.seed, INTEGER_STREAM) % INTEGERS
        by_key: defaultdict[int, list[int]] = defaultdict(list)
        for number in drawn.tolist():
            by_key[number % KEYS].append(number)
        return [(k, len(v), sum(v), sum(v) / len(v), min(v), max(v)) for k, v in by_key.items()]

    return expected_by_window(spec, created_ms, numbers, result)
