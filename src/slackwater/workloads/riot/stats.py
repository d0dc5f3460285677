"""RIoTBench's STATS on Spark: three statistics of every sensor and kind, each with a row for each reading.

Approximate ones are sketches with fixed hashes, so that the same readings always give the same estimate:

- second moment: the sum of the squared frequencies of values, by Alon, Matias and Szegedy's signed counters. Counter
  j adds +1 or -1 for a value, by bit j of its hash; the mean of the squared counters is the estimate, with a standard
  error of √(2/16) = 35 %.
- distinct count: HyperLogLog with 64 registers, a standard error of 13 %, and linear counting while few are known.

A value is hashed by the text of its hundredths.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slackwater.workloads.finite import Stage
from slackwater.workloads.keyed import followed
from slackwater.workloads.riot import oracle, senml
from slackwater.workloads.riot.parse import READINGS, readings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from slackwater.workloads.finite import Answers, Frames, Rows

PROCESS_NOISE, SENSOR_NOISE, FIRST_ERROR = 0.125, 0.32, 30.0
TRAINED_ON = 10
PREDICTED = 10
MOMENT_COUNTERS = 16
REGISTERS = 64
REGISTER_BITS = 6
# HyperLogLog's constant for 64 registers.
_ALPHA = 0.709

_READING = "message_id BIGINT, sensor_id STRING, kind STRING, at_ms BIGINT"
TRENDS = f"{_READING}, estimate DOUBLE, " + ", ".join(f"p{ahead} DOUBLE" for ahead in range(1, PREDICTED + 1))
MOMENTS = f"{_READING}, readings BIGINT, second_moment DOUBLE"
DISTINCT = f"{_READING}, distinct_values DOUBLE"
_KEY = ("sensor_id", "kind")
_ORDER = ("at_ms", "message_id")

Emitted = list[tuple[Any, ...]]


def numbers(messages: DataFrame) -> DataFrame:
    """The readings of known sensors that are numbers."""
    return readings(messages).where("value IS NOT NULL AND NOT isnan(value)")


def trends(rows: DataFrame) -> DataFrame:
    """A Kalman filter's estimate at each reading; from the tenth on, a line through ten of them, ten steps ahead."""
    return followed(rows, _KEY, _ORDER, follow_trend, TRENDS)


def follow_trend(kept: Any, rows: Sequence[Any]) -> tuple[Any, Emitted]:
    """Kept: the estimate, its error, and the newest ten estimates."""
    estimate, error, recent = kept or (0.0, FIRST_ERROR, [])
    found: Emitted = []
    for row in rows:
        before = error + PROCESS_NOISE
        gain = before / (before + SENSOR_NOISE)
        estimate += gain * (row.value - estimate)
        error = (1 - gain) * before
        recent = [*recent, estimate][-TRAINED_ON:]
        found.append((row.message_id, row.sensor_id, row.kind, row.at_ms, estimate, *ahead(recent)))
    return (estimate, error, recent), found


def ahead(recent: Sequence[float]) -> list[float | None]:
    """The least-squares line through ten points at 0 … 9, at 10 … 19; nothing while there are fewer."""
    if len(recent) < TRAINED_ON:
        return [None] * PREDICTED
    middle = (TRAINED_ON - 1) / 2
    mean = math.fsum(recent) / TRAINED_ON
    spread = math.fsum((place - middle) ** 2 for place in range(TRAINED_ON))
    slope = math.fsum((place - middle) * (y - mean) for place, y in enumerate(recent)) / spread
    return [mean + slope * (place - middle) for place in range(TRAINED_ON, TRAINED_ON + PREDICTED)]


def moments(rows: DataFrame) -> DataFrame:
    """How many readings there were, and the second moment of their values."""
    return followed(rows, _KEY, _ORDER, follow_moment, MOMENTS)


def follow_moment(kept: Any, rows: Sequence[Any]) -> tuple[Any, Emitted]:
    count, counters = kept or (0, [0] * MOMENT_COUNTERS)
    found: Emitted = []
    for row in rows:
        bits = value_hash("moment", row.value)
        counters = [counter + (1 if bits >> j & 1 else -1) for j, counter in enumerate(counters)]
        count += 1
        moment = sum(counter * counter for counter in counters) / MOMENT_COUNTERS
        found.append((row.message_id, row.sensor_id, row.kind, row.at_ms, count, moment))
    return (count, counters), found


def distinct(rows: DataFrame) -> DataFrame:
    """About how many different values there were."""
    return followed(rows, _KEY, _ORDER, follow_distinct, DISTINCT)


def follow_distinct(registers: list[int] | None, rows: Sequence[Any]) -> tuple[list[int], Emitted]:
    registers = list(registers or [0] * REGISTERS)
    found: Emitted = []
    for row in rows:
        bits = value_hash("distinct", row.value)
        place, rest = bits % REGISTERS, bits >> REGISTER_BITS
        registers[place] = max(registers[place], 64 - REGISTER_BITS - rest.bit_length() + 1)
        found.append((row.message_id, row.sensor_id, row.kind, row.at_ms, estimated(registers)))
    return registers, found


def estimated(registers: Sequence[int]) -> float:
    """HyperLogLog's estimate, with its correction for small counts."""
    raw = _ALPHA * REGISTERS * REGISTERS / math.fsum(2.0**-register for register in registers)
    empty = registers.count(0)
    return REGISTERS * math.log(REGISTERS / empty) if empty and raw <= 2.5 * REGISTERS else raw


def value_hash(purpose: str, value: float) -> int:
    """64 bits of a value, others for each purpose."""
    return int.from_bytes(
        hashlib.md5(f"{purpose}:{round(value * 100)}".encode(), usedforsecurity=False).digest()[:8], "big"
    )


def _numbers(frames: Frames) -> DataFrame:
    return numbers(frames["messages"])


def _trends(frames: Frames) -> DataFrame:
    return trends(frames["readings"])


def _moments(frames: Frames) -> DataFrame:
    return moments(frames["readings"])


def _distinct(frames: Frames) -> DataFrame:
    return distinct(frames["readings"])


@dataclass(frozen=True)
class RiotStats:
    """Every row of every answer is exact: the sketches' hashes are part of the definition."""

    name: str = "riot-stats"
    about: str = "RIoTBench STATS: Kalman filter and regression, second moment, distinct count"
    outputs: tuple[str, ...] = ("trends", "moments", "distinct")

    @property
    def tables(self) -> Mapping[str, str]:
        return senml.TABLES

    @property
    def stages(self) -> tuple[Stage, ...]:
        keys = ("message_id", "kind")
        return (
            Stage("readings", ("messages",), _numbers, READINGS),
            Stage("trends", ("readings",), _trends, TRENDS, keys=keys),
            Stage("moments", ("readings",), _moments, MOMENTS, keys=keys),
            Stage("distinct", ("readings",), _distinct, DISTINCT, keys=keys),
        )

    def generate(self, seed: int, size: int) -> Rows:
        return {"messages": senml.messages(seed, size)}

    def closing(self, rows: Rows) -> Rows:
        """Nothing waits for a watermark."""
        return dict.fromkeys(rows, ())

    def expected(self, rows: Rows) -> Answers:
        return oracle.stats(rows["messages"])
