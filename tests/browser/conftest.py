"""A browser for the module, or the reason why there is none."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser import chromium

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def browser() -> Iterator[chromium.Chromium]:
    program = chromium.found()
    if program is None:
        pytest.skip("no Chromium was found: apt-get install chromium, or name one in $CHROMIUM")
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        chromium.Chromium(program, Path(profile)) as started,
    ):
        yield started
