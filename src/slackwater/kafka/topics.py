"""Topics of a broker: made, and told apart from those that are not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from slackwater.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

_TIMEOUT_S: Final = 60.0


def client() -> Any:
    """The module of the Kafka client, or the error that says how to get it."""
    try:
        import confluent_kafka  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise KafkaError(
            "the Kafka client is not installed (confluent_kafka). Install it: pip install 'slackwater[kafka]'"
        ) from error
    return confluent_kafka


def create_topics(servers: str, topics: Iterable[str], partitions: int = 1) -> None:
    """Make topics whose rows carry the time at which the broker appended them."""
    client()
    from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415

    admin = AdminClient({"bootstrap.servers": servers})
    config = {"message.timestamp.type": "LogAppendTime"}
    wanted = [NewTopic(topic, partitions, 1, config=config) for topic in topics]
    for topic, made in admin.create_topics(wanted, operation_timeout=_TIMEOUT_S).items():
        try:
            made.result(_TIMEOUT_S)
        except Exception as error:
            raise KafkaError(f"the topic {topic!r} could not be made at {servers}: {error}") from error
