"""STATS in tumbling windows, for the benchmark: statistics of every sensor and kind, anew in each window.

The applications of `stats.py` follow a sensor without end and answer every reading; a benchmark of windows asks when a
window's result leaves. Here the same statistics are of a window's readings, in Spark's own expressions:

- the Kalman filter begins anew with the window, and the line goes through its last ten estimates, one step ahead;
- the second moment has the same sixteen signed counters;
- distinct values are counted linearly: of 256 places, how many are taken? A table turns that into an estimate.

Kalman filter and line use only + - · / in a fixed order, so that the oracle's doubles are equal, not close. Messages
are made from a row's number (`rate_source.py`): nine in ten come from registered sensors.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from hashlib import md5
from typing import TYPE_CHECKING, Literal

import numpy as np

from slackwater.workloads.rate_oracle import due_windows, first_offered_ms, numbers_between
from slackwater.workloads.rate_source import mixed, rate_rows, read_creation_ms, row_times_ms, with_mixed
from slackwater.workloads.riot.oracle import bloom_bits, kalman
from slackwater.workloads.riot.parse import is_known, readings
from slackwater.workloads.riot.senml import KINDS, SENSORS, STRANGERS
from slackwater.workloads.riot.stats import FIRST_ERROR, MOMENT_COUNTERS, PROCESS_NOISE, SENSOR_NOISE, TRAINED_ON

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from slackwater.workloads.base import Payload, QuerySpec, Window

    Numbers = NDArray[np.int64]

PayloadKind = Literal["columns", "json"]

SENDER_STREAM, FIRST_STREAM, SECOND_STREAM = 2, 3, 4
STEPS = 1000
# Of each kind, in hundredths: the least value, and the width of its 1000 steps.
VALUES = ((70, 3), (2030, 4), (0, 515), (8336, 323), (1200, 3))
# Two hexadecimal digits.
PLACES = 256


@dataclass(frozen=True)
class RiotWindows:
    """`payload="json"` makes each message SenML text that the query parses; "columns" leaves that out."""

    payload: PayloadKind = "columns"
    source_partitions: int = 1
    name: str = "riot"

    def build(self, spark: SparkSession, spec: QuerySpec) -> DataFrame:
        return self.from_numbers(rate_rows(spark, spec.rate, self.source_partitions), spec)

    def from_numbers(self, numbered: DataFrame, spec: QuerySpec) -> DataFrame:
        """The query over rows `timestamp`, `value`, streamed or not."""
        made = _made(numbered, spec.seed)
        return statistics(readings(_messages(made)) if self.payload == "json" else _columns(made), spec)

    def oracle(self, spec: QuerySpec, checkpoint: Path) -> RiotWindowsOracle:
        return RiotWindowsOracle(spec, creation_ms=read_creation_ms(checkpoint))


def _made(numbered: DataFrame, seed: int) -> DataFrame:
    """What is in a message: message_id, at_ms, sensor_id, and a column of hundredths for each kind."""
    bits = with_mixed(
        numbered,
        seed,
        sender=("value", SENDER_STREAM),
        first=("value", FIRST_STREAM),
        second=("value", SECOND_STREAM),
    )
    places = (("first", 1), ("first", STEPS), ("first", STEPS**2), ("second", 1), ("second", STEPS))
    hundredths = (
        f"{low} + ({name} div {unit} % {STEPS}) * {step} AS {kind.name}"
        for kind, (low, step), (name, unit) in zip(KINDS, VALUES, places, strict=True)
    )
    known = f"concat('city-', lpad(sender div 10 % {len(SENSORS)}, 2, '0'))"
    stranger = f"concat('stranger-', lpad(sender div 10 % {STRANGERS}, 3, '0'))"
    return bits.selectExpr(
        "value AS message_id",
        "unix_millis(timestamp) AS at_ms",
        # Not deterministic to Spark's eyes, so that a filter on what was parsed is not asked of the numbers above.
        f"IF(sender % 10 < 9 AND spark_partition_id() >= 0, {known}, {stranger}) AS sensor_id",
        *hundredths,
    )


def _messages(made: DataFrame) -> DataFrame:
    """SenML text. Not to_json: the optimiser cancels from_json(to_json(x)), and nothing would be parsed."""
    decimal = "{0} div 100, '.', lpad({0} % 100, 2, '0')"
    entries = ", ".join(
        f"""',{{"v":"', {decimal.format(kind.name)}, '","u":"{kind.unit}","n":"{kind.name}"}}'""" for kind in KINDS
    )
    source = """'{"e":[{"u":"string","n":"source","sv":"', sensor_id, '"}'"""
    return made.selectExpr("message_id", f"""concat({source}, {entries}, '],"bt":', at_ms, '}}') AS body""")


def _columns(made: DataFrame) -> DataFrame:
    rows = ", ".join(f"struct('{kind.name}' AS kind, {kind.name} / 100D AS value)" for kind in KINDS)
    return made.where(is_known()).selectExpr("message_id", "sensor_id", "at_ms", f"inline(array({rows}))")


def statistics(rows: DataFrame, spec: QuerySpec) -> DataFrame:
    """For each window, sensor and kind: readings, estimate, prediction, second moment, distinct values."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # Spark's own convention; loaded on use

    length, phase = f"{spec.window_ms} milliseconds", f"{spec.phase_ms} milliseconds"
    slide = f"{spec.slide_ms} milliseconds"
    text = "CAST(CAST(round(value * 100) AS BIGINT) AS STRING)"
    counters = [f"z{j}" for j in range(MOMENT_COUNTERS)]
    counted = (
        rows.selectExpr("*", "timestamp_millis(at_ms) AS event_time", f"md5({text}) AS digest")
        .selectExpr("*", "CAST(conv(substr(digest, 9, 8), 16, 10) AS BIGINT) AS bits")
        .withWatermark("event_time", f"{spec.delay_ms} milliseconds")
        .groupBy(F.window("event_time", length, slide, phase), "sensor_id", "kind")
        .agg(
            F.count("*").alias("readings"),
            F.expr("sort_array(collect_list(struct(at_ms, message_id, value))).value").alias("series"),
            F.expr("size(collect_set(substr(digest, 1, 2)))").alias("taken"),
            *(F.expr(f"sum(1 - 2 * (shiftright(bits, {j}) & 1))").alias(z) for j, z in enumerate(counters)),
        )
    )
    estimates = f"aggregate(series, named_struct('x', array(0D), 'p', {FIRST_ERROR}D), (s, z) -> {_kalman_step()}).x"
    table = ", ".join(f"{_linear_count(taken)!r}D" for taken in range(PLACES + 1))
    return counted.withColumn("estimates", F.expr(estimates)).select(
        F.col("window.start").alias("window_start"),
        "sensor_id",
        "kind",
        "readings",
        F.expr("element_at(estimates, -1)").alias("estimate"),
        F.expr(_next_on_line()).alias("predicted"),
        F.expr(f"({' + '.join(f'{z} * {z}' for z in counters)}) / {MOMENT_COUNTERS}D").alias("second_moment"),
        F.expr(f"get(array({table}), taken)").alias("distinct_values"),
        F.current_timestamp().alias("batch_ts"),
    )


