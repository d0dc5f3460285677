"""From SenML messages to readings on Spark, and the two filters."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from slackwater.workloads.riot.senml import BLOOM_BITS, BLOOM_HASHES, KINDS, SENSORS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

READINGS = "message_id BIGINT, sensor_id STRING, at_ms BIGINT, kind STRING, value DOUBLE"
REJECTS = "message_id BIGINT, body STRING"

_SENML = "e ARRAY<STRUCT<n: STRING, u: STRING, v: STRING, sv: STRING>>, bt BIGINT, broken STRING"
_WORD_BITS = 32


def opened(messages: DataFrame) -> DataFrame:
    """Messages with what can be read of them: `sensor_id`, `at_ms`, the entries `e`, and whether that is `readable`."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # Spark's own convention; loaded on use

    found = F.from_json("body", _SENML, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "broken"})
    return (
        messages.withColumn("senml", found)
        .selectExpr(
            "message_id",
            "body",
            "senml.e AS e",
            "senml.bt AS at_ms",
            "senml.broken AS broken",
            "get(filter(senml.e, entry -> entry.n = 'source'), 0).sv AS sensor_id",
        )
        .selectExpr("*", "broken IS NULL AND at_ms IS NOT NULL AND sensor_id IS NOT NULL AS readable")
    )


def rejects(messages: DataFrame) -> DataFrame:
    """The messages that cannot be read, as they came."""
    return opened(messages).where("NOT readable").select("message_id", "body")


def readings(messages: DataFrame) -> DataFrame:
    """Five rows for each message that can be read and whose sensor is known; what is missing or no number is NULL.

    Nothing explodes into no row, and so drops a message. A `where` on what was parsed would be asked below the parsing,
    and a message parsed anew for each time that the condition names a part of it.
    """
    kinds = ", ".join(f"'{kind.name}'" for kind in KINDS)
    return (
        opened(messages)
        .selectExpr("*", f"readable AND {is_known()} AS kept")
        .selectExpr("message_id", "sensor_id", "at_ms", "e", f"explode(IF(kept, array({kinds}), array())) AS kind")
        .selectExpr(
            "message_id",
            "sensor_id",
            "at_ms",
            "kind",
            "try_cast(get(filter(e, entry -> entry.n = kind), 0).v AS DOUBLE) AS value",
        )
    )


def in_range(rows: DataFrame) -> DataFrame:
    """Readings outside the range of their kind become NULL; NaN is larger than any range."""
    cases = " ".join(f"WHEN '{kind.name}' THEN value BETWEEN {kind.low}D AND {kind.high}D" for kind in KINDS)
    return rows.selectExpr(
        "message_id", "sensor_id", "at_ms", "kind", f"IF(CASE kind {cases} END, value, NULL) AS value"
    )


def is_known() -> str:
    """Whether `sensor_id` passes the Bloom filter, in SQL: registered ones do, and a few false positives."""
    words = ", ".join(f"{word}L" for word in bloom_words(sensor.sensor_id for sensor in SENSORS))
    bit = f"(crc32(sensor_id) + {{}} * crc32(concat(sensor_id, '#'))) % {BLOOM_BITS}"
    word = f"get(array({words}), CAST({bit} div {_WORD_BITS} AS INT))"
    is_set = f"shiftright({word}, CAST({bit} % {_WORD_BITS} AS INT)) & 1 = 1"
    return "(" + " AND ".join(is_set.format(turn, turn) for turn in range(BLOOM_HASHES)) + ")"


def bloom_words(keys: Iterable[str]) -> list[int]:
    """The filter's bits, 32 in a number."""
    words = [0] * (BLOOM_BITS // _WORD_BITS)
    for key in keys:
        first, more = zlib.crc32(key.encode()), zlib.crc32(f"{key}#".encode())
        for turn in range(BLOOM_HASHES):
            word, bit = divmod((first + turn * more) % BLOOM_BITS, _WORD_BITS)
            words[word] |= 1 << bit
    return words
