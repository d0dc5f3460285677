"""Call records by seed: most numbers call and are called; a few telemarketers call strangers, often and briefly."""

from __future__ import annotations

import random
from typing import Any

TABLES = {
    "calls": "call_id BIGINT, calling STRING, called STRING, answer_ms BIGINT, duration_s BIGINT, established BOOLEAN"
}

NUMBERS = 60
TELEMARKETERS = 3
FRIENDS = 6

_FIRST_MS = 1_600_000_000_000


def calls(seed: int, size: int) -> list[dict[str, Any]]:
    """`size` calls in the order of their answers, about two a second; 95 in 100 are established.

    A telemarketer makes one call in four. Everybody else calls six friends, and a stranger now and then.
    """
    rng = random.Random(f"voip-{seed}")
    at_ms = _FIRST_MS
    found = []
    for call_id in range(size):
        at_ms += rng.randrange(1000)
        selling = rng.random() < 0.25
        caller = rng.randrange(TELEMARKETERS) if selling else rng.randrange(TELEMARKETERS, NUMBERS)
        if selling or rng.random() < 0.1:
            called = (caller + rng.randrange(1, NUMBERS)) % NUMBERS
        else:
            called = (caller + rng.randrange(1, FRIENDS + 1)) % NUMBERS
        found.append(
            {
                "call_id": call_id,
                "calling": _number(caller),
                "called": _number(called),
                "answer_ms": at_ms,
                "duration_s": rng.randrange(1, 20) if selling else rng.randrange(10, 600),
                "established": rng.random() < 0.95,
            }
        )
    return found


def _number(place: int) -> str:
    return f"+49-30-{place:05d}"
