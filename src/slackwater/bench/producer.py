"""Fills topics at a set rate, in a process of its own: `python -m slackwater.bench.producer`.

The first line on stdin is the plan; each further line names a topic to begin with, and the end of stdin ends it. It
follows the wall clock alone and knows of no scheduler. Its log tells for each topic when it began, and, about 40 times
a second, up to which time rows had been appended by the broker, and when: what an oracle needs.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from slackwater.bench.model import Network  # noqa: TC001 - msgspec reads the annotations
from slackwater.errors import ConfigurationError, KafkaError
from slackwater.kafka.topics import client
from slackwater.sim.delays import Uniform, Zipf
from slackwater.workloads.arrivals import Began, Handed, Late, Schedule
from slackwater.workloads.base import QuerySpec  # noqa: TC001 - msgspec reads the annotations
from slackwater.workloads.on_topics import stream_seed, topic_form, topics_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from slackwater.sim.delays import Delays
    from slackwater.workloads.arrivals import Numbers

READY: Final = "ready"
_TICK_S: Final = 0.025
_AHEAD_MS: Final = 600
_FLUSH_S: Final = 30.0


@dataclass(frozen=True)
class ProducerPlan:
    """Which queries' topics it fills; `workload` says what a row looks like."""

    workload: str
    servers: str
    queries: list[QuerySpec]
    log: str
    network: Network = "none"
    longest_s: float = 0.5
    late: Late = field(default_factory=Late)
    partitions: int = 1


def delays_of(network: Network, longest_s: float) -> Delays | None:
    """Klink's laws of network delays, by name."""
    if longest_s < 0:
        raise ConfigurationError(f"a network delay cannot be less than 0 s; got {longest_s:g}.")
    laws: dict[Network, Delays | None] = {
        "none": None,
        "uniform": Uniform(longest_s=longest_s),
        "zipf": Zipf(longest_s=longest_s),
    }
    if network not in laws:
        raise ConfigurationError(f"the network's delays are {', '.join(laws)}; got {network!r}.")
    return laws[network]


class TopicFeed:
    """One topic's rows in the order in which they are sent."""

    def __init__(self, schedule: Schedule, bodies: Callable[[Numbers, Numbers], list[bytes]]) -> None:
        self.schedule = schedule
        self._bodies = bodies
        self._next_second = 0
        self._send_ms: Numbers = np.array([], dtype=np.int64)
        self._rows: list[tuple[int, bytes]] = []
        self._at = 0

    def due(self, now_ms: int) -> list[tuple[int, bytes]]:
        """(number, body) of rows that are to be sent by now and were not given before."""
        while self.schedule.creation_ms + 1000 * self._next_second <= now_ms:
            self.prepare()
        end = int(np.searchsorted(self._send_ms, now_ms, side="right"))
        found = self._rows[self._at : end]
        self._at = max(self._at, end)
        return found

    def prepare_ahead(self, now_ms: int) -> None:
        """Make the next second's rows a while before they are due."""
        if self.schedule.creation_ms + 1000 * self._next_second <= now_ms + _AHEAD_MS:
            self.prepare()

    def prepare(self) -> None:
        second = self.schedule.second(self._next_second)
        self._next_second += 1
        made = self._bodies(second.numbers, second.event_ms)
        waiting = [*self._rows[self._at :], *zip(second.numbers.tolist(), made, strict=True)]
        send_ms = np.concatenate([self._send_ms[self._at :], second.send_ms])
        order = np.argsort(send_ms, kind="stable")
        self._send_ms = send_ms[order]
        self._rows = [waiting[place] for place in order.tolist()]
        self._at = 0


