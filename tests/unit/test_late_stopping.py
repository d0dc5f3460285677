"""A batch whose query is stopped ends quietly, and nothing is closed under it."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from slackwater.late.stopping import Batches, BatchStoppedError, keep_stops_quiet


class InterruptedThread:
    """Stands for java.lang.Thread: asleep, it says that it was interrupted."""

    def __init__(self) -> None:
        self.interrupts = 0

    def currentThread(self) -> InterruptedThread:  # noqa: N802 - Java's name
        return self

    def interrupt(self) -> None:
        self.interrupts += 1

    def sleep(self, _: int) -> None:
        raise OSError("java.lang.InterruptedException: sleep interrupted")


def batches(*, stopping: bool = False) -> tuple[Batches, InterruptedThread]:
    thread = InterruptedThread()
    lang = SimpleNamespace(Thread=thread)
    spark: Any = SimpleNamespace(_jvm=SimpleNamespace(java=SimpleNamespace(lang=lang)))
    return Batches("alerts", spark, lambda: stopping), thread


def test_an_error_of_a_running_query_is_its_own() -> None:
    found, thread = batches()
    with pytest.raises(ZeroDivisionError), found.running(1):
        raise ZeroDivisionError
    assert thread.interrupts == 0
    assert found.end(0)


def test_an_error_of_a_stopped_query_is_an_interrupt_to_spark_and_told_as_information_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    found, thread = batches(stopping=True)
    with pytest.raises(BatchStoppedError, match="alerts was stopped in batch 7") as raised, found.running(7):
        raise RuntimeError("Job 12 cancelled")
    assert "InterruptedException" in str(raised.value.__cause__)
    assert thread.interrupts == 1
    assert [(record.levelname, "Job 12 cancelled" in record.message) for record in caplog.records] == [("INFO", True)]


def test_the_end_waits_for_the_batch_that_runs_and_lets_none_begin() -> None:
    found, _ = batches(stopping=True)
    began, go = threading.Event(), threading.Event()

    def run() -> None:
        with found.running(1):
            began.set()
            go.wait(60)

    batch = threading.Thread(target=run)
    batch.start()
    assert began.wait(60)
    assert not found.end(0.01)
    with pytest.raises(BatchStoppedError), found.running(2):
        pytest.fail("it began")
    go.set()
    assert found.end(60)
    batch.join()


def test_py4j_is_quiet_about_stops_and_about_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    keep_stops_quiet()
    keep_stops_quiet()
    for name in ("py4j.clientserver", "py4j.java_gateway"):
        logger = logging.getLogger(name)
        for error in (BatchStoppedError("stopped"), ValueError("wrong")):
            logger.error("There was an exception while executing the Python Proxy.", exc_info=error)
        logger.error("without an exception")
        assert len(logger.filters) == 1
    assert len(caplog.records) == 4
    assert not [r for r in caplog.records if r.exc_info and isinstance(r.exc_info[1], BatchStoppedError)]
