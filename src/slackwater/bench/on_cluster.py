"""A run's own standalone cluster: its settings for Spark, a worker that is killed and comes back, what was seen."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from slackwater.bench.model import CapacityChange, ClusterEvent, ClusterRun
from slackwater.cluster import ClusterPlan, Standalone
from slackwater.errors import SlackwaterError

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from slackwater.bench.model import OnCluster

_KILLED: Final = 0
_LOOK_EVERY_S: Final = 0.2
_JOIN_S: Final = 180.0


class BenchCluster:
    """Started anew for every run, below this process: its processor time counts, and nothing outlives the run."""

    def __init__(self, wanted: OnCluster, folder: Path, cleanup: ExitStack) -> None:
        self.wanted = wanted
        plan = ClusterPlan(wanted.workers, wanted.cores_per_worker, wanted.memory)
        self._cluster = cleanup.enter_context(Standalone(folder, plan))
        self.master = self._cluster.url
        self._events: list[ClusterEvent] = []
        self._capacity: list[CapacityChange] = []
        self._trouble: Exception | None = None
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def settings(self, collector_option: str) -> dict[str, str]:
        """One executor a worker, and no query before all are there."""
        return {
            "spark.cores.max": str(self.wanted.cores),
            "spark.executor.memory": self.wanted.memory,
            "spark.executor.extraJavaOptions": collector_option,
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        }

    def begin(self, handle: Any) -> None:
        """The measured span begins: watch what the scheduler sees, and kill the worker when its time has come."""
        self._thread = threading.Thread(target=self._run, args=(handle,), name="cluster", daemon=True)
        self._thread.start()

    def end(self) -> ClusterRun:
        """The queries are drained: what happened to the cluster, and what the scheduler saw of it."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)
        if self._trouble is not None:
            raise SlackwaterError(f"the worker could not be killed or started again: {self._trouble}")
        wanted = self.wanted
        return ClusterRun(
            master=self.master,
            workers=wanted.workers,
            cores_per_worker=wanted.cores_per_worker,
            memory=wanted.memory,
            events=self._events,
            capacity=self._capacity,
        )

    def _run(self, handle: Any) -> None:
        try:
            self._watch(handle)
        except Exception as error:
            self._trouble = error

    def _watch(self, handle: Any) -> None:
        began = time.monotonic()
        kill_s = self.wanted.kill_worker_after_s
        back_s = None if kill_s is None else kill_s + self.wanted.back_after_s
        revival: threading.Thread | None = None
        # A worker that was killed is brought back, however short the span.
        while not self._over.is_set() or kill_s is not None or back_s is not None:
            at_s = round(time.monotonic() - began, 1)
            self._look(handle, at_s)
            if kill_s is not None and at_s >= kill_s:
                self._cluster.kill_worker(_KILLED)
                self._events.append(ClusterEvent(at_s, f"worker {_KILLED} killed"))
                kill_s = None
            elif kill_s is None and back_s is not None and at_s >= back_s:
                revival = threading.Thread(target=self._revive, args=(began,), name="revival", daemon=True)
                revival.start()
                back_s = None
            time.sleep(_LOOK_EVERY_S)
        if revival is not None:
            revival.join(_JOIN_S)

    def _revive(self, began: float) -> None:
        try:
            self._cluster.revive()
        except Exception as error:
            self._trouble = error
        else:
            self._events.append(ClusterEvent(round(time.monotonic() - began, 1), f"worker {_KILLED} registered again"))

    def _look(self, handle: Any, at_s: float) -> None:
        if handle is None:
            return
        now = handle.capacity
        if not self._capacity or (self._capacity[-1].cores, self._capacity[-1].lanes) != (now.cores, now.lanes):
            self._capacity.append(CapacityChange(at_s, now.cores, now.lanes))
