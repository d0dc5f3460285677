"""The thread that starts dead queries again. How a query is started is the driver's business."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from slackwater.supervision.restarts import Restarts, State

if TYPE_CHECKING:
    from slackwater.core.records import Ended
    from slackwater.supervision.restarts import Supervised
    from slackwater.supervision.settings import Supervision

log = logging.getLogger("slackwater")

_LOOK_S = 0.25
_ENDING_S = 10.0
_LONGEST_ERROR = 200

Ends = Callable[[], Iterable["Ended"]]
Start = Callable[[str], str]


class Supervisor:
    """`ends` tells which runs ended since it was last asked; `start` starts a query by its id, from its checkpoint,
    and returns the key of the new run.

    Both are called on this thread only, and may raise: the others are looked after all the same.
    """

    def __init__(self, settings: Supervision, ends: Ends, start: Start) -> None:
        self._ends, self._start = ends, start
        self._restarts = Restarts(settings, random.Random().random)
        self._lock = threading.Lock()  # guards _restarts
        self._stop = threading.Event()
        self._troubled = False
        self._thread = threading.Thread(target=self._run, name="slackwater-supervisor", daemon=True)
        self._thread.start()

    def started(self, query_id: str, key: str, name: str, why_not: str | None) -> None:
        """The user started it. From any thread."""
        with self._lock:
            self._restarts.started(query_id, key, name, time.time(), why_not)

    def release(self, query: str) -> str | None:
        """A query, by id or name, that should not be started again; returns its id."""
        with self._lock:
            query_id = self._restarts.find(query)
            if query_id is not None:
                self._restarts.forget(query_id)
        return query_id

    def told(self) -> list[Supervised]:
        with self._lock:
            return self._restarts.told()

    def close(self) -> None:
        """Nothing is started after that; a start that is under way is finished."""
        self._stop.set()
        self._thread.join(_ENDING_S)

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_S):
            try:
                self._once()
                self._troubled = False
            except Exception as error:
                if not self._troubled:
                    self._troubled = True
                    log.warning("supervision stumbled and tries again (%s: %s)", type(error).__name__, _line(error))

    def _once(self) -> None:
        for end in self._ends():
            with self._lock:
                state = self._restarts.ended(end.query_id, end.key, end.error, time.time())
            if state is State.GIVEN_UP:
                log.error("%s is given up: it was started again too often, and died again", end.name)
        with self._lock:
            due = self._restarts.due(time.time())
        for query_id in due:
            if self._stop.is_set():
                return
            self._start_again(query_id)

    def _start_again(self, query_id: str) -> None:
        try:
            key = self._start(query_id)
        except Exception as error:
            with self._lock:
                state = self._restarts.failed(query_id, f"it could not be started: {_line(error)}", time.time())
            if state is not None:
                log.warning("a query could not be started again (%s: %s)", type(error).__name__, _line(error))
        else:
            with self._lock:
                self._restarts.restarted(query_id, key, time.time())


def _line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0][:_LONGEST_ERROR] if lines else type(error).__name__
