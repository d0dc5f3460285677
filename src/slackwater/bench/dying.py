"""A query that dies on order, again and again, and is brought back by supervision.

Runs beside the measured queries. Every result is kept by batch id, as an idempotent sink would: a batch that is run
again after a death must bring the same rows.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slackwater.supervision.settings import Alarms, Supervision

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from slackwater import Handle
    from slackwater.workloads.base import Payload, QuerySpec, Workload

# Waits of 1, 2, 4, 8, 8 … seconds; and an alarm is over soon enough to be raised anew by the next death.
SUPERVISION: Final = Supervision(base_s=1.0, factor=2.0, cap_s=8.0, jitter=0.1, limit=1000, span_s=600.0, well_s=600.0)
ALARMS: Final = Alarms(log=False, clear_s=2.0)
_LOOK_S: Final = 0.05
_PATIENCE_S: Final = 60.0


class OrderedToDieError(RuntimeError):
    """Raised in a batch, on order."""


@dataclass
class Death:
    """Times in seconds after it; None: it did not happen while somebody looked."""

    wall_ts: float
    alarm_s: float | None = None
    started_s: float | None = None
    batch_s: float | None = None


class DyingQuery:
    def __init__(
        self, spark: SparkSession, workload: Workload, spec: QuerySpec, checkpoint: Path, handle: Handle
    ) -> None:
        self._workload, self._spec, self._checkpoint, self._handle = workload, spec, checkpoint, handle
        self._deaths: list[Death] = []
        self._kept: dict[int, list[tuple[int, Payload]]] = {}
        self._batches = 0
        self._order = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        frame = workload.build(spark, spec)
        self._payload = [column for column in frame.columns if column not in ("window_start", "batch_ts")]
        writer = frame.writeStream.foreachBatch(self._take).queryName(spec.name).outputMode("append")
        writer.option("checkpointLocation", str(checkpoint)).start()

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        rows = frame.selectExpr("unix_millis(window_start)", *self._payload).collect()
        self._kept[batch_id] = [(row[0], tuple(row[1:])) for row in rows]
        if self._order.is_set():
            self._order.clear()
            self._deaths.append(Death(time.time()))
            raise OrderedToDieError(f"in batch {batch_id}, on order")
        self._batches += 1

    @property
    def batches(self) -> int:
        return self._batches

    def begin(self, every_s: float) -> None:
        """From now on it dies every so many seconds, once it is back and the alarm is over."""
        self._thread = threading.Thread(target=self._kill, args=(every_s,), name="killer", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """No more deaths; it may come back from the last one, then it is stopped."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2 * _PATIENCE_S)
        for one in self._handle.supervised():
            if one.name == self._spec.name and one.query is not None:
                self._handle.release(one.query_id)
                one.query.stop()

    def outcome(self) -> dict[str, Any]:
        """What it did, and how its results compare with the oracle's."""
        emitted: dict[int, list[Payload]] = {}
        batches_of: dict[int, set[int]] = {}
        for batch_id, rows in self._kept.items():
            for start_ms, payload in rows:
                emitted.setdefault(start_ms, []).append(payload)
                batches_of.setdefault(start_ms, set()).add(batch_id)
        oracle = self._workload.oracle(self._spec, self._checkpoint)
        twice = [start_ms for start_ms, batches in batches_of.items() if len(batches) > 1]
        wrong = [start_ms for start_ms, rows in emitted.items() if sorted(rows) != oracle.expected(start_ms)]
        due = []
        if emitted:
            offset_ms = self._spec.window_ms + self._spec.delay_ms
            due = oracle.windows_due(min(emitted) + offset_ms, max(emitted) + offset_ms + 1)
        missing = [window.start_ms for window in due if window.start_ms not in emitted]
        return {
            "deaths": len(self._deaths),
            "alarm_s": [death.alarm_s for death in self._deaths],
            "started_again_s": [death.started_s for death in self._deaths],
            "batch_again_s": [death.batch_s for death in self._deaths],
            "windows": len(emitted),
            "windows_wrong": len({*wrong, *twice}),
            "windows_missing": len(missing),
        }

    def _kill(self, every_s: float) -> None:
        while not self._stop.wait(every_s):
            before = len(self._deaths)
            self._order.set()
            if not self._until(lambda before=before: len(self._deaths) > before):
                self._order.clear()
                return
            self._follow(self._deaths[-1])

    def _follow(self, death: Death) -> None:
        """Until it is back and its alarm is over."""
        restarts, batches = self._restarts(), self._batches

        def over() -> bool:
            after_s = round(time.time() - death.wall_ts, 3)
            alarmed = any(alarm.query == self._spec.name for alarm in self._handle.alarms().active)
            if alarmed and death.alarm_s is None:
                death.alarm_s = after_s
            if death.started_s is None and self._restarts() > restarts:
                death.started_s = after_s
            if death.batch_s is None and self._batches > batches:
                death.batch_s = after_s
            return death.batch_s is not None and death.alarm_s is not None and not alarmed

        self._until(over)

    def _until(self, condition: Any) -> bool:
        give_up = time.monotonic() + _PATIENCE_S
        while time.monotonic() < give_up:
            if condition():
                return True
            time.sleep(_LOOK_S)
        return False

    def _restarts(self) -> int:
        return sum(one.restarts for one in self._handle.supervised() if one.name == self._spec.name)
