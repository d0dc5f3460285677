"""How queries are remembered and started again, with PySpark's writer but without its JVM."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.readwriter import DataStreamWriter

from slackwater.core.records import Ended, Records
from slackwater.drivers.spark.restart import RestartingSupervisor, started_again_by
from slackwater.supervision.settings import Supervision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Query:
    """A StreamingQuery as far as supervision asks it."""

    def __init__(self, run: int, root: str = "file:/checkpoints/clicks", name: str | None = "clicks") -> None:
        self.id, self.runId, self.name = "clicks-id", f"run{run}", name
        self.isActive = True
        self.error: Exception | None = None
        self._jsq = SimpleNamespace(streamingQuery=lambda: SimpleNamespace(resolvedCheckpointRoot=lambda: root))

    def exception(self) -> Exception | None:
        return self.error

    def die(self) -> Ended:
        self.isActive, self.error = False, ValueError("boom")
        return Ended(self.runId, self.name or self.id, self.id, time.time(), "boom")


class Session:
    """A SparkSession's pool and conf."""

    def __init__(self) -> None:
        self.pool: str | None = "urgent"
        self.conf = SimpleNamespace(get=lambda key, default: default)
        self.sparkContext = self
        self._jsc: object | None = object()

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802 - Spark's names
        return self.pool

    def setLocalProperty(self, key: str, value: str | None) -> None:  # noqa: N802
        self.pool = value


class Writer:
    """What was started, in order; stands in for the writer's own start."""

    def __init__(self) -> None:
        self.started: list[Query] = []
        self.arguments: list[tuple[Any, ...]] = []
        self.fails = 0
        self.root = "file:/checkpoints/clicks"
        self.name: str | None = "clicks"

    def start(self, *arguments: Any) -> Query:
        self.arguments.append(arguments)
        if self.fails:
            self.fails -= 1
            raise RuntimeError("cannot start\nat Foo")
        self.started.append(Query(len(self.started), self.root, self.name))
        return self.started[-1]


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Writer:
    writer = Writer()
    monkeypatch.setattr(DataStreamWriter, "start", lambda _, *arguments: writer.start(*arguments))
    return writer


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def supervisor(session: Session, records: Records, writer: Writer) -> Iterator[RestartingSupervisor]:
    found = RestartingSupervisor(session, Supervision(base_s=0.01, cap_s=0.02, limit=5), records)
    yield found
    found.close()


def start(*arguments: Any) -> Any:
    """As `df.writeStream….start(…)` does."""
    return DataStreamWriter.start(SimpleNamespace(), *arguments)


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_query_that_dies_is_started_again_with_its_arguments_and_its_pool(
    supervisor: RestartingSupervisor, records: Records, writer: Writer, session: Session
) -> None:
    first = start("/out")
    session.setLocalProperty("spark.scheduler.pool", None)
    records.ended.add(first.die())
    eventually(lambda: supervisor.told()[0].restarts == 1)
    assert writer.arguments == [("/out",), ("/out",)]
    assert supervisor.query("clicks-id") is writer.started[1]
    assert session.getLocalProperty("spark.scheduler.pool") == "urgent"
    records.ended.add(writer.started[1].die())
    eventually(lambda: supervisor.told()[0].restarts == 2)


def test_a_start_that_fails_is_tried_again(
    supervisor: RestartingSupervisor, records: Records, writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    query = start()
    writer.fails = 2
    records.ended.add(query.die())
    eventually(lambda: supervisor.told()[0].restarts == 1)
    assert "cannot start" in caplog.text
    assert len(writer.arguments) == 4


def test_a_query_that_was_stopped_is_forgotten(
    supervisor: RestartingSupervisor, records: Records, writer: Writer
) -> None:
    query = start()
    query.isActive = False
    records.ended.add(Ended(query.runId, "clicks", query.id, time.time(), None))
    eventually(lambda: supervisor.told() == [])
    eventually(lambda: supervisor.query(query.id) is None)
    assert len(writer.started) == 1


def test_spark_is_asked_when_the_scheduler_tells_nothing(
    supervisor: RestartingSupervisor, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = start()
    query.die()
    supervisor._asked -= 1000
    eventually(lambda: supervisor.told()[0].restarts == 1)
    assert [end.error for end in supervisor.found.since(0)] == ["boom"]


@pytest.mark.parametrize(
    ("root", "name", "common", "why"),
    [
        ("file:/tmp/temporary-0b9a6a3c-2a0f-4c53-9a0e-0d3b8f6d4f11", "clicks", None, "checkpointLocation"),
        ("file:/all/0b9a6a3c-2a0f-4c53-9a0e-0d3b8f6d4f11", None, "file:/all", "queryName"),
        ("file:/all/0b9a6a3c-2a0f-4c53-9a0e-0d3b8f6d4f11", None, None, None),
        ("file:/all/clicks", "clicks", "file:/all", None),
    ],
)
def test_only_a_query_that_finds_its_checkpoint_again_is_started(
    supervisor: RestartingSupervisor,
    records: Records,
    writer: Writer,
    session: Session,
    root: str,
    name: str | None,
    common: str | None,
    why: str | None,
) -> None:
    session.conf = SimpleNamespace(get=lambda key, default: common)
    writer.root, writer.name = root, name
    query = start()
    (told,) = supervisor.told()
    assert (told.why_not is None) == (why is None)
    assert why is None or why in (told.why_not or "")
    records.ended.add(query.die())
    if why is None:
        eventually(lambda: supervisor.told()[0].restarts == 1)
    else:
        eventually(lambda: "cannot be started again" in supervisor.told()[0].state)


def test_whoever_starts_more_than_a_writer_says_how_to_start_again(
    supervisor: RestartingSupervisor, records: Records, writer: Writer
) -> None:
    calls = []

    def begin() -> Any:
        calls.append("begin")
        with started_again_by(begin):
            return start()

    records.ended.add(begin().die())
    eventually(lambda: supervisor.told()[0].restarts == 1)
    records.ended.add(writer.started[1].die())
    eventually(lambda: supervisor.told()[0].restarts == 2)
    assert calls == ["begin"] * 3


def test_a_released_query_stays_dead(supervisor: RestartingSupervisor, records: Records, writer: Writer) -> None:
    query = start()
    assert supervisor.release("clicks")
    assert not supervisor.release("clicks")
    records.ended.add(query.die())
    eventually(lambda: supervisor._read == records.ended.added)
    assert supervisor.told() == []
    assert writer.started == [query]


def test_closing_gives_the_methods_back_also_where_somebody_wrapped_them_since(
    session: Session, records: Records, writer: Writer
) -> None:
    before = DataStreamWriter.start
    supervisor = RestartingSupervisor(session, Supervision(), records)
    assert DataStreamWriter.start is not before
    supervisor.close()
    assert DataStreamWriter.start is before
    supervisor = RestartingSupervisor(session, Supervision(), records)
    ours = DataStreamWriter.start

    def theirs(*arguments: Any) -> Any:
        return ours(*arguments)

    DataStreamWriter.start = theirs
    supervisor.close()
    assert DataStreamWriter.start is theirs
    start()
    assert supervisor.told() == []
    DataStreamWriter.start = before
