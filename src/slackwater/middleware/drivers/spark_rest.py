"""Spark applications that know nothing of Slackwater, through Spark's own REST interface and metrics servlet.

Spark tells of streaming queries only what its SQL page shows: each micro-batch is an execution whose description names
the query, with its duration and the rows that its scans read. From these follow rate, cost and how long the oldest row
has waited; the queue is estimated (Little's law). With `spark.sql.streaming.metricsEnabled` state is known as well.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from slackwater.endpoint.asking import Asker
from slackwater.errors import UnreachableError
from slackwater.middleware.host import FRESH_S, Host
from slackwater.middleware.model import Application, Operator
from slackwater.middleware.sockets import listener
from slackwater.middleware.spark_processes import units_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slackwater.middleware.model import Unit
    from slackwater.translators.identity import ProcessId

_API = "/api/v1/applications"
_PAGE = 60
_BATCHES_KEPT = 20
_SILENT_S = 30.0
_SILENT_ROUNDS = 5
_BATCH = re.compile(
    r"\A(?P<name>.*?)(?:\n|<br/>)id = (?P<id>\S+?)(?:\n|<br/>)runId = (?P<run>\S+?)(?:\n|<br/>)batch = (?P<batch>\S+)"
)
_ROWS = "number of output rows"
_STATE = re.compile(r"\.driver\.spark\.streaming\.(?P<query>.+)\.states-usedBytes\Z")


class _App(msgspec.Struct):
    id: str
    name: str


class _Metric(msgspec.Struct):
    name: str
    value: str = ""


class _Node(msgspec.Struct, rename="camel"):
    node_name: str
    metrics: list[_Metric] = []


class _Execution(msgspec.Struct, rename="camel"):
    id: int
    status: str
    submission_time: str
    duration: int
    description: str = ""
    nodes: list[_Node] = []


class _Servlet(msgspec.Struct):
    gauges: dict[str, dict[str, Any]] = {}


@dataclass(slots=True)
class _Batch:
    began_wall_ts: float
    duration_s: float = 0.0
    rows: int = 0
    rows_out: int = 0
    ended: bool = False


@dataclass(slots=True)
class _Query:
    """One run of a query, and its last batches in the order in which they began."""

    run: str
    name: str
    batches: dict[str, _Batch] = field(default_factory=dict)

    def alive(self, wall_ts: float) -> bool:
        """Spark does not tell when a query ends: one that is silent for long, by its own rhythm, has."""
        begun = [batch.began_wall_ts for batch in self.batches.values()]
        if not all(batch.ended for batch in self.batches.values()):
            return True
        rhythm_s = (begun[-1] - begun[0]) / (len(begun) - 1) if len(begun) > 1 else 0.0
        return wall_ts - begun[-1] < _SILENT_S + _SILENT_ROUNDS * rhythm_s

    def values(self, wall_ts: float) -> dict[str, float]:
        """The primitives that its last batches tell; none before one has ended."""
        ended = [batch for batch in self.batches.values() if batch.ended]
        if not ended:
            return {}
        newest = max(batch.began_wall_ts for batch in self.batches.values())
        found = {"head-age-s": max(0.0, wall_ts - newest)}
        span_s = ended[-1].began_wall_ts - ended[0].began_wall_ts
        if len(ended) > 1 and span_s > 0:
            # A batch takes what came since the one before it began; so the first one's rows are of another time.
            found["rows-per-s"] = sum(batch.rows for batch in ended[1:]) / span_s
            found["rows-out-per-s"] = sum(batch.rows_out for batch in ended[1:]) / span_s
            found["busy-share"] = sum(batch.duration_s for batch in ended[:-1]) / span_s
        return found


class SparkRestDriver:
    """Asks the pages of Spark applications at `urls`, or at the loopback ports from `ports[0]` to `ports[1]`.

    every_s: no more often than that; a page of executions is a lot to tell and to read.
    """

    name = "spark-rest"
    offers = frozenset({"head-age-s", "rows-per-s", "rows-out-per-s", "busy-share", "state-bytes"})

    def __init__(
        self,
        urls: Sequence[str] = (),
        ports: tuple[int, int] = (4040, 4049),
        every_s: float = 5.0,
        host: Host | None = None,
    ) -> None:
        self._every_s = every_s
        self._last: tuple[float, list[Application]] = (-math.inf, [])
        self._given = tuple(urls)
        self._ports = ports
        self._host = host or Host()
        self._pages: dict[str, _Page] = {}

    def read(self, wall_ts: float) -> list[Application]:
        read_wall_ts, known = self._last
        if known and read_wall_ts <= wall_ts < read_wall_ts + self._every_s:
            return known
        self._host.refresh(FRESH_S)
        urls = self._given or tuple(f"http://127.0.0.1:{port}" for port in range(self._ports[0], self._ports[1] + 1))
        found: list[Application] = []
        silent: list[UnreachableError] = []
        for url in urls:
            if url not in self._pages:
                self._pages[url] = _Page(url, self._host)
            try:
                found += self._pages[url].applications(wall_ts)
            except UnreachableError as error:
                silent.append(error)
        if self._given and silent and not found:
            raise silent[0]
        self._last = wall_ts, found
        return found

    def close(self) -> None:
        for page in self._pages.values():
            page.close()
        self._pages.clear()


class _Page:
    """The pages of one driver program, mostly with one application."""

    def __init__(self, url: str, host: Host) -> None:
        self._url = url
        self._host = host
        self._asker = Asker(url)
        self._jvm: ProcessId | None = None
        self._known: dict[str, _History] = {}

    def applications(self, wall_ts: float) -> list[Application]:
        jvm = self._listener()
        if jvm is None:
            raise UnreachableError(f"nobody listens at {self._url}.")
        apps = self._asker.get(_API, list[_App])
        self._known = {app.id: self._known.get(app.id) or _History(self._asker, app.id) for app in apps}
        found = []
        for app in apps:
            history = self._known[app.id]
            history.update()
            key = f"spark/{app.id}"
            units = units_of(self._host, key, app.id, jvm)
            state = self._state_bytes()
            found.append(Application(key, app.name, "spark", _operators(key, history, units, state, wall_ts), units))
        return found

    def close(self) -> None:
        self._asker.close()

    def _listener(self) -> ProcessId | None:
        if self._jvm is None or not self._host.alive(self._jvm):
            parts = urlsplit(self._url)
            self._jvm = listener(self._host.proc, parts.port or (443 if parts.scheme == "https" else 80))
        return self._jvm

    def _state_bytes(self) -> dict[str, float]:
        """State by the name that a query has in Spark's metrics, its own or its id; empty where they are off."""
        try:
            gauges = self._asker.get("/metrics/json/", _Servlet).gauges
        except UnreachableError:
            return {}
        found = {}
        for name, gauge in gauges.items():
            match = _STATE.search(name)
            value = gauge.get("value")
            if match and isinstance(value, int | float):
                found[match["query"]] = float(value)
        return found


