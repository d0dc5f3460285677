"""A query that is stopped in the middle of a batch: the batch ends first, quietly, and only then is its store closed.

Spark says that a stopped query is not active while the batch still runs. It interrupts the batch, whose Spark jobs
fail then. The batch must not return as if it had been done, or Spark might commit it; and what it raises should look
to Spark like the interrupt that it is, or the query counts as failed. py4j logs whatever a callback raises, with a
trace: for this one exception there is nothing to tell.

Spark knows an interrupt of a Python function by words in the text of its traceback, which it searches by a pattern that
needs the more stack the more text follows the first of these words: some thousand characters overflow it. So they
stand at the text's very end, and no other exception is chained to this one.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from slackwater.errors import SlackwaterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

_PY4J_LOGGERS: Final = ("py4j.clientserver", "py4j.java_gateway")
_INTERRUPTED: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling foreachBatch.\n: java.lang.InterruptedException"
)


class BatchStoppedError(SlackwaterError, RuntimeError):
    """A batch that was cut short because its query was stopped. Spark runs it again at the query's next start."""

    def __init__(self, query: str, batch_id: int) -> None:
        what = f"query {query} was stopped in batch {batch_id}; it runs again at the next start."
        super().__init__(f"{what} {_INTERRUPTED}")


class _WithoutStops(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], BatchStoppedError))


_WITHOUT_STOPS: Final = _WithoutStops()


def keep_stops_quiet() -> None:
    """For all queries of this process. Doing it again does nothing."""
    for name in _PY4J_LOGGERS:
        logging.getLogger(name).addFilter(_WITHOUT_STOPS)


class Batches:
    """Counts the batches that run. `stopping` says whether their query has been stopped."""

    def __init__(self, name: str, stopping: Callable[[], bool]) -> None:
        self._name = name
        self._stopping = stopping
        self._running = 0
        self._over = False
        self._changed = threading.Condition()

    @contextmanager
    def running(self, batch_id: int) -> Iterator[None]:
        """Around a batch. What it raises is its own, unless the query is being stopped."""
        with self._changed:
            over = self._over
            self._running += not over
        if over:
            raise self._stopped(batch_id, "it began after that")
        try:
            yield
        except Exception as error:
            if not self._stopping():
                raise
            raise self._stopped(batch_id, f"{type(error).__name__}: {error}") from None
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def end(self, timeout_s: float) -> bool:
        """No batch from now on, and none that runs; False: one still does after so long."""
        with self._changed:
            self._over = True
            return self._changed.wait_for(lambda: not self._running, timeout_s)

    def _stopped(self, batch_id: int, why: str) -> BatchStoppedError:
        log.info("batch %d of %s was cut short when the query was stopped: %s", batch_id, self._name, why)
        return BatchStoppedError(self._name, batch_id)
