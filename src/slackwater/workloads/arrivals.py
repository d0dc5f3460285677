"""When a generator hands a row over, by seed, and when it was there to be read, by the generator's own log.

Row `k` of second `s` has the event time `creation + s + round(k · 1000/rate) ms`, as on Spark's rate source, so that
the same oracles know which rows a window holds. It is sent after a network delay; a share of rows may be late on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
import numpy as np

from slackwater.errors import ConfigurationError
from slackwater.workloads.rate_source import row_times_ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]


class Delays(Protocol):
    """A law of network delays; `sim/delays.py` has Klink's two."""

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """`count` delays in seconds."""
        ...


@dataclass(frozen=True)
class Late:
    """A share of rows is late on top of the network's delay, by up to `longest_s`, any time alike."""

    share: float = 0.0
    longest_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConfigurationError(f"the share of late rows lies between 0 and 1; got {self.share:g}.")
        if self.longest_s < 0:
            raise ConfigurationError(f"rows cannot be late by less than 0 s; got {self.longest_s:g}.")


class Second(NamedTuple):
    """One second's rows, in the order of their event times."""

    numbers: Numbers
    event_ms: Numbers
    send_ms: Numbers


@dataclass(frozen=True)
class Schedule:
    """What a generator does with one stream; delays None: none."""

    rate: int
    seed: int
    creation_ms: int
    delays: Delays | None = None
    late: Late = Late()

    def second(self, index: int) -> Second:
        numbers = np.arange(index * self.rate, (index + 1) * self.rate, dtype=np.int64)
        event_ms = row_times_ms(numbers, self.rate, self.creation_ms)
        rng = np.random.default_rng((self.seed, index))
        wait_s = np.zeros(self.rate) if self.delays is None else self.delays.draw(rng, self.rate)
        if self.late.share > 0:
            wait_s = wait_s + (rng.random(self.rate) < self.late.share) * rng.uniform(0, self.late.longest_s, self.rate)
        return Second(numbers, event_ms, event_ms + np.rint(1000 * wait_s).astype(np.int64))


class Handed(msgspec.Struct, frozen=True):
    """A line of the generator's log: all rows to be sent by `to_ms` were there to be read at `at_ms`."""

    topic: str
    to_ms: int
    at_ms: int


class Began(msgspec.Struct, frozen=True):
    """The log's first line of a topic: its creation time."""

    topic: str
    creation_ms: int


@dataclass(frozen=True)
class Handovers:
    """What the log says of one topic."""

    creation_ms: int
    to_ms: Numbers
    at_ms: Numbers

    @property
    def late_ms(self) -> Numbers:
        """How late rows were at each line, at most: from when the first of them was due until all were there."""
        due_ms = np.concatenate([[self.creation_ms], self.to_ms[:-1]]) if self.to_ms.size else self.to_ms
        late: Numbers = self.at_ms - due_ms
        return late

    def available_ms(self, send_ms: int) -> int:
        """When a row of this time was there; for one that never came, its own time."""
        place = int(np.searchsorted(self.to_ms, send_ms))
        return int(self.at_ms[place]) if place < self.at_ms.size else send_ms


def read_handovers(log: Path, topic: str) -> Handovers:
    lines = log.read_bytes().splitlines()
    began = [line for line in lines if b'"creation_ms"' in line]
    found = [one for line in began if (one := msgspec.json.decode(line, type=Began)).topic == topic]
    if not found:
        raise ConfigurationError(f"{log} says nothing of the topic {topic!r}: its generator never began.")
    wanted = f'"topic":"{topic}"'.encode()
    handed = [msgspec.json.decode(line, type=Handed) for line in lines if wanted in line and b'"to_ms"' in line]
    return Handovers(
        creation_ms=found[0].creation_ms,
        to_ms=np.array([one.to_ms for one in handed], dtype=np.int64),
        at_ms=np.array([one.at_ms for one in handed], dtype=np.int64),
    )


def first_handed_ms(
    deadline_ms: int,
    schedule: Schedule,
    handovers: Handovers,
    kept: Callable[[Numbers], NDArray[np.bool_]],
) -> int:
    """When the first row at or after the deadline that is kept was there: only those move the watermark."""
    index = max(0, (deadline_ms - schedule.creation_ms) // 1000)
    first: int | None = None
    # A row is never sent before its event time, so seconds that begin later than the best one found cannot better it.
    while first is None or schedule.creation_ms + 1000 * index < first:
        second = schedule.second(index)
        due = second.send_ms[(second.event_ms >= deadline_ms) & kept(second.numbers)]
        if due.size:
            first = int(due.min()) if first is None else min(first, int(due.min()))
        index += 1
    return handovers.available_ms(first)
