"""VoipStream in tumbling windows, for the benchmark: the score of every caller at the end of each window.

Counters that decay are sums: a call that was answered Δ whole seconds before the window's end counts ln(1/β)·β^Δ there.
So the counters of a window are Spark's own aggregates, with the weights in a table, as whole billionths: sums of those
are the same in any order. A window knows nothing of earlier ones: a call goes to a new number if it is the first to it
in the window, and the mean duration is that of the window's calls.

Calls are made from a row's number (`rate_source.py`); 95 in 100 are established. One in ten comes from one of 20
telemarketers, who call anybody for up to 20 s; everybody else calls one of eight friends for up to 10 minutes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from slackwater.workloads.rate_oracle import due_windows, first_offered_ms, numbers_between
from slackwater.workloads.rate_source import mixed, rate_rows, read_creation_ms, row_times_ms, with_mixed
from slackwater.workloads.voip.query import ACD_MAX, FAST, FOFIR_MAX, SLOW, URL_MAX

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from slackwater.workloads.base import Payload, QuerySpec, Window

    Numbers = NDArray[np.int64]

CALLERS = 500
TELEMARKETERS = 20
FRIENDS = 8
WHO_STREAM, TALK_STREAM = 2, 3
BILLION = 1_000_000_000


@dataclass(frozen=True)
class VoipWindows:
    """500 numbers, whatever the rate."""

    source_partitions: int = 1
    name: str = "voip"

    def build(self, spark: SparkSession, spec: QuerySpec) -> DataFrame:
        return self.from_numbers(rate_rows(spark, spec.rate, self.source_partitions), spec)

    def from_numbers(self, numbered: DataFrame, spec: QuerySpec) -> DataFrame:
        """The query over rows `timestamp`, `value`, streamed or not."""
        return scored(counted(call_columns(numbered, spec.seed), spec))

    def oracle(self, spec: QuerySpec, checkpoint: Path) -> VoipWindowsOracle:
        return VoipWindowsOracle(spec, creation_ms=read_creation_ms(checkpoint))


def call_columns(numbered: DataFrame, seed: int) -> DataFrame:
    """Call records: calling, called, answer_time, duration_s, established."""
    bits = with_mixed(numbered, seed, who=("value", WHO_STREAM), talk=("value", TALK_STREAM))
    return bits.selectExpr(
        "timestamp AS answer_time",
        "talk % 100 < 95 AS established",
        "who % 10 = 0 AS selling",
        f"IF(who % 10 = 0, who div 10 % {TELEMARKETERS}, who div 10 % {CALLERS}) AS calling",
        "who div 10000 AS whom",
        "talk div 100 AS span",
    ).selectExpr(
        "answer_time",
        "established",
        "calling",
        f"(calling + 1 + whom % IF(selling, {CALLERS - 1}, {FRIENDS})) % {CALLERS} AS called",
        "1 + span % IF(selling, 20, 600) AS duration_s",
    )


def counted(calls: DataFrame, spec: QuerySpec) -> DataFrame:
    """The counters of each number at the end of each window, and what its owner said in it."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # Spark's own convention; loaded on use

    length, slide, phase = (f"{ms} milliseconds" for ms in (spec.window_ms, spec.slide_ms, spec.phase_ms))
    ends = """inline(array(
        struct(calling AS number, called AS callee, true AS outgoing),
        struct(called AS number, calling AS callee, false AS outgoing)))"""
    slow, fast = _weights(SLOW, spec), _weights(FAST, spec)
    weighed = (
        calls.where("established")
        .withWatermark("answer_time", f"{spec.delay_ms} milliseconds")
        .withColumn("window", F.window("answer_time", length, slide, phase))
        .selectExpr("*", "CAST((unix_millis(window.end) - unix_millis(answer_time)) div 1000 AS INT) AS age_s")
        .selectExpr("window", "duration_s", "age_s", f"get({slow}, age_s) AS slow", f"get({fast}, age_s) AS fast", ends)
    )
    fresh = "IF(outgoing, struct(callee, age_s), NULL)"
    return (
        weighed.groupBy("window", "number")
        .agg(
            F.expr("count_if(outgoing)").alias("calls"),
            F.expr("sum(IF(outgoing, duration_s, 0L))").alias("talked_s"),
            F.expr("sum(IF(outgoing, duration_s * slow, 0L))").alias("ct24"),
            F.expr("sum(IF(outgoing, slow, 0L))").alias("ecr24"),
            F.expr("sum(IF(outgoing, fast, 0L))").alias("ecr"),
            F.expr("sum(IF(outgoing, 0L, fast))").alias("rcr"),
            F.expr(f"collect_set({fresh})").alias("reached"),
        )
        .where("calls > 0")
        .withColumn("encr", F.expr(_first_calls(fast)))
        .drop("reached")
    )


def _weights(beta: float, spec: QuerySpec) -> str:
    """A table by age in whole seconds: what one call counts, in billionths."""
    ages = range(math.ceil(spec.window_s) + 1)
    return f"array({', '.join(f'{round(BILLION * math.log(1 / beta) * beta**age)}L' for age in ages)})"


