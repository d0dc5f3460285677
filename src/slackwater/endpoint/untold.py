"""Requests that no log tells of.

httpx2 logs the whole address of every request, as information. That of a webhook holds a secret; those between chained
schedulers go out many times a second. An application that logs at that level would write both down.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLIENT = "httpx2"


@contextmanager
def untold() -> Iterator[None]:
    """What this thread asks by httpx2 within the block is not logged; what others ask is, as before."""
    asks = threading.get_ident()

    def from_elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != asks

    client = logging.getLogger(_CLIENT)
    client.addFilter(from_elsewhere)
    try:
        yield
    finally:
        client.removeFilter(from_elsewhere)
