"""What sensors send: SenML messages with five readings each, by seed, some of them broken.

Kinds and ranges are those of RIoTBench's city sensors. Chosen here: of a hundred messages about 8 come from sensors
that nobody registered, and 4 cannot be read: cut short, no JSON, without a source, or without a time. Of a hundred
readings about 6 lie outside their kind's range and 2 are no number.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

TABLES = {"messages": "message_id BIGINT, body STRING"}


class Kind(NamedTuple):
    """A kind of reading, and the range beyond which one counts as failed."""

    name: str
    unit: str
    low: float
    high: float


KINDS = (
    Kind("temperature", "far", 0.7, 35.1),
    Kind("humidity", "per", 20.3, 69.1),
    Kind("light", "per", 0.0, 5153.0),
    Kind("dust", "per", 83.36, 3322.67),
    Kind("airquality_raw", "per", 12.0, 49.0),
)


class Sensor(NamedTuple):
    """A registered sensor; `place` and `owner` annotate what it sends."""

    sensor_id: str
    place: str
    owner: str


SENSORS = tuple(
    Sensor(f"city-{number:02d}", ("harbour", "market", "park", "station", "school")[number % 5], f"ward-{number % 3}")
    for number in range(20)
)
STRANGERS = 200

# A Bloom filter of the registered sensors. Bit (crc32(id) + i · crc32(id + '#')) mod 128 for i = 0, 1, 2: small, so
# that nine of the 200 strangers pass, and what a false positive does can be seen.
BLOOM_BITS = 128
BLOOM_HASHES = 3

_FIRST_MS = 1_422_748_800_000
_NO_NUMBERS = ("n/a", "", "NaN")


def messages(seed: int, size: int) -> list[dict[str, Any]]:
    """`size` messages, in the order of their times; a sensor sends at most one in a millisecond."""
    rng = random.Random(f"riot-{seed}")
    levels = {sensor: [rng.uniform(0.2, 0.8) for _ in KINDS] for sensor in range(len(SENSORS))}
    at_ms = _FIRST_MS
    found = []
    for message_id in range(size):
        at_ms += rng.randrange(1, 2000)
        if rng.random() < 0.08:
            sensor_id, level = f"stranger-{rng.randrange(STRANGERS):03d}", [rng.random() for _ in KINDS]
        else:
            number = rng.randrange(len(SENSORS))
            sensor_id, level = SENSORS[number].sensor_id, levels[number]
            for place in range(len(KINDS)):
                level[place] = min(1.0, max(0.0, level[place] + rng.uniform(-0.05, 0.05)))
        texts = [_reading(rng, kind, share) for kind, share in zip(KINDS, level, strict=True)]
        body = senml(sensor_id, at_ms, texts)
        if rng.random() < 0.04:
            body = rng.choice(_BREAK)(rng, body)
        found.append({"message_id": message_id, "body": body})
    return found


def senml(sensor_id: str, at_ms: int, texts: list[str]) -> str:
    """A message as text: its sensor, its time, and a reading of each kind."""
    entries: list[dict[str, str]] = [{"u": "string", "n": "source", "sv": sensor_id}]
    entries += [{"v": text, "u": kind.unit, "n": kind.name} for kind, text in zip(KINDS, texts, strict=True)]
    return json.dumps({"e": entries, "bt": at_ms}, separators=(",", ":"))


def _reading(rng: random.Random, kind: Kind, share: float) -> str:
    chance = rng.random()
    if chance < 0.02:
        return rng.choice(_NO_NUMBERS)
    width = kind.high - kind.low
    if chance < 0.08:
        return f"{kind.high + 0.01 + rng.random() * width:.2f}" if rng.random() < 0.5 else f"{kind.low - width:.2f}"
    return f"{kind.low + share * width:.2f}"


def _cut(rng: random.Random, body: str) -> str:
    return body[: rng.randrange(len(body))]


def _no_json(_rng: random.Random, body: str) -> str:
    return body.replace('"', "")


def _without_source(_rng: random.Random, body: str) -> str:
    message = json.loads(body)
    return json.dumps({"e": message["e"][1:], "bt": message["bt"]})


def _without_time(_rng: random.Random, body: str) -> str:
    return json.dumps({"e": json.loads(body)["e"]})


_BREAK: tuple[Callable[[random.Random, str], str], ...] = (_cut, _no_json, _without_source, _without_time)