class _History:
    """The executions of one application, read on from where the last period ended.

    Spark numbers them, and answers from a place in its list of those that it keeps; when it forgets old ones, places
    shift, which shows in the numbers.
    """

    def __init__(self, asker: Asker, application_id: str) -> None:
        self._asker = asker
        self._path = f"{_API}/{application_id}/sql"
        self._place = 0
        self.queries: dict[str, _Query] = {}

    def update(self) -> None:
        while True:
            page = self._asker.get(
                self._path,
                list[_Execution],
                details="true",
                planDescription="false",
                offset=self._place,
                length=_PAGE,
            )
            if not page:
                if self._place == 0:
                    return
                # Beyond the end: the list got shorter, or nothing came since.
                self._place = max(0, self._place - _PAGE)
                continue
            for execution in page:
                self._observe(execution)
            running = next((i for i, execution in enumerate(page) if execution.status == "RUNNING"), None)
            if running is not None or len(page) < _PAGE:
                # Ask again for those that still run, and always for one, so that the end of the list is known.
                self._place += max(0, (running if running is not None else len(page)) - 1)
                return
            self._place += len(page)

    def _observe(self, execution: _Execution) -> None:
        said = _BATCH.match(execution.description)
        if said is None:
            return
        query = self.queries.setdefault(said["run"], _Query(said["run"], said["name"] or said["id"]))
        began = _wall_ts(execution.submission_time)
        batch = query.batches.setdefault(said["batch"], _Batch(began))
        batch.began_wall_ts = min(batch.began_wall_ts, began)
        batch.ended = execution.status != "RUNNING"
        batch.duration_s = max(batch.duration_s, execution.duration / 1000.0)
        batch.rows = max(batch.rows, sum(_rows(node) for node in execution.nodes if "Scan" in node.node_name))
        batch.rows_out = max(batch.rows_out, max((_rows(node) for node in execution.nodes if _writes(node)), default=0))
        while len(query.batches) > _BATCHES_KEPT:
            query.batches.pop(next(iter(query.batches)))


def _operators(
    key: str, history: _History, units: tuple[Unit, ...], state: dict[str, float], wall_ts: float
) -> tuple[Operator, ...]:
    runs_on = tuple(unit.key for unit in units)
    found = []
    for query in history.queries.values():
        if not query.alive(wall_ts):
            continue
        values = query.values(wall_ts)
        if query.name in state:
            values["state-bytes"] = state[query.name]
        found.append(Operator(f"{key}/{query.run}", query.name, runs_on, (), values))
    return tuple(found)


def _rows(node: _Node) -> int:
    for metric in node.metrics:
        if metric.name == _ROWS:
            digits = re.sub(r"\D", "", metric.value)
            return int(digits) if digits else 0
    return 0


def _writes(node: _Node) -> bool:
    return node.node_name.startswith(("WriteToDataSourceV2", "AppendData", "StateStoreSave"))


def _wall_ts(text: str) -> float:
    """Spark's time, such as 2026-11-15T13:17:31.579GMT."""
    return datetime.fromisoformat(text.removesuffix("GMT")).replace(tzinfo=UTC).timestamp()
