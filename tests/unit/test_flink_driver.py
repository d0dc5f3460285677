"""The driver for Flink, on answers recorded from Flink 2.3 that ran YSB with chaining off."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import UnreachableError
from slackwater.middleware.drivers import flink
from slackwater.middleware.drivers.flink import FlinkDriver
from slackwater.middleware.drivers.flink_metrics import VertexMetrics
from slackwater.middleware.drivers.flink_threads import Task, assign, task_name
from slackwater.middleware.hotspot import ThreadNames
from slackwater.translators.identity import ThreadId
from slackwater.translators.processes import Proc

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("flink_recorded.json").read_text("utf-8"))
JOB = "602d40518db4a6cafdf438a0ec2dfa16"
RUNNING = [vertex for vertex in RECORDED[f"/jobs/{JOB}"]["vertices"] if vertex["status"] == "RUNNING"]


@contextmanager
def job_manager(answers: dict[str, Any]) -> Iterator[str]:
    """Answers what is in `answers`, and 404 for everything else, as Flink does for jobs that have ended."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(self.path)
            body = json.dumps(answers.get(path, {"errors": ["not found"]})).encode()
            self.send_response(200 if path in answers else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - its name there

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def thread(tid: int, started_ticks: int | None = None) -> ThreadId:
    return ThreadId(os.getpid(), tid, tid if started_ticks is None else started_ticks)


class Names:
    """Every subtask with its own thread, and the source with the one that reads."""

    def __init__(self) -> None:
        names = [task_name(vertex["name"], 0, 1, 0) for vertex in RUNNING]
        names += [f"Legacy Source Thread - {names[0]}", f"OutputFlusher for {names[0]}", "flink-pekko.actor-4"]
        self.names = {thread(100 + place): name for place, name in enumerate(names)}

    def read(self, process: object) -> ThreadNames:
        return ThreadNames(self.names)


@pytest.fixture
def answers() -> dict[str, Any]:
    return json.loads(json.dumps(RECORDED))  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The TaskManager is this process, which lives as long as the test."""
    monkeypatch.setattr(flink, "find_process", lambda manager, host: Proc().process(os.getpid()))
    monkeypatch.setattr(flink, "ThreadNameReader", lambda proc: Names())


def test_each_live_vertex_is_an_operator_on_the_threads_of_its_subtasks(answers: dict[str, Any]):
    with job_manager(answers) as url:
        (job,) = FlinkDriver(url).read(1000.0)
    assert (job.key, job.name, job.engine) == (f"flink/{JOB}", "ysb_1", "flink")
    assert [operator.name for operator in job.operators] == [vertex["name"] for vertex in RUNNING]
    units = {unit.key: unit for unit in job.units}
    tids = [sorted(t.tid for key in op.runs_on for t in units[key].target.threads) for op in job.operators]
    assert tids == [[100, 110, 111], *([101 + place] for place in range(len(RUNNING) - 1))]
    assert job.notes == ()


def test_the_pipeline_follows_the_plan_without_what_has_finished(answers: dict[str, Any]):
    with job_manager(answers) as url:
        (job,) = FlinkDriver(url).read(1000.0)
    names = {operator.key: operator.name for operator in job.operators}
    followed = [job.operators[0]]
    while followed[-1].downstream:
        (after,) = followed[-1].downstream
        followed.append(next(operator for operator in job.operators if operator.key == after))
    assert [operator.name for operator in followed] == list(names.values())


def test_values_are_what_flink_measured(answers: dict[str, Any]):
    with job_manager(answers) as url:
        driver = FlinkDriver(url)
        driver.read(1000.0)
        for path, answer in answers.items():
            if "?get=" in path:
                for metric in answer:
                    if metric["id"].endswith(("numRecordsIn", "numRecordsOut")):
                        metric["sum"] += 5000.0
        (job,) = driver.read(1002.0)
    source, table, *_ = job.operators
    assert source.values["queue-rows"] == 1092.0
    assert source.values["rows-per-s"] == pytest.approx(2500.0)
    assert "busy-share" not in source.values, "an old-style source tells NaN, and its threads here are made up"
    assert table.values["busy-share"] == pytest.approx(0.273)
    assert table.values["rows-out-per-s"] == pytest.approx(2500.0)
    assert table.values["queue-rows"] == pytest.approx((228444.0 + 5000.0) / 574.0)


def test_a_vertex_of_two_subtasks_runs_on_two_units(answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    vertex = next(one for one in answers[f"/jobs/{JOB}"]["vertices"] if one["name"] == "Calc[48]")
    vertex["parallelism"] = 2
    detail = answers[f"/jobs/{JOB}/vertices/{vertex['id']}"]
    detail["subtasks"].append(detail["subtasks"][0] | {"subtask": 1, "attempt": 3})
    names = Names()
    place = next(thread for thread, name in names.names.items() if name.startswith("Calc[48]"))
    names.names |= {place: "Calc[48] (1/2)#0", thread(500): "Calc[48] (2/2)#3"}
    monkeypatch.setattr(flink, "ThreadNameReader", lambda proc: names)
    with job_manager(answers) as url:
        (job,) = FlinkDriver(url).read(1000.0)
    operator = next(one for one in job.operators if one.name == "Calc[48]")
    units = {unit.key: unit.target.threads for unit in job.units}
    assert [units[key] for key in operator.runs_on] == [{place}, {thread(500)}]


def test_a_job_that_ends_between_two_requests_is_left_out(answers: dict[str, Any]):
    with job_manager(answers) as url:
        driver = FlinkDriver(url)
        assert len(driver.read(1000.0)) == 1
        del answers[f"/jobs/{JOB}"]
        assert driver.read(1001.0) == []


def test_a_vertex_that_ends_between_two_requests_is_left_out(answers: dict[str, Any]):
    for path in [path for path in answers if "subtasks/metrics" in path]:
        del answers[path]
    with job_manager(answers) as url:
        (job,) = FlinkDriver(url).read(1000.0)
    assert job.operators == ()
    assert job.units == ()


def test_a_silent_job_manager_is_unreachable():
    with job_manager({}) as url:
        pass
    with pytest.raises(UnreachableError, match="does not answer"):
        FlinkDriver(url, timeout_s=2.0).read(1000.0)


@pytest.mark.parametrize(
    ("configured", "told_ms"),
    [(None, 10_000), ("1000", None), ("2 s", None), ("500ms", None), ("5 s", 5000), ("1 min", 60_000), ("?", 10_000)],
)
def test_metrics_that_are_renewed_too_seldom_are_told(
    answers: dict[str, Any], configured: str | None, told_ms: int | None
):
    settings = [{"key": "metrics.fetcher.update-interval", "value": configured}] if configured else []
    answers["/jobmanager/config"] = settings
    with job_manager(answers) as url:
        (job,) = FlinkDriver(url).read(1000.0)
    assert [note.partition(";")[0] for note in job.notes] == (
        [f"Flink renews its metrics every {told_ms} ms"] if told_ms else []
    )


def test_task_managers_that_cannot_be_seen_are_told(answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flink, "find_process", lambda manager, host: None)
    with job_manager(answers) as url:
        (job,) = FlinkDriver(url).read(1000.0)
    assert job.units == ()
    assert "none of the 1 TaskManagers" in job.notes[0]


# ---- metrics of one vertex -------------------------------------------------------------------------------------------


def counters(rows: float, rows_out: float, buffers: float = 0.0, **more: float) -> dict[str, float]:
    return {"numRecordsIn": rows, "numRecordsOut": rows_out, "numBuffersInLocal": buffers} | more


def test_rates_look_back_ten_seconds_and_no_further():
    vertex = VertexMetrics("job", "vertex", is_source=False)
    for second in range(20):
        vertex.values(counters(100.0 * second, 10.0 * second), float(second), {})
    assert vertex.values(counters(12000.0, 190.0), 20.0, {})["rows-per-s"] == pytest.approx((12000.0 - 1000.0) / 10)


def test_counters_that_begin_again_give_no_negative_rate():
    vertex = VertexMetrics("job", "vertex", is_source=False)
    vertex.values(counters(5000.0, 5000.0), 0.0, {})
    assert "rows-per-s" not in vertex.values(counters(10.0, 10.0), 1.0, {})
    assert vertex.values(counters(20.0, 20.0), 2.0, {})["rows-per-s"] == pytest.approx(10.0)


def test_a_source_of_the_old_kind_is_as_busy_as_its_threads():
    vertex = VertexMetrics("job", "vertex", is_source=True)
    silent = counters(0.0, 100.0, busyTimeMsPerSecond=float("nan"))
    assert "busy-share" not in vertex.values(silent, 10.0, {thread(1): 3.0, thread(2): 1.0})
    values = vertex.values(silent, 12.0, {thread(1): 4.0, thread(2): 1.5, thread(3): 9.0})
    assert values["busy-share"] == pytest.approx(0.75)


def test_a_source_without_pending_rows_has_no_queue_rather_than_an_empty_one():
    assert "queue-rows" not in VertexMetrics("j", "v", is_source=True).values(counters(0.0, 1.0), 0.0, {})


# ---- threads ---------------------------------------------------------------------------------------------------------


def test_subtasks_of_the_same_name_are_told_apart_by_when_they_started():
    tasks = [Task("second", "Calc[1] (1/1)#0", 2000), Task("first", "Calc[1] (1/1)#0", 1000)]
    names = {
        thread(7, 50): "Calc[1] (1/1)#0",
        thread(5, 20): "Calc[1] (1/1)#0",
        thread(6, 21): "OutputFlusher for Calc[1] (1/1)#0",
        thread(8, 51): "OutputFlusher for Calc[1] (1/1)#0",
    }
    found = assign(tasks, ThreadNames(names))
    tids = {key: sorted(one.tid for one in threads) for key, threads in found.threads.items()}
    assert tids == {"first": [5, 6], "second": [7, 8]}
    assert "2 subtasks are called" in found.notes[0]


def test_a_subtask_whose_thread_is_not_there_yet_waits():
    tasks = [Task("a", "Map (1/2)#0", 1), Task("b", "Map (2/2)#0", 1)]
    assert assign(tasks, ThreadNames({thread(1): "Map (1/2)#0"})).threads == {"a": frozenset({thread(1)})}


def test_names_that_the_kernel_cut_are_used_where_they_leave_no_doubt():
    tasks = [
        Task("calc", "Calc[4] (1/1)#0", 1),
        Task("local", "LocalWindowAggregate[12] (1/1)#0", 1),
        Task("other", "LocalWindowAggregate[13] (1/1)#0", 1),
    ]
    names = {thread(1): "Calc[4] (1/1)#0", thread(2): "LocalWindowAggr", thread(3): "LocalWindowAggr"}
    found = assign(tasks, ThreadNames(names, whole=False, note="attaching is disabled."))
    assert found.threads == {"calc": frozenset({thread(1)})}
    assert found.notes == ("attaching is disabled. The threads of 2 subtasks cannot be told apart without it.",)


VERTICES = st.sampled_from(["Map", "Map Map", "Sink: Map", "Source: a -> Map", "x for Map"])
PREFIXES = st.sampled_from(["", "OutputFlusher for ", "Legacy Source Thread - ", "unrelated "])


@given(st.lists(st.tuples(VERTICES, st.integers(0, 2)), unique=True), st.lists(st.tuples(PREFIXES, VERTICES)))
def test_no_thread_belongs_to_two_subtasks_and_each_name_keeps_its_own(tasks: Any, threads: Any):
    there = [Task(f"{name}/{i}", task_name(name, i, 3, 0), i) for name, i in tasks]
    names = {thread(place): task.name for place, task in enumerate(there)}
    names |= {
        thread(1000 + place): prefix + task_name(name, place % 3, 3, 0)
        for place, (prefix, name) in enumerate(threads)
        if prefix
    }
    found = assign(there, ThreadNames(names)).threads
    given_out = [one for group in found.values() for one in group]
    assert len(given_out) == len(set(given_out))
    assert all(thread(place) in found[task.key] for place, task in enumerate(there))
