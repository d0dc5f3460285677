"""What ETL and STATS must answer, in plain Python, from the definition of the messages. Nothing is shared with Spark's
side but the tables in `senml.py`; the figures of both applications are written out here.

Sums of floats are `math.fsum`'s, which no order changes; every other operation is the definition's own, in its order.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict, deque
from hashlib import md5
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from slackwater.workloads.riot.senml import BLOOM_BITS, BLOOM_HASHES, KINDS, SENSORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Answer = list[tuple[Any, ...]]
    Messages = Sequence[Mapping[str, Any]]


class Message(NamedTuple):
    """A message that can be read: a value for each kind, None where there is no number."""

    message_id: int
    sensor_id: str
    at_ms: int
    values: tuple[float | None, ...]


def etl(messages: Messages) -> dict[str, Answer]:
    """Annotated messages, and those that cannot be read."""
    registry = {sensor.sensor_id: (sensor.place, sensor.owner) for sensor in SENSORS}
    measured: dict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=5))
    annotated = []
    for message in _in_order(messages):
        values: list[float | None] = []
        filled = 0
        for kind, value in zip(KINDS, message.values, strict=True):
            last = measured[message.sensor_id, kind.name]
            if value is not None and kind.low <= value <= kind.high:
                last.append(value)
                values.append(value)
            elif last:
                filled += 1
                values.append(math.fsum(last) / len(last))
            else:
                values.append(None)
        about = registry.get(message.sensor_id, (None, None))
        annotated.append((message.message_id, message.sensor_id, message.at_ms, *values, filled, *about))
    rejects = [(row["message_id"], row["body"]) for row in messages if read(row) is None]
    return {"annotated": sorted(annotated), "rejects": sorted(rejects)}


def stats(messages: Messages) -> dict[str, Answer]:
    """For each reading that is a number: its trend, and second moment and distinct count of the values so far."""
    series: dict[tuple[str, str], list[tuple[Message, float]]] = defaultdict(list)
    for message in _in_order(messages):
        for kind, value in zip(KINDS, message.values, strict=True):
            if value is not None:
                series[message.sensor_id, kind.name].append((message, value))
    trends: Answer = []
    moments: Answer = []
    distinct: Answer = []
    for (sensor_id, kind_name), readings in series.items():
        values = [value for _, value in readings]
        estimates, squares, counts = list(kalman(values)), list(second_moments(values)), list(distinct_counts(values))
        for place, (message, _) in enumerate(readings):
            reading = (message.message_id, sensor_id, kind_name, message.at_ms)
            trends.append((*reading, estimates[place], *line(estimates[max(0, place - 9) : place + 1])))
            moments.append((*reading, place + 1, squares[place]))
            distinct.append((*reading, counts[place]))
    return {"trends": sorted(trends), "moments": sorted(moments), "distinct": sorted(distinct)}


def read(row: Mapping[str, Any]) -> Message | None:
    """The message, unless it is no JSON or has no source or no time."""
    try:
        body = json.loads(row["body"])
    except ValueError:
        return None
    entries = {entry["n"]: entry for entry in reversed(body.get("e", []))}
    sensor_id, at_ms = entries.get("source", {}).get("sv"), body.get("bt")
    if sensor_id is None or at_ms is None:
        return None
    return Message(row["message_id"], sensor_id, at_ms, tuple(_number(entries.get(kind.name)) for kind in KINDS))


def _number(entry: Mapping[str, str] | None) -> float | None:
    try:
        value = float(entry["v"]) if entry else math.nan
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _in_order(messages: Messages) -> list[Message]:
    """Those that can be read and whose sensor passes the Bloom filter."""
    bits = set().union(*(bloom_bits(sensor.sensor_id) for sensor in SENSORS))
    found = [message for message in map(read, messages) if message and bloom_bits(message.sensor_id) <= bits]
    return sorted(found, key=lambda message: (message.at_ms, message.message_id))


def bloom_bits(sensor_id: str) -> set[int]:
    start, step = (crc32(text.encode()) for text in (sensor_id, sensor_id + "#"))
    return {(start + i * step) % BLOOM_BITS for i in range(BLOOM_HASHES)}


def kalman(values: Iterable[float]) -> Iterator[float]:
    """Process noise 0.125, sensor noise 0.32, first error 30, from 0."""
    x, p = 0.0, 30.0
    for z in values:
        p += 0.125
        k = p / (p + 0.32)
        x = x + k * (z - x)
        p = (1 - k) * p
        yield x


def line(y: Sequence[float]) -> list[float | None]:
    """Least squares through ten points at 0 … 9, whose squared distances from 4.5 add up to 82.5."""
    if len(y) < 10:
        return [None] * 10
    mean = math.fsum(y) / 10
    slope = math.fsum((i - 4.5) * (y[i] - mean) for i in range(10)) / 82.5
    return [mean + slope * (step + 5.5) for step in range(10)]


def second_moments(values: Iterable[float]) -> Iterator[float]:
    """After each value: of sixteen signed counts of all so far, the mean square."""
    ones = Counter[int]()
    for count, value in enumerate(values, 1):
        bits = _hash("moment", value)
        ones.update(j for j in range(16) if bits & (1 << j))
        yield sum((2 * ones[j] - count) ** 2 for j in range(16)) / 16


def distinct_counts(values: Iterable[float]) -> Iterator[float]:
    """After each value HyperLogLog by its paper: 64 registers from the six low bits, ranks from the other 58."""
    ranks: dict[int, int] = {}
    for value in values:
        bits = _hash("distinct", value)
        high = f"{bits >> 6:058b}"
        ranks[bits & 63] = max(ranks.get(bits & 63, 0), (high + "1").index("1") + 1)
        unused = 64 - len(ranks)
        raw = 0.709 * 64 * 64 / math.fsum([unused, *(0.5**rank for rank in ranks.values())])
        yield 64 * math.log(64 / unused) if raw <= 160 and unused else raw


def _hash(purpose: str, value: float) -> int:
    text = f"{purpose}:{round(100 * value)}"
    return int(md5(text.encode(), usedforsecurity=False).hexdigest()[:16], 16)