def _kalman_step() -> str:
    """From the newest ten estimates and the error to the next ones; the first estimate is the 0 to begin with."""
    before = f"(s.p + {PROCESS_NOISE}D)"
    gain = f"({before} / ({before} + {SENSOR_NOISE}D))"
    x = "element_at(s.x, -1)"
    newest = f"slice(s.x, -least(size(s.x), {TRAINED_ON - 1}), {TRAINED_ON - 1})"
    return f"named_struct('x', concat({newest}, array({x} + {gain} * (z - {x}))), 'p', (1D - {gain}) * {before})"


def _next_on_line() -> str:
    """A line through the last ten estimates, one step ahead; NULL while there are fewer."""
    middle = (TRAINED_ON - 1) / 2
    total = "aggregate({}, 0D, (s, y) -> s + y)"
    mean = f"({total.format('estimates')} / {TRAINED_ON}D)"
    leaning = f"transform(estimates, (y, i) -> (i - {middle}D) * (y - {mean}))"
    spread = sum((place - middle) ** 2 for place in range(TRAINED_ON))
    return f"IF(readings >= {TRAINED_ON}, {mean} + {total.format(leaning)} / {spread}D * {middle + 1}D, NULL)"


@cache
def _linear_count(taken: int) -> float:
    """Linear counting; where every place is taken, as if one half were free."""
    return PLACES * math.log(PLACES / max(PLACES - taken, 0.5))


