"""Apache Flink through its REST interface: each job an application, each vertex an operator, each subtask a unit.

Flink runs every subtask in a thread of its own, so the operating system can prefer one operator to another
(Lachesis 4). Operators that Flink chained are one vertex and run in one thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slackwater.middleware.drivers.flink_metrics import OFFERS, VertexMetrics
from slackwater.middleware.drivers.flink_rest import TIMEOUT_S, FlinkRest
from slackwater.middleware.drivers.flink_threads import Task, assign, find_process, task_name
from slackwater.middleware.host import FRESH_S, Host
from slackwater.middleware.hotspot import ThreadNameReader
from slackwater.middleware.model import Application, Operator, Unit
from slackwater.translators.schedule import Target

if TYPE_CHECKING:
    from slackwater.middleware.drivers.flink_rest import Job, Subtask, Vertex
    from slackwater.translators.identity import ProcessId, ThreadId

_LIVE = frozenset({"INITIALIZING", "RUNNING"})
_FETCH_INTERVAL = "metrics.fetcher.update-interval"
_FETCH_INTERVAL_DEFAULT_MS = 10_000
_FETCH_INTERVAL_BEST_MS = 2_000
_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000}

_Placement = dict[str, list["Subtask"]]


class FlinkDriver:
    """Reads the jobs of the cluster whose JobManager answers at `url`, such as http://127.0.0.1:8081."""

    name = "flink"
    offers = OFFERS

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S, host: Host | None = None) -> None:
        self._rest = FlinkRest(url, timeout_s)
        self._host = host or Host()
        self._names = ThreadNameReader(self._host.proc)
        self._processes: dict[str, ProcessId | None] = {}
        self._placements: dict[str, tuple[object, _Placement]] = {}
        self._metrics: dict[tuple[str, str], VertexMetrics] = {}
        self._slow_metrics: str | None = None

    def read(self, wall_ts: float) -> list[Application]:
        """All jobs that run. One that ends meanwhile is left out."""
        self._host.refresh(FRESH_S)
        running = [summary.jid for summary in self._rest.jobs() if summary.state == "RUNNING"]
        jobs = [job for job in map(self._rest.job, running) if job is not None]
        placements = {job.jid: self._placement(job) for job in jobs}
        self._find_processes(placements)
        threads, notes = self._threads(jobs, placements)
        self._forget(jobs)
        for job in jobs:
            if not _all_found(job, placements[job.jid], threads):
                # Its subtasks may have been started anew elsewhere: ask again next time.
                self._placements.pop(job.jid, None)
        return [self._application(job, placements[job.jid], threads, notes, wall_ts) for job in jobs]

    def close(self) -> None:
        self._rest.close()

    def _placement(self, job: Job) -> _Placement:
        """The live subtasks of each vertex; asked again when the job tells that something has changed."""
        signature = tuple(
            (vertex.id, vertex.status, vertex.start_time, tuple(sorted(vertex.tasks.items())))
            for vertex in job.vertices
        )
        known = self._placements.get(job.jid)
        if known is not None and known[0] == signature:
            return known[1]
        placement: _Placement = {}
        for vertex in job.vertices:
            if vertex.status in _LIVE:
                subtasks = self._rest.subtasks(job.jid, vertex.id) or []
                placement[vertex.id] = [subtask for subtask in subtasks if subtask.status in _LIVE]
        self._placements[job.jid] = (signature, placement)
        return placement

    def _find_processes(self, placements: dict[str, _Placement]) -> None:
        wanted = {
            subtask.taskmanager_id
            for placement in placements.values()
            for subtasks in placement.values()
            for subtask in subtasks
        }
        # One that is not on this host stays elsewhere; one that has ended may have got a successor of the same name.
        known = {id_: process for id_, process in self._processes.items() if not process or self._host.alive(process)}
        if wanted - known.keys():
            for manager in self._rest.task_managers():
                if manager.id in wanted - known.keys():
                    known[manager.id] = find_process(manager, self._host)
        self._processes = {id_: process for id_, process in known.items() if id_ in wanted}

    def _threads(
        self, jobs: list[Job], placements: dict[str, _Placement]
    ) -> tuple[dict[str, frozenset[ThreadId]], tuple[str, ...]]:
        """The threads of every unit on this host. Jobs share processes, so they are looked at together."""
        tasks: dict[ProcessId, list[Task]] = {}
        for job in jobs:
            for vertex in job.vertices:
                for subtask in placements[job.jid].get(vertex.id, ()):
                    process = self._processes.get(subtask.taskmanager_id)
                    if process is not None:
                        name = task_name(vertex.name, subtask.subtask, vertex.parallelism, subtask.attempt)
                        tasks.setdefault(process, []).append(
                            Task(_unit_key(job, vertex, subtask), name, subtask.start_time)
                        )
        threads: dict[str, frozenset[ThreadId]] = {}
        notes = list(self._notes())
        for process, here in tasks.items():
            assigned = assign(here, self._names.read(process))
            threads |= assigned.threads
            notes += assigned.notes
        return threads, tuple(dict.fromkeys(notes))

    def _notes(self) -> list[str]:
        notes = []
        if self._processes and not any(self._processes.values()):
            notes.append(
                f"none of the {len(self._processes)} TaskManagers is on this host, or their processes cannot be seen "
                "from here: run the middleware beside them, as their user or as root, in a container with the host's "
                "processes."
            )
        if self._slow_metrics is None:
            interval_ms = _milliseconds(self._rest.settings().get(_FETCH_INTERVAL, ""), _FETCH_INTERVAL_DEFAULT_MS)
            self._slow_metrics = (
                f"Flink renews its metrics every {interval_ms} ms; set {_FETCH_INTERVAL}: 1000 in its configuration, "
                "or decisions rest on old queues."
                if interval_ms > _FETCH_INTERVAL_BEST_MS
                else ""
            )
        return [*notes, *([self._slow_metrics] if self._slow_metrics else [])]

    def _application(
        self,
        job: Job,
        placement: _Placement,
        threads: dict[str, frozenset[ThreadId]],
        notes: tuple[str, ...],
        wall_ts: float,
    ) -> Application:
        inputs = job.inputs()
        live = [vertex for vertex in job.vertices if placement.get(vertex.id)]
        ids = {vertex.id for vertex in live}
        operators, units = [], []
        for vertex in live:
            here = [
                Unit(key, "subtask", Target(threads=threads[key]))
                for key in (_unit_key(job, vertex, subtask) for subtask in placement[vertex.id])
                if key in threads
            ]
            metrics = self._metrics.setdefault(
                (job.jid, vertex.id), VertexMetrics(job.jid, vertex.id, is_source=not inputs.get(vertex.id))
            )
            own = [thread for unit in here for thread in unit.target.threads]
            values = metrics.read(self._rest, wall_ts, self._cpu_s(own))
            if values is None:
                continue
            units += here
            downstream = tuple(
                f"flink/{job.jid}/{other}" for other in sorted(ids) if vertex.id in inputs.get(other, ())
            )
            operators.append(
                Operator(
                    f"flink/{job.jid}/{vertex.id}",
                    vertex.name,
                    tuple(unit.key for unit in here),
                    downstream,
                    values,
                )
            )
        return Application(f"flink/{job.jid}", job.name, "flink", tuple(operators), tuple(units), notes)

    def _cpu_s(self, threads: list[ThreadId]) -> dict[ThreadId, float]:
        found = {}
        for id_ in threads:
            now = self._host.proc.thread(id_)
            if now is not None:
                found[id_] = now.cpu_s
        return found

    def _forget(self, jobs: list[Job]) -> None:
        live = {job.jid for job in jobs}
        self._placements = {job: placement for job, placement in self._placements.items() if job in live}
        self._metrics = {key: metrics for key, metrics in self._metrics.items() if key[0] in live}


def _milliseconds(text: str, otherwise: int) -> int:
    """A duration as Flink writes it: 1000, 500 ms, 10 s, 1min."""
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    return int(found[1]) * _UNITS_MS[found[2]] if found and found[2] in _UNITS_MS else otherwise


def _all_found(job: Job, placement: _Placement, threads: dict[str, frozenset[ThreadId]]) -> bool:
    return all(
        _unit_key(job, vertex, subtask) in threads
        for vertex in job.vertices
        for subtask in placement.get(vertex.id, ())
    )


def _unit_key(job: Job, vertex: Vertex, subtask: Subtask) -> str:
    return f"flink/{job.jid}/{vertex.id}/{subtask.subtask}"
