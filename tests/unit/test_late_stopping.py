"""A batch whose query is stopped ends quietly, and nothing is closed under it."""

from __future__ import annotations

import logging
import re
import threading
import traceback

import pytest

from slackwater.late.stopping import Batches, BatchStoppedError, keep_stops_quiet

# As in Spark 3.5 (4.3 lets anything stand between the two): StreamExecution.isInterruptionException
SPARKS_PATTERN = re.compile(
    r"py4j\.protocol\.Py4JJavaError: An error occurred while calling.+(\r\n|\r|\n): (java\.lang\.InterruptedException|"
    r"java\.io\.InterruptedIOException|java\.nio\.channels\.ClosedByInterruptException)"
)


def batches(*, stopping: bool = False) -> Batches:
    return Batches("alerts", lambda: stopping)


def test_an_error_of_a_running_query_is_its_own() -> None:
    found = batches()
    with pytest.raises(ZeroDivisionError), found.running(1):
        raise ZeroDivisionError
    assert found.end(0)


def test_an_error_of_a_stopped_query_is_an_interrupt_to_spark_and_told_as_information_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    found = batches(stopping=True)
    with pytest.raises(BatchStoppedError, match="alerts was stopped in batch 7") as raised, found.running(7):
        raise RuntimeError("Job 12 cancelled")
    text = "".join(traceback.format_exception(raised.value))
    assert SPARKS_PATTERN.search(text)
    assert text.count("py4j.protocol") == 1
    assert len(text) - text.index("py4j.protocol") < 150, "Spark's pattern overflows its stack on long texts"
    assert [(record.levelname, "Job 12 cancelled" in record.message) for record in caplog.records] == [("INFO", True)]


def test_the_end_waits_for_the_batch_that_runs_and_lets_none_begin() -> None:
    found = batches(stopping=True)
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
        for error in (BatchStoppedError("alerts", 1), ValueError("wrong")):
            logger.error("There was an exception while executing the Python Proxy.", exc_info=error)
        logger.error("without an exception")
        assert len(logger.filters) == 1
    assert len(caplog.records) == 4
    assert not [r for r in caplog.records if r.exc_info and isinstance(r.exc_info[1], BatchStoppedError)]
