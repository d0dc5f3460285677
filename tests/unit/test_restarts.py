"""When a dead query is started again: back-off, limit, and who is left alone."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.core.records import Ended
from slackwater.errors import ConfigurationError
from slackwater.supervision.restarts import Restarts, State, wait_s
from slackwater.supervision.settings import Supervision
from slackwater.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN = Supervision(base_s=1, factor=2, cap_s=8, jitter=0, limit=5, span_s=100, well_s=50)


def restarts(settings: Supervision = PLAIN) -> Restarts:
    found = Restarts(settings, lambda: 0.5)
    found.started("q", "run0", "clicks", 0.0)
    return found


def state(of: Restarts) -> State:
    (told,) = of.told()
    return told.state


def test_each_wait_is_longer_than_the_one_before_until_the_cap() -> None:
    found, now, waits = restarts(), 0.0, []
    for number in range(5):
        found.ended("q", f"run{number}", "boom", now)
        due = found.next_due_wall_ts()
        assert due is not None
        waits.append(due - now)
        assert found.due(due - 0.01) == []
        assert found.due(due) == ["q"]
        found.restarted("q", f"run{number + 1}", due)
        now = due
    assert waits == [1, 2, 4, 8, 8]


def test_after_the_limit_within_the_span_it_is_given_up_until_somebody_starts_it() -> None:
    found, now = restarts(), 0.0
    for number in range(5):
        assert found.ended("q", f"run{number}", "boom", now) is State.WAITING
        now = found.next_due_wall_ts() or 0.0
        found.due(now)
        found.restarted("q", f"run{number + 1}", now)
    assert found.ended("q", "run5", "boom", now) is State.GIVEN_UP
    assert found.due(now + 1e6) == []
    found.started("q", "by hand", "clicks", now + 10)
    assert state(found) is State.RUNNING


def test_restarts_that_are_longer_ago_than_the_span_do_not_count() -> None:
    found = restarts(Supervision(limit=1, span_s=100, jitter=0))
    found.ended("q", "run0", "boom", 0.0)
    assert found.due(10.0) == ["q"]
    found.restarted("q", "run1", 10.0)
    assert found.ended("q", "run1", "boom", 111.0) is State.WAITING


def test_one_that_ran_well_for_a_while_waits_as_if_it_had_never_died() -> None:
    found = restarts()
    found.ended("q", "run0", "boom", 0.0)
    found.due(1.0)
    found.restarted("q", "run1", 1.0)
    found.ended("q", "run1", "boom", 2.0)
    assert found.next_due_wall_ts() == 4.0
    found.due(4.0)
    found.restarted("q", "run2", 4.0)
    found.ended("q", "run2", "boom", 54.0)
    assert found.next_due_wall_ts() == 55.0


def test_a_query_that_was_stopped_is_never_started_again() -> None:
    found = restarts()
    found.ended("q", "run0", None, 1.0)
    assert found.told() == []
    assert found.due(1e6) == []


def test_one_without_a_checkpoint_is_not_started_and_says_why() -> None:
    found = Restarts(PLAIN, lambda: 0.5)
    found.started("q", "run0", "clicks", 0.0, "it has no checkpoint")
    assert found.ended("q", "run0", "boom", 1.0) is State.NOT_RESTARTABLE
    assert found.due(1e6) == []
    assert found.told()[0].why_not == "it has no checkpoint"


def test_a_user_who_starts_it_first_cancels_the_restart_and_the_old_runs_end_is_no_news() -> None:
    found = restarts()
    found.ended("q", "run0", "boom", 0.0)
    found.started("q", "by hand", "clicks", 0.5)
    assert found.due(100.0) == []
    assert found.ended("q", "run0", "boom", 1.0) is None
    assert state(found) is State.RUNNING


def test_one_that_is_over_before_its_start_was_told_is_started_again_all_the_same() -> None:
    found = Restarts(PLAIN, lambda: 0.5)
    assert found.ended("q", "run0", "boom", 0.0) is None
    found.started("q", "run0", "clicks", 0.1)
    assert state(found) is State.WAITING


def test_a_start_that_fails_counts_and_is_tried_again_later() -> None:
    found = restarts(Supervision(base_s=1, factor=2, jitter=0, limit=2))
    found.ended("q", "run0", "boom", 0.0)
    assert found.due(1.0) == ["q"]
    assert found.failed("q", "no such table", 1.0) is State.WAITING
    assert found.next_due_wall_ts() == 3.0
    assert found.due(3.0) == ["q"]
    assert found.failed("q", "no such table", 3.0) is State.GIVEN_UP
    assert found.told()[0].last_error == "no such table"


@settings(deadline=None)
@given(
    before=st.integers(0, 10**6),
    chance=st.floats(0, 1, exclude_max=True),
    base_s=st.floats(0.01, 100),
    factor=st.floats(1, 100),
    jitter=st.floats(0, 0.99),
)
def test_a_wait_is_never_negative_nor_longer_than_the_cap_and_its_jitter(
    before: int, chance: float, base_s: float, factor: float, jitter: float
) -> None:
    chosen = Supervision(base_s=base_s, factor=factor, cap_s=100, jitter=jitter)
    waited = wait_s(chosen, before, lambda: chance)
    assert base_s * (1 - jitter) * 0.999 <= waited <= 100 * (1 + jitter) * 1.001


@pytest.mark.parametrize(
    "wrong", [{"base_s": 0}, {"factor": 0.5}, {"jitter": 1}, {"limit": 0}, {"limit": True}, {"base_s": 9, "cap_s": 3}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Supervision(**wrong)  # type: ignore[arg-type]


# ---- the thread ------------------------------------------------------------------------------------------------------


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_supervisor_starts_what_died_though_asking_and_starting_fail_now_and_then() -> None:
    died = Ended("run0", "clicks", "q", 0.0, "boom")
    ends: list[Exception | list[Ended]] = [RuntimeError("Spark did not answer"), [died]]
    tries: list[str] = []
    lock = threading.Lock()

    def ended() -> list[Ended]:
        with lock:
            found = ends.pop(0) if ends else []
        if isinstance(found, Exception):
            raise found
        return found

    def start(query_id: str) -> str:
        tries.append(query_id)
        if len(tries) == 1:
            raise OSError("no such folder")
        return "run1"

    supervisor = Supervisor(Supervision(base_s=0.01, jitter=0), ended, start)
    try:
        supervisor.started("q", "run0", "clicks", None)
        eventually(lambda: supervisor.told()[0].restarts == 1)
        assert tries == ["q", "q"]
        assert supervisor.told()[0].state is State.RUNNING
    finally:
        supervisor.close()
