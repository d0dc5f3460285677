"""Options of the whole suite."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import hypothesis

from tests import fast_java

if TYPE_CHECKING:
    import pytest

# `make test` runs all three at once: most tests on the Spark session of the run wait for time to pass, and so do many
# that start programs. Together they fit two cores.
SESSION, PROGRAMS, OTHERS = "session", "programs", "others"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make bench-decisions` sets those for decisions; in the suite they run few and small, to see that they run."""
    parser.addoption("--share", choices=("all", SESSION, PROGRAMS, OTHERS), default="all")
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
    config.hook.pytest_deselected(items=[item for item in items if _share(item) != share])
    items[:] = [item for item in items if _share(item) == share]


def _share(item: pytest.Item) -> str:
    # One broker serves all tests on topics, and most of them are on the session.
    if {SESSION, "broker"} & set(getattr(item, "fixturenames", ())):
        return SESSION
    return PROGRAMS if item.get_closest_marker("spark") else OTHERS
