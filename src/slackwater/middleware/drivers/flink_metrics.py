"""What Flink's metrics say of a vertex, in the words of `metrics.host`.

Rates come from counters over the last seconds: Flink's own are means over a minute. Queues are told in buffers; how
many rows a buffer carries is measured. A source's queue is what its connector says is pending (Kafka's does); where it
says nothing, the queue is not known and left out.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slackwater.middleware.drivers.flink_rest import FlinkRest
    from slackwater.translators.identity import ThreadId

OFFERS: Final = frozenset({"queue-rows", "rows-per-s", "rows-out-per-s", "busy-share"})
HORIZON_S: Final = 10.0
NAMES_HOLD_S: Final = 30.0

_ROWS_IN: Final = "numRecordsIn"
_ROWS_OUT: Final = "numRecordsOut"
_BUSY: Final = "busyTimeMsPerSecond"
_BUFFERS_IN: Final = ("numBuffersInLocal", "numBuffersInRemote")
# The second is the name before Flink 2.
_QUEUE: Final = ("Shuffle.Netty.Input.Buffers.inputQueueLength", "buffers.inputQueueLength")
_PENDING: Final = ".pendingRecords"
_OF_SOURCE: Final = "Source__"


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters at one moment."""

    wall_ts: float
    rows: float
    rows_out: float
    buffers: float
    cpu_s: Mapping[ThreadId, float]


@dataclass(slots=True)
class VertexMetrics:
    """One vertex over time."""

    job: str
    vertex: str
    is_source: bool
    names: frozenset[str] = frozenset()
    asked_wall_ts: float = -math.inf
    history: deque[Counts] = field(default_factory=deque)

    def read(self, rest: FlinkRest, wall_ts: float, cpu_s: Mapping[ThreadId, float]) -> dict[str, float] | None:
        """The values now; fewer while it starts. None when the job is gone."""
        if not {_ROWS_OUT, _BUSY} <= self.names or wall_ts - self.asked_wall_ts > NAMES_HOLD_S:
            there = rest.metric_names(self.job, self.vertex)
            if there is None:
                return None
            self.names = frozenset(filter(self._is_wanted, there))
            self.asked_wall_ts = wall_ts
        found = rest.metrics(self.job, self.vertex, sorted(self.names))
        if found is None:
            return None
        if not found and self.names:
            # One of the names is unknown by now, and Flink answers none of them.
            self.names = frozenset()
        return self.values(found, wall_ts, cpu_s)

    def values(self, found: Mapping[str, float], wall_ts: float, cpu_s: Mapping[ThreadId, float]) -> dict[str, float]:
        """What counters and gauges say, with what they said in the last seconds."""
        if _ROWS_OUT not in found:
            return {}
        now = Counts(
            wall_ts,
            self._rows(found),
            found[_ROWS_OUT],
            sum(found.get(name, 0.0) for name in _BUFFERS_IN),
            cpu_s,
        )
        before = self._before(now)
        values = {}
        if before is not None:
            span_s = wall_ts - before.wall_ts
            values["rows-per-s"] = (now.rows - before.rows) / span_s
            values["rows-out-per-s"] = (now.rows_out - before.rows_out) / span_s
        busy = self._busy_share(found, now, before)
        if busy is not None:
            values["busy-share"] = busy
        queue = self._queue_rows(found, now, before)
        if queue is not None:
            values["queue-rows"] = queue
        return values

    def _is_wanted(self, name: str) -> bool:
        if name in (_ROWS_IN, _ROWS_OUT, _BUSY, *_BUFFERS_IN, *_QUEUE):
            return True
        return self.is_source and (name.endswith(_PENDING) or self._is_source_output(name))

    def _is_source_output(self, name: str) -> bool:
        return name.startswith(_OF_SOURCE) and name.endswith("." + _ROWS_OUT)

    def _rows(self, found: Mapping[str, float]) -> float:
        """A source takes nothing from other vertices: what it reads is what its first operator puts out."""
        if not self.is_source:
            return found.get(_ROWS_IN, 0.0)
        return max((value for name, value in found.items() if self._is_source_output(name)), default=found[_ROWS_OUT])

    def _before(self, now: Counts) -> Counts | None:
        """The oldest counts within the horizon; None at first, and after a restart, when counters begin again."""
        if self.history and (now.rows < self.history[-1].rows or now.rows_out < self.history[-1].rows_out):
            self.history.clear()
        while len(self.history) > 1 and now.wall_ts - self.history[1].wall_ts >= HORIZON_S:
            self.history.popleft()
        before = self.history[0] if self.history and self.history[0].wall_ts < now.wall_ts else None
        self.history.append(now)
        return before

    def _busy_share(self, found: Mapping[str, float], now: Counts, before: Counts | None) -> float | None:
        busy_ms = found.get(_BUSY, math.nan)
        if not math.isnan(busy_ms):
            return busy_ms / 1000.0
        # Sources of the old kind do not tell; their threads' CPU time does.
        if before is None:
            return None
        both = now.cpu_s.keys() & before.cpu_s.keys()
        if not both:
            return None
        return math.fsum(now.cpu_s[thread] - before.cpu_s[thread] for thread in both) / (now.wall_ts - before.wall_ts)

    def _queue_rows(self, found: Mapping[str, float], now: Counts, before: Counts | None) -> float | None:
        if self.is_source:
            pending = [value for name, value in found.items() if name.endswith(_PENDING) and not math.isnan(value)]
            return max(math.fsum(pending), 0.0) if pending else None
        lengths = [found[name] for name in _QUEUE if name in found]
        if not lengths:
            return None
        rows, buffers = now.rows, now.buffers
        if before is not None and now.buffers > before.buffers:
            rows, buffers = now.rows - before.rows, now.buffers - before.buffers
        return lengths[0] * (rows / buffers if buffers > 0 else 1.0)
