"""Flink's REST interface, as far as the driver needs it: jobs, where their subtasks run, and metrics of a vertex."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

import msgspec

from slackwater.endpoint.asking import Asker, RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

TIMEOUT_S = 5.0


class JobSummary(msgspec.Struct, frozen=True):
    jid: str
    state: str


class _Overview(msgspec.Struct, frozen=True):
    jobs: list[JobSummary] = []


class Vertex(msgspec.Struct, frozen=True, rename="kebab"):
    """Operators that run in one thread: Flink chains what needs no exchange. `tasks` counts subtasks by state."""

    id: str
    name: str
    parallelism: int
    status: str
    start_time: int = -1
    tasks: dict[str, int] = {}


class _Input(msgspec.Struct, frozen=True):
    id: str


class _Node(msgspec.Struct, frozen=True):
    id: str
    inputs: list[_Input] = []


class _Plan(msgspec.Struct, frozen=True):
    nodes: list[_Node] = []


class Job(msgspec.Struct, frozen=True):
    jid: str
    name: str
    state: str
    vertices: list[Vertex] = []
    plan: _Plan = _Plan()

    def inputs(self) -> dict[str, list[str]]:
        """The vertices that each vertex reads from."""
        return {node.id: [one.id for one in node.inputs] for node in self.plan.nodes}


class Subtask(msgspec.Struct, frozen=True, rename="kebab"):
    """One of a vertex's parallel parts. `start_time`: when its deployment began, in milliseconds."""

    subtask: int
    status: str
    attempt: int = 0
    start_time: int = -1
    taskmanager_id: str = ""


class _VertexDetail(msgspec.Struct, frozen=True):
    subtasks: list[Subtask] = []


class TaskManager(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    path: str = ""
    data_port: int = -1


class _TaskManagers(msgspec.Struct, frozen=True):
    taskmanagers: list[TaskManager] = []


class _Metric(msgspec.Struct, frozen=True):
    id: str
    # Numbers that JSON has not, such as NaN, come as text.
    sum: float | str = math.nan


class _Setting(msgspec.Struct, frozen=True):
    key: str
    value: str = ""


class FlinkRest:
    """Questions to a JobManager. None for what is no longer there; UnreachableError when it does not answer."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        self._asker = Asker(url, timeout_s=timeout_s)

    def jobs(self) -> list[JobSummary]:
        return self._asker.get("/jobs/overview", _Overview).jobs

    def settings(self) -> dict[str, str]:
        """The cluster's configuration; empty where it is not shown."""
        return {one.key: one.value for one in self._there("/jobmanager/config", list[_Setting]) or []}

    def job(self, job: str) -> Job | None:
        return self._there(f"/jobs/{job}", Job)

    def subtasks(self, job: str, vertex: str) -> list[Subtask] | None:
        found = self._there(f"/jobs/{job}/vertices/{vertex}", _VertexDetail)
        return None if found is None else found.subtasks

    def task_managers(self) -> list[TaskManager]:
        return self._asker.get("/taskmanagers", _TaskManagers).taskmanagers

    def metric_names(self, job: str, vertex: str) -> list[str] | None:
        found = self._there(f"/jobs/{job}/vertices/{vertex}/subtasks/metrics", list[_Metric])
        return None if found is None else [metric.id for metric in found]

    def metrics(self, job: str, vertex: str, names: Sequence[str]) -> dict[str, float] | None:
        """Sums over the subtasks. Flink answers nothing at all when one of the names is unknown to it."""
        if not names:
            return {}
        path = f"/jobs/{job}/vertices/{vertex}/subtasks/metrics"
        found = self._there(path, list[_Metric], get=",".join(names), agg="sum")
        return None if found is None else {metric.id: float(metric.sum) for metric in found}

    def close(self) -> None:
        self._asker.close()

    def _there(self, path: str, kind: type[T], **parameters: str) -> T | None:
        try:
            return self._asker.get(path, kind, **parameters)
        except RefusedError:
            return None  # it has ended since it was named