def _first_calls(weights: str) -> str:
    """The counter of calls to new numbers: to each number reached, the first call, which is the oldest."""
    oldest = "array_max(filter(reached, call -> call.callee = who).age_s)"
    return f"aggregate(array_distinct(reached.callee), 0L, (sum, who) -> sum + get({weights}, {oldest}))"


def scored(counters: DataFrame) -> DataFrame:
    """The score of every caller; the mean duration is that of all calls in the window."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    of_all = (
        counters.groupBy("window")
        .agg(
            F.expr("sum(talked_s) / sum(calls)").alias("mean_s"),
            F.expr("collect_list(struct(number, calls, ct24, ecr24, ecr, encr, rcr))").alias("callers"),
        )
        .selectExpr("window.start AS window_start", "mean_s", "inline(callers)")
    )
    return of_all.selectExpr(
        "*",
        f"IF(rcr = 0, 1D, least(1D, ecr / rcr / {FOFIR_MAX}D)) AS fofir",
        f"least(1D, encr / ecr / {URL_MAX}D) AS url",
        f"least(1D, ct24 / ecr24 / mean_s / {ACD_MAX}D) AS acd",
    ).selectExpr(
        "window_start",
        "number",
        "calls",
        "2 * fofir + 3 * url + 3 * acd AS score",
        "current_timestamp() AS batch_ts",
    )


class VoipWindowsOracle:
    """The rows that the query must emit, from the definition of the calls and the rate source's rule."""

    def __init__(self, spec: QuerySpec, creation_ms: int) -> None:
        self.spec = spec
        self.creation_ms = creation_ms

    def windows_due(self, from_ms: int, to_ms: int) -> list[Window]:
        """Windows with an established call in them whose deadline lies in [from_ms, to_ms)."""
        return [window for window in due_windows(self.spec, from_ms, to_ms) if self._kept_in(window.start_ms).size]

    def expected(self, window_start_ms: int) -> list[Payload]:
        """(number, calls, score) of every caller in one window, sorted."""
        numbers = self._kept_in(window_start_ms)
        age_s = (
            window_start_ms + self.spec.window_ms - row_times_ms(numbers, self.spec.rate, self.creation_ms)
        ) // 1000
        calling, called, duration_s = (column.tolist() for column in calls_of(numbers, self.spec.seed))
        made: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        received: dict[int, int] = defaultdict(int)
        for caller, callee, seconds, age in zip(calling, called, duration_s, age_s.tolist(), strict=True):
            made[caller].append((callee, seconds, age))
            received[callee] += weight(0.9672, age)
        mean_s = sum(duration_s) / len(duration_s) if duration_s else 0.0
        return [(number, len(made[number]), score(made[number], received[number], mean_s)) for number in sorted(made)]

    def ingestible_ms(self, deadline_ms: int) -> int:
        """When the source first offers an established call at or after the deadline."""
        return first_offered_ms(deadline_ms, self.spec.rate, self.creation_ms, self._kept)

    def _kept_in(self, window_start_ms: int) -> Numbers:
        end_ms = window_start_ms + self.spec.window_ms
        numbers = numbers_between(window_start_ms, end_ms, self.spec.rate, self.creation_ms)
        found: Numbers = numbers[self._kept(numbers)]
        return found

    def _kept(self, numbers: Numbers) -> NDArray[np.bool_]:
        kept: NDArray[np.bool_] = mixed(numbers, self.spec.seed, TALK_STREAM) % 100 < 95
        return kept


def calls_of(numbers: Numbers, seed: int) -> tuple[Numbers, Numbers, Numbers]:
    """The same calls in numpy: (calling, called, seconds). Spark's side and this one share constants and no code."""
    rest, tenth = np.divmod(mixed(numbers, seed, WHO_STREAM), 10)
    selling = tenth == 0
    calling = np.where(selling, rest % TELEMARKETERS, rest % CALLERS)
    away = rest // 1000 % np.where(selling, CALLERS - 1, FRIENDS)
    span = mixed(numbers, seed, TALK_STREAM) // 100
    return calling, (calling + 1 + away) % CALLERS, 1 + span % np.where(selling, 20, 600)


def weight(beta: float, age_s: int) -> int:
    return round(1e9 * math.log(1 / beta) * beta**age_s)


def score(made: list[tuple[int, int, int]], rcr: int, mean_s: float) -> float:
    """From (callee, seconds, age) of a caller's calls and what its number received."""
    ct24 = sum(seconds * weight(0.9917, age) for _, seconds, age in made)
    ecr24 = sum(weight(0.9917, age) for _, _, age in made)
    ecr = sum(weight(0.9672, age) for _, _, age in made)
    oldest: dict[int, int] = {}
    for callee, _, age in made:
        oldest[callee] = max(age, oldest.get(callee, age))
    encr = sum(weight(0.9672, age) for age in oldest.values())
    fofir = min(ecr / rcr / 10, 1.0) if rcr else 1.0
    url = min(encr / ecr, 1.0)
    acd = min(ct24 / ecr24 / mean_s / 10, 1.0)
    return 2 * fofir + 3 * url + 3 * acd
