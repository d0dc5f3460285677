"""Starting dead queries again: how each query was started is remembered while an application is supervised.

`start` and `toTable` of PySpark's DataStreamWriter are wrapped until detach. Calling them again on the same writer,
with the same arguments, starts the query from its checkpoint: with the same plan, sink and function of `foreachBatch`.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from slackwater.core.records import Ended, Log
from slackwater.drivers.spark.bridge import first_line
from slackwater.drivers.spark.failures import in_a_line
from slackwater.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from slackwater.core.records import Records
    from slackwater.supervision.restarts import Supervised
    from slackwater.supervision.settings import Supervision

log = logging.getLogger("slackwater")

_METHODS = ("start", "toTable")
_ASK_SPARK_S = 5.0
_MOST_REMEMBERED = 2000
_TEMPORARY = re.compile(r"/temporary-[0-9a-f-]{36}/?$")
_NAMELESS = re.compile(r"/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/?$")
_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
_POOL = "spark.scheduler.pool"

StartAgain = Callable[[], Any]

_instead: ContextVar[StartAgain | None] = ContextVar("slackwater_start_again", default=None)


@contextmanager
def started_again_by(again: StartAgain) -> Iterator[None]:
    """Queries that are started inside the block are started again by this function, which returns the new query.

    For those who do more than start a writer.
    """
    token = _instead.set(again)
    try:
        yield
    finally:
        _instead.reset(token)


@dataclass(slots=True)
class _Remembered:
    key: str
    query: Any
    again: StartAgain
    pool: str | None
    over: bool = False


class RestartingSupervisor:
    """Supervision of a Spark application, from attach to detach."""

    def __init__(self, spark: Any, settings: Supervision, records: Records) -> None:
        self._spark = spark
        self._records = records
        self._read = records.ended.added
        self._asked = time.monotonic()
        self._remembered: dict[str, _Remembered] = {}
        self._restarting: dict[int, str] = {}  # by thread: the query that supervision starts there
        self._lock = threading.Lock()  # guards the two above
        self.found: Log[Ended] = Log(500)
        """Ends that Spark told when it was asked, in case the scheduler does not hear of them."""
        self._supervisor = Supervisor(settings, self._ends, self._start)
        self._wrapping = _Wrapping(self._keep)

    def told(self) -> list[Supervised]:
        return self._supervisor.told()

    def query(self, query_id: str) -> Any:
        """The query as it runs now, or ran last."""
        with self._lock:
            kept = self._remembered.get(query_id)
        return kept.query if kept is not None else None

    def release(self, query: str) -> bool:
        """Do not start this query again. False: it is not supervised."""
        query_id = self._supervisor.release(query)
        with self._lock:
            return self._remembered.pop(query_id or "", None) is not None

    def close(self) -> None:
        self._wrapping.undo()
        self._supervisor.close()

    # ---- remembering ----------------------------------------------------------------------------------------------

    def _keep(self, query: Any, again: StartAgain) -> None:
        """On the thread that started it; must neither raise nor take long."""
        try:
            query_id, key = str(query.id), str(query.runId)
            pool = self._spark.sparkContext.getLocalProperty(_POOL)
            with self._lock:
                restarts = self._restarting.get(threading.get_ident()) == query_id
                self._remembered[query_id] = _Remembered(key, query, again, pool)
                self._make_room()
            if not restarts:
                self._supervisor.started(query_id, key, query.name or query_id, _why_not(self._spark, query))
        except Exception as error:
            log.warning("a query that was started is not supervised (%s: %s)", type(error).__name__, first_line(error))

    def _make_room(self) -> None:
        if len(self._remembered) > _MOST_REMEMBERED:
            for query_id in [query_id for query_id, kept in self._remembered.items() if kept.over]:
                del self._remembered[query_id]

    # ---- on the supervisor's thread -------------------------------------------------------------------------------

    def _ends(self) -> list[Ended]:
        if is_stopped(self._spark):
            return []
        added = self._records.ended.added
        ends, self._read = self._records.ended.since(self._read, added), added
        if time.monotonic() - self._asked >= _ASK_SPARK_S:
            self._asked = time.monotonic()
            ends += self._asked_spark()
        for end in ends:
            self._mark_over(end)
        return ends

    def _mark_over(self, end: Ended) -> None:
        with self._lock:
            kept = self._remembered.get(end.query_id)
            if kept is not None and kept.key == end.key:
                kept.over = True
                if end.error is None:
                    del self._remembered[end.query_id]

    def _asked_spark(self) -> list[Ended]:
        """The scheduler tells at once what ends; this is for when it is dead."""
        with self._lock:
            running = [(query_id, kept) for query_id, kept in self._remembered.items() if not kept.over]
        found = []
        for query_id, kept in running:
            if not kept.query.isActive:
                error = kept.query.exception()
                why = in_a_line(str(error)) if error is not None else None
                found.append(Ended(kept.key, kept.query.name or query_id, query_id, time.time(), why))
        for end in found:
            self.found.add(end)
        return found

    def _start(self, query_id: str) -> str:
        with self._lock:
            kept = self._remembered[query_id]
            self._restarting[threading.get_ident()] = query_id
        try:
            # A stream's thread takes the pool over from whoever starts it.
            self._spark.sparkContext.setLocalProperty(_POOL, kept.pool)
            query = kept.again()
        finally:
            with self._lock:
                self._restarting.clear()
        key = str(query.runId)
        with self._lock:
            self._remembered[query_id] = _Remembered(key, query, kept.again, kept.pool)
        log.info("%s was started again from its checkpoint", query.name or query_id)
        return key


def is_stopped(spark: Any) -> bool:
    """The user stopped the session; asks nobody."""
    return spark.sparkContext._jsc is None  # noqa: SLF001 - what PySpark itself goes by


def _why_not(spark: Any, query: Any) -> str | None:
    """Why it cannot be started again from where it was; None: it can."""
    execution = query._jsq.streamingQuery()  # noqa: SLF001 - PySpark has no public door to where a query keeps its progress
    root = str(execution.resolvedCheckpointRoot())
    if _TEMPORARY.search(root):
        return 'it has no checkpoint of its own. Set .option("checkpointLocation", …) to have it started again.'
    if query.name is None and _NAMELESS.search(root):
        common = spark.conf.get(_CHECKPOINTS, None)
        if common is not None:
            return f"{_CHECKPOINTS} gives it a new checkpoint at each start, since it has no name. Set .queryName(…)."
    return None


class _Wrapping:
    """The methods that start queries, wrapped until `undo`; whoever wrapped them after us keeps what they have."""

    def __init__(self, keep: Callable[[Any, StartAgain], None]) -> None:
        from pyspark.sql.streaming.readwriter import DataStreamWriter  # noqa: PLC0415 - Spark is loaded on use

        self._writer = DataStreamWriter
        self._keep = keep
        self._active = True
        self._wrapped: dict[str, tuple[Any, Any]] = {}
        for name in _METHODS:
            original = getattr(DataStreamWriter, name)
            wrapped = self._wrap(original)
            setattr(DataStreamWriter, name, wrapped)
            self._wrapped[name] = original, wrapped

    def undo(self) -> None:
        self._active = False
        for name, (original, wrapped) in self._wrapped.items():
            if getattr(self._writer, name) is wrapped:
                setattr(self._writer, name, original)

    def _wrap(self, original: Any) -> Any:
        @wraps(original)
        def starting(writer: Any, *arguments: Any, **options: Any) -> Any:
            query = original(writer, *arguments, **options)
            if self._active:
                again = _instead.get() or (lambda: original(writer, *arguments, **options))
                self._keep(query, again)
            return query

        return starting
