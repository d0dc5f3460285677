"""A topic of the run's broker: rows in, a stream out."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from slackwater.kafka.topics import create_topics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slackwater.kafka import Broker

_names = itertools.count()


class Topic:
    def __init__(self, broker: Broker, partitions: int = 1) -> None:
        self.name = f"topic-{next(_names)}"
        self.servers = broker.servers
        create_topics(self.servers, [self.name], partitions)
        self._producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 0})

    def send(self, rows: Iterable[Any]) -> None:
        """Each row as JSON, or as it is where it is bytes; not waited for."""
        for row in rows:
            self._producer.produce(self.name, row if isinstance(row, bytes) else json.dumps(row).encode())

    def flush(self) -> None:
        assert self._producer.flush(60) == 0

    def put(self, rows: Iterable[Any]) -> None:
        self.send(rows)
        self.flush()

    def options(self, **more: Any) -> dict[str, Any]:
        return {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self.name,
            "startingOffsets": "earliest",
            **more,
        }

    def stream(self, spark: Any, schema: str, **more: Any) -> Any:
        """The columns of the JSON, with Kafka's own `timestamp`, and the text as `body`."""
        rows = spark.readStream.format("kafka").options(**self.options(**more)).load()
        return parsed(rows, schema)

    def table(self, spark: Any, schema: str) -> Any:
        return parsed(spark.read.format("kafka").options(**self.options()).load(), schema)


def parsed(rows: Any, schema: str) -> Any:
    texts = rows.selectExpr("CAST(value AS STRING) AS body", "timestamp")
    return texts.selectExpr("body", "timestamp", f"from_json(body, '{schema}') AS row").select(
        "row.*", "timestamp", "body"
    )
