"""A thread that hands what is new to one consumer, every second: nobody else waits for it, and it harms nobody."""

from __future__ import annotations

import logging
import threading
from typing import Final, Protocol

log = logging.getLogger("slackwater")

_PERIOD_S: Final = 1.0
_ENDING_S: Final = 3.0


class Consumer(Protocol):
    def take(self) -> None:
        """Take what is new since the last time. What it takes too late is gone: the records are bounded."""


class Follower:
    """One that raises is told of once and tried again; one that hangs holds this thread and nothing else."""

    def __init__(self, name: str, consumer: Consumer, period_s: float = _PERIOD_S) -> None:
        self._name = name
        self._consumer = consumer
        self._period_s = period_s
        self._over = threading.Event()
        self._troubled = False
        self._thread = threading.Thread(target=self._run, name=f"slackwater-{name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Once more, for what came last, then no more. Doing it again does nothing."""
        self._over.set()
        self._thread.join(_ENDING_S)

    def _run(self) -> None:
        while not self._over.wait(self._period_s):
            self._take()
        self._take()

    def _take(self) -> None:
        try:
            self._consumer.take()
        except Exception as error:
            if not self._troubled:
                self._troubled = True
                log.warning(
                    "%s is not told all that happens (%s: %s); streams are not affected.",
                    self._name,
                    type(error).__name__,
                    error,
                )
