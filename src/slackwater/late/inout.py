"""The one thread that reads and frees windows in the background (Aion 4), most urgent work first.

Pre-staging comes before destaging, and that before cleaning up. Late rows are not written here: they must be durable
before Spark commits their batch, so the batch itself writes them. A job that fails is logged and nothing more: memory
is a cache, and what was to be cleaned up is found again.
"""

from __future__ import annotations

import enum
import heapq
import logging
import threading
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

log = logging.getLogger(__name__)


class Priority(enum.IntEnum):
    PRESTAGE = 0
    DESTAGE = 1
    CLEANUP = 2


class InOut:
    """`prepare` runs first in the thread. Work with a key that is waiting already is not queued twice.

    ordered: False gives each piece of work a thread of its own, to see what the order is worth.
    """

    def __init__(self, name: str, prepare: Callable[[], None], *, ordered: bool = True) -> None:
        self._name = name
        self._prepare = prepare
        self._ordered = ordered
        self._waiting: list[tuple[int, int, Hashable, Callable[[], object]]] = []
        self._keys: set[Hashable] = set()
        self._numbers = count()
        self._running = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, priority: Priority, key: Hashable, work: Callable[[], object]) -> bool:
        with self._changed:
            if self._closed or key in self._keys:
                return False
            self._keys.add(key)
            if not self._ordered:
                self._running += 1
                threading.Thread(target=self._one, args=(key, work, True), name=self._name, daemon=True).start()
                return True
            heapq.heappush(self._waiting, (priority, next(self._numbers), key, work))
            self._changed.notify_all()
            return True

    def wait_idle(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._running, timeout_s)

    def close(self) -> None:
        """Drop what waits; what runs ends by itself."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._keys.clear()
            self._changed.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=30)

    def _work(self) -> None:
        self._prepare()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                _, _, key, work = heapq.heappop(self._waiting)
                self._running += 1
            self._one(key, work)

    def _one(self, key: Hashable, work: Callable[[], object], prepare: bool = False) -> None:
        try:
            if prepare:
                self._prepare()
            work()
        except Exception as error:
            if not self._closed:
                log.warning("%s: %s failed and is left: %s", self._name, key, error)
        finally:
            with self._changed:
                self._keys.discard(key)
                self._running -= 1
                self._changed.notify_all()
