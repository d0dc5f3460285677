"""Options of the whole suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make bench-decisions` sets them; in the suite decisions run few and small, to see that they run."""
    parser.addoption("--decision-queries", dest="decision_queries", type=int, default=50)
    parser.addoption("--decision-rounds", dest="decision_rounds", type=int, default=20)
