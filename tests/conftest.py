"""Options of the whole suite, and how it is shared among processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

SESSION, PROCESSES = "session", "processes"
OWN_JVM = ("tests/spark/", "test_flink_live", "test_hotspot", "test_middleware_process", "test_translators_linux")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make bench-decisions` sets them; in the suite decisions run few and small, to see that they run."""
    parser.addoption("--decision-queries", dest="decision_queries", type=int, default=50)
    parser.addoption("--decision-rounds", dest="decision_rounds", type=int, default=20)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """For `pytest -n 2 --dist loadgroup`: one worker has the session, one all tests that start programs of their own.

    These come first, longest work ahead; the rest fills both workers up. So there is one session, and never more than
    one cluster or benchmark beside it.
    """
    groups = {item: _group(item) for item in items}
    for item, name in groups.items():
        if name is not None:
            item.add_marker(pytest.mark.xdist_group(name))
    yield
    items.sort(key=lambda item: [SESSION, PROCESSES, None].index(groups[item]))


def _group(item: pytest.Item) -> str | None:
    if SESSION in getattr(item, "fixturenames", ()):
        return SESSION
    return PROCESSES if any(part in item.nodeid for part in OWN_JVM) else None
