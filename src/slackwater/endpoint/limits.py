"""How much may be asked of an endpoint: of all clients together, by token buckets, and how long one may take.

A limit is there so that whoever asks too much is refused at once and costs nobody else anything: least of all the
scheduler, which shares its process with the endpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Rate:
    """So many a second in the long run, `burst` at once."""

    per_s: float
    burst: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one endpoint, over all its clients.

    reads: what is read as JSON. pages: the page, its parts and streams (a stream counts when it is opened), and texts
    for collectors: whoever hammers one kind leaves the other alone.
    changes: for each route, with the right token; applications that are chained send letters there.
    wrong_tokens: requests with a wrong token or none. The right one is always heard: guessing must not lock out.
    connections: open at once; one that waits for its next request makes room for a new one.
    request_s: from connecting, or from the last answer, until a request's head must be there. body_s: until its body
    is. taking_s: how long a reader may take nothing of what waits for it.
    head_bytes: of the request line and the headers together.
    """

    reads: Rate = field(default=Rate(50.0, 200))
    pages: Rate = field(default=Rate(50.0, 200))
    changes: Rate = field(default=Rate(200.0, 400))
    wrong_tokens: Rate = field(default=Rate(1.0, 10))
    connections: int = 64
    request_s: float = 20.0
    body_s: float = 10.0
    taking_s: float = 30.0
    head_bytes: int = 16 * 1024


class Bucket:
    """Fills by its rate up to its burst; every request takes one out. For one thread."""

    def __init__(self, rate: Rate, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        self._left = float(rate.burst)
        self._at_s = clock()

    def take(self) -> float:
        """Zero if one could be taken; else after how many seconds there will be one."""
        now_s = self._clock()
        passed_s = max(0.0, now_s - self._at_s)
        self._at_s = now_s
        self._left = min(float(self._rate.burst), self._left + passed_s * self._rate.per_s)
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self._rate.per_s


def retry_after(seconds: float) -> str:
    """For the header of that name, which takes whole seconds."""
    return str(max(1, math.ceil(seconds)))
