"""The one thread that reads and frees windows in the background (Aion 4), most urgent work first.

Pre-staging comes before destaging, and that before cleaning up; but what has waited for ten seconds goes first, or
windows that are staged one after the other would keep old ones from ever being purged. Late rows are not written here:
they must be durable before Spark commits their batch, so the batch itself writes them. A job that fails is logged and
nothing more: memory is a cache, and what was to be cleaned up is found again.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

log = logging.getLogger(__name__)

PATIENCE_S: Final = 10.0


class Priority(enum.IntEnum):
    PRESTAGE = 0
    DESTAGE = 1
    CLEANUP = 2


@dataclass(frozen=True, slots=True)
class _Waiting:
    priority: Priority
    key: Hashable
    work: Callable[[], object]
    since_s: float


class InOut:
    """`prepare` runs first in the thread. Work with a key that is waiting already is not queued twice.

    ordered: False gives each piece of work a thread of its own, to see what the order is worth.
    """

    def __init__(self, name: str, prepare: Callable[[], None], *, ordered: bool = True) -> None:
        self._name = name
        self._prepare = prepare
        self._ordered = ordered
        self._waiting: list[_Waiting] = []  # in order of submission
        self._keys: set[Hashable] = set()
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
            self._waiting.append(_Waiting(priority, key, work, time.monotonic()))
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
                chosen = self._next()
                self._running += 1
            self._one(chosen.key, chosen.work)

    def _next(self) -> _Waiting:
        patient = time.monotonic() - PATIENCE_S
        chosen = min(self._waiting, key=lambda one: -1 if one.since_s < patient else one.priority)
        self._waiting.remove(chosen)
        return chosen

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