class Producing:
    """Sends what is due, tick by tick, and notes what has arrived."""

    def __init__(self, plan: ProducerPlan) -> None:
        self.plan = plan
        self._form = topic_form(plan.workload)
        self._delays = delays_of(plan.network, plan.longest_s)
        self._streams = {
            topic: (query, stream)
            for query in plan.queries
            for stream, topic in enumerate(topics_of(self._form, query))
        }
        self._feeds: dict[str, TopicFeed] = {}
        self._log = Path(plan.log).open("wb", buffering=0)  # noqa: SIM115 - open as long as the process is
        self._trouble: list[str] = []
        self.rows = 0
        self._client = client().Producer(
            {
                "bootstrap.servers": plan.servers,
                "linger.ms": 5,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 2_000_000,
                "queue.buffering.max.kbytes": 1_000_000,
            }
        )

    @property
    def topics(self) -> list[str]:
        """All that are in the plan."""
        return list(self._streams)

    def begin(self, topic: str) -> None:
        """Rows of this topic come from now on."""
        if topic not in self._streams:
            raise ConfigurationError(f"topic {topic!r} is not in the plan, which has {', '.join(self._streams)}.")
        query, stream = self._streams[topic]
        schedule = Schedule(self._form.rate(query), stream_seed(query, stream), _now_ms(), self._delays, self.plan.late)
        bodies = self._form.bodies
        self._feeds[topic] = TopicFeed(schedule, lambda numbers, event_ms: bodies(numbers, event_ms, query))
        self._note(Began(topic, schedule.creation_ms))

    def tick(self) -> None:
        if self._trouble:
            raise KafkaError(f"rows did not reach the broker: {self._trouble[0]}")
        for topic, feed in self._feeds.items():
            now_ms = _now_ms()
            rows = feed.due(now_ms)
            if rows:
                self._send(topic, rows, now_ms)
            self._client.poll(0)
        for feed in self._feeds.values():
            feed.prepare_ahead(_now_ms())
            self._client.poll(0)

    def finish(self) -> None:
        left = self._client.flush(_FLUSH_S)
        if left or self._trouble:
            raise KafkaError(f"{left} rows were not taken by the broker. {' '.join(self._trouble[:1])}")
        self._log.close()

    def _send(self, topic: str, rows: list[tuple[int, bytes]], to_ms: int) -> None:
        partitions = self.plan.partitions
        self.rows += len(rows)
        last = {number % partitions: place for place, (number, _) in enumerate(rows)}
        waiting = _Waiting(len(last), topic, to_ms, self._note, self._trouble)
        # Only the last row of each partition is asked when it was appended: all before it were there by then.
        messages: list[dict[str, Any]] = [{"value": body, "partition": number % partitions} for number, body in rows]
        for place in last.values():
            messages[place]["callback"] = waiting.delivered
        while messages:
            sent = self._client.produce_batch(topic, messages)
            if sent == len(messages):
                break
            # Its queue is full: what it did not take is offered again.
            messages = [message for message in messages if message.pop("_error", None) is not None]
            self._client.poll(0.01)

    def _note(self, line: Began | Handed) -> None:
        self._log.write(msgspec.json.encode(line) + b"\n")


class _Waiting:
    """The last rows of one tick: when the broker has appended all of them, a line of the log is due."""

    def __init__(self, count: int, topic: str, to_ms: int, note: Callable[[Handed], None], trouble: list[str]) -> None:
        self._left = count
        self._topic = topic
        self._to_ms = to_ms
        self._at_ms = 0
        self._note = note
        self._trouble = trouble

    def delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._trouble.append(str(error))
            return
        self._at_ms = max(self._at_ms, message.timestamp()[1])
        self._left -= 1
        if self._left == 0:
            self._note(Handed(self._topic, self._to_ms, self._at_ms))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def run(producing: Producing, begins: SimpleQueue[str | None]) -> None:
    """Begin with topics as they are named, and send until None comes; then all that was sent is noted."""
    while True:
        began = time.monotonic()
        with suppress(Empty):
            while True:
                topic = begins.get_nowait()
                if topic is None:
                    producing.finish()
                    return
                producing.begin(topic)
        producing.tick()
        time.sleep(max(0.0, began + _TICK_S - time.monotonic()))


def main() -> int:
    plan = msgspec.json.decode(sys.stdin.buffer.readline(), type=ProducerPlan)
    begins: SimpleQueue[str | None] = SimpleQueue()

    def listen() -> None:
        for line in sys.stdin.buffer:
            begins.put(line.decode().strip())
        begins.put(None)

    try:
        producing = Producing(plan)
        print(READY, flush=True)
        threading.Thread(target=listen, name="stdin", daemon=True).start()
        run(producing, begins)
    except (ConfigurationError, KafkaError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
