"""A run's own broker, and the process that fills its topics."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from slackwater.bench.model import KafkaRun
from slackwater.bench.producer import READY, ProducerPlan, delays_of
from slackwater.errors import SlackwaterError
from slackwater.kafka import Broker
from slackwater.kafka.jars import spark_settings
from slackwater.kafka.topics import create_topics
from slackwater.workloads.arrivals import read_handovers
from slackwater.workloads.on_topics import OnTopics, topic_form, topics_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from slackwater.bench.measure import Span
    from slackwater.bench.model import OnKafka, RunSpec
    from slackwater.workloads.base import QuerySpec

_END_S: Final = 60.0


class BenchKafka:
    """Started anew for every run. What broker and producer cost is not counted: it is not Spark's."""

    def __init__(
        self, wanted: OnKafka, queries: Sequence[QuerySpec], spec: RunSpec, folder: Path, cleanup: ExitStack
    ) -> None:
        form = topic_form(spec.workload)
        self._broker = cleanup.enter_context(Broker(folder))
        self._topics = {query.name: topics_of(form, query) for query in queries}
        self._partitions = spec.settings.source_partitions
        self._log = folder / "producer.jsonl"
        names = [topic for topics in self._topics.values() for topic in topics]
        create_topics(self._broker.servers, names, self._partitions)
        self.workload = OnTopics(
            form, self._broker.servers, self._log, delays_of(wanted.network, wanted.longest_s), spec.workload
        )
        self._producer = subprocess.Popen(
            [sys.executable, "-m", "slackwater.bench.producer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        cleanup.callback(self._kill)
        plan = ProducerPlan(
            workload=spec.workload,
            servers=self._broker.servers,
            queries=list(queries),
            log=str(self._log),
            network=wanted.network,
            longest_s=wanted.longest_s,
            partitions=self._partitions,
        )
        self._tell(msgspec.json.encode(plan))
        assert self._producer.stdout is not None  # noqa: S101  # a pipe was asked for
        if self._producer.stdout.readline().decode().strip() != READY:
            raise self._ended()

    @property
    def pids(self) -> frozenset[int]:
        """The processes of the broker and the producer."""
        broker = self._broker.status().pid
        return frozenset((self._producer.pid, *(() if broker is None else (broker,))))

    def settings(self) -> dict[str, str]:
        """Of the session: Spark's own source for topics."""
        return spark_settings()

    def begin(self, query: QuerySpec) -> None:
        """From now on rows come."""
        for topic in self._topics[query.name]:
            self._tell(topic.encode())

    def end(self) -> None:
        """The queries have stopped; all that was sent is noted."""
        assert self._producer.stdin is not None  # noqa: S101
        self._producer.stdin.close()
        try:
            failed = self._producer.wait(_END_S) != 0
        except subprocess.TimeoutExpired:
            failed = True
        if failed:
            raise self._ended()

    def outcome(self, span: Span) -> KafkaRun:
        """How late rows were in the measured span."""
        behind_ms = 0
        topics = [topic for found in self._topics.values() for topic in found]
        for topic in topics:
            handed = read_handovers(self._log, topic)
            late_ms = handed.late_ms[(handed.at_ms >= span.from_ms) & (handed.at_ms < span.to_ms)]
            behind_ms = max(behind_ms, int(late_ms.max(initial=0)))
        return KafkaRun(topics=len(topics), partitions=self._partitions, producer_behind_s=behind_ms / 1000)

    def _tell(self, line: bytes) -> None:
        assert self._producer.stdin is not None  # noqa: S101
        try:
            self._producer.stdin.write(line + b"\n")
            self._producer.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def _ended(self) -> SlackwaterError:
        return SlackwaterError(
            f"the producer ended with {self._producer.poll()}; what it said is above. The broker's log is "
            f"{self._broker.status().log}."
        )

    def _kill(self) -> None:
        self._producer.kill()
        self._producer.wait()
        for pipe in (self._producer.stdin, self._producer.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
