"""Options of the whole suite."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import hypothesis

from tests import fast_java

if TYPE_CHECKING:
    import pytest

_SESSION = "session"
# Tests that start programs of their own take longest; so many of them make both shares about equal. Those on Kafka stay
# together: one broker serves them.
_WITH_THE_SESSION = (
    "test_sessions",
    "test_bench_late_tiny",
    "test_kafka.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make bench-decisions` sets those for decisions; in the suite they run few and small, to see that they run.

    `make test` runs both shares at once: tests on the Spark session of the run mostly wait, and others don't need it.
    """
    parser.addoption("--share", choices=("all", _SESSION, "others"), default="all")
    parser.addoption("--decision-queries", dest="decision_queries", type=int, default=50)
    parser.addoption("--decision-rounds", dest="decision_rounds", type=int, default=20)


def pytest_configure() -> None:
    fast_java.use()
    # How long an example takes is the machine's affair: no test asserts timings.
    hypothesis.settings.register_profile("suite", deadline=None, max_examples=50)
    hypothesis.settings.register_profile("thorough", deadline=None, max_examples=1000)
    hypothesis.settings.load_profile(os.environ.get("TEST_PROFILE", "suite"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    share = config.getoption("share")
    if share == "all":
        return
    chosen = [item for item in items if _with_the_session(item) == (share == _SESSION)]
    config.hook.pytest_deselected(items=[item for item in items if _with_the_session(item) != (share == _SESSION)])
    items[:] = chosen


def _with_the_session(item: pytest.Item) -> bool:
    return _SESSION in getattr(item, "fixturenames", ()) or any(part in item.nodeid for part in _WITH_THE_SESSION)