class RiotWindowsOracle:
    """The rows that the query must emit, from the definition of the messages and the rate source's rule."""

    def __init__(self, spec: QuerySpec, creation_ms: int) -> None:
        self.spec = spec
        self.creation_ms = creation_ms
        bits = set().union(*(bloom_bits(sensor.sensor_id) for sensor in SENSORS))
        self._passing = np.array([bloom_bits(f"stranger-{number:03d}") <= bits for number in range(STRANGERS)])

    def windows_due(self, from_ms: int, to_ms: int) -> list[Window]:
        """Windows with a reading in them whose deadline lies in [from_ms, to_ms)."""
        return [window for window in due_windows(self.spec, from_ms, to_ms) if self._kept_in(window.start_ms).size]

    def expected(self, window_start_ms: int) -> list[Payload]:
        """(sensor, kind, readings, estimate, prediction, second moment, distinct values) of one window, sorted."""
        numbers = self._kept_in(window_start_ms)
        times_ms = row_times_ms(numbers, self.spec.rate, self.creation_ms)
        numbers = numbers[np.lexsort((numbers, times_ms))]
        series: dict[tuple[str, str], list[int]] = defaultdict(list)
        for sensor_id, *row in zip(self._senders(numbers), *self._hundredths(numbers), strict=True):
            for kind, hundredths in zip(KINDS, row, strict=True):
                series[sensor_id, kind.name].append(hundredths)
        return sorted((*key, *statistics_of(values)) for key, values in series.items())

    def ingestible_ms(self, deadline_ms: int) -> int:
        """When the source first offers a message at or after the deadline that passes the filter."""
        return first_offered_ms(deadline_ms, self.spec.rate, self.creation_ms, self._kept)

    def _kept_in(self, window_start_ms: int) -> Numbers:
        end_ms = window_start_ms + self.spec.window_ms
        numbers = numbers_between(window_start_ms, end_ms, self.spec.rate, self.creation_ms)
        found: Numbers = numbers[self._kept(numbers)]
        return found

    def _kept(self, numbers: Numbers) -> NDArray[np.bool_]:
        digits, chance = np.divmod(mixed(numbers, self.spec.seed, SENDER_STREAM), 10)
        kept: NDArray[np.bool_] = (chance < 9) | self._passing[digits % STRANGERS]
        return kept

    def _senders(self, numbers: Numbers) -> list[str]:
        digits, chance = np.divmod(mixed(numbers, self.spec.seed, SENDER_STREAM), 10)
        return [
            f"city-{digit % len(SENSORS):02d}" if known else f"stranger-{digit % STRANGERS:03d}"
            for digit, known in zip(digits.tolist(), (chance < 9).tolist(), strict=True)
        ]

    def _hundredths(self, numbers: Numbers) -> list[list[int]]:
        first = mixed(numbers, self.spec.seed, FIRST_STREAM)
        second = mixed(numbers, self.spec.seed, SECOND_STREAM)
        digits = (first, first // STEPS, first // STEPS**2, second, second // STEPS)
        return [(low + digit % STEPS * step).tolist() for digit, (low, step) in zip(digits, VALUES, strict=True)]


def statistics_of(hundredths: list[int]) -> tuple[int, float, float | None, float, float]:
    estimates = list(kalman(value / 100 for value in hundredths))
    signs = [_signs(value) for value in hundredths]
    moment = sum(sum(column) ** 2 for column in zip(*signs, strict=True)) / 16
    taken = len({_digest(value)[:2] for value in hundredths})
    distinct = 256 * math.log(256 / max(256 - taken, 0.5))
    return len(hundredths), estimates[-1], _ahead(estimates[-10:]), moment, distinct


@cache
def _signs(hundredths: int) -> tuple[int, ...]:
    bits = int(_digest(hundredths)[8:16], 16)
    return tuple(-1 if bits >> j & 1 else 1 for j in range(16))


@cache
def _digest(hundredths: int) -> str:
    return md5(str(hundredths).encode(), usedforsecurity=False).hexdigest()


def _ahead(y: list[float]) -> float | None:
    """Sums from the left, as the query adds them: not `sum`, which some versions of Python compensate."""
    if len(y) < 10:
        return None
    total = leaning = 0.0
    for value in y:
        total += value
    mean = total / 10
    for i, value in enumerate(y):
        leaning += (i - 4.5) * (value - mean)
    return mean + leaning / 82.5 * 5.5
