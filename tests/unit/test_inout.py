"""The one thread for background work: in order of urgency, whatever fails."""

from __future__ import annotations

import threading

import pytest

from slackwater.late.inout import InOut, Priority


@pytest.fixture
def inout():
    found = InOut("io", lambda: None)
    yield found
    found.close()


def test_the_most_urgent_work_goes_first_and_equals_in_turn(inout):
    done: list[str] = []
    for priority, name in [
        (Priority.CLEANUP, "clean"),
        (Priority.DESTAGE, "free 1"),
        (Priority.DESTAGE, "free 2"),
        (Priority.PRESTAGE, "stage"),
    ]:
        assert inout.submit(priority, name, lambda name=name: done.append(name))
    assert not inout.submit(Priority.PRESTAGE, "clean", lambda: done.append("twice"))
    inout.start()
    assert inout.wait_idle(10)
    assert done == ["stage", "free 1", "free 2", "clean"]


def test_what_has_waited_long_goes_first(inout, monkeypatch):
    done: list[str] = []
    inout.submit(Priority.CLEANUP, "old", lambda: done.append("old"))
    monkeypatch.setattr("slackwater.late.inout.PATIENCE_S", -1.0)
    inout.submit(Priority.PRESTAGE, "new", lambda: done.append("new"))
    inout.start()
    assert inout.wait_idle(10)
    assert done == ["old", "new"]


def test_work_that_fails_is_left_and_the_next_goes_on(inout, caplog):
    done = threading.Event()
    inout.start()
    inout.submit(Priority.PRESTAGE, "bad", lambda: 1 / 0)
    inout.submit(Priority.CLEANUP, "good", done.set)
    assert done.wait(10)
    assert inout.wait_idle(10)
    assert "bad failed and is left" in caplog.text
    assert inout.submit(Priority.PRESTAGE, "bad", lambda: None)


def test_after_closing_nothing_is_taken():
    found = InOut("io", lambda: None)
    found.start()
    found.close()
    assert not found.submit(Priority.PRESTAGE, "late", lambda: None)


def test_without_order_each_has_its_own_thread():
    found = InOut("io", lambda: None, ordered=False)
    both = threading.Barrier(2, timeout=10)
    assert found.submit(Priority.CLEANUP, 1, both.wait)
    assert found.submit(Priority.PRESTAGE, 2, both.wait)
    assert found.wait_idle(10)
