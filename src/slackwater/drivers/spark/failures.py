"""Why a query failed, in a line, out of what Spark says at length."""

from __future__ import annotations

import re

_LONGEST = 400
_TRACEBACK = "Traceback (most recent call last)"
_PREAMBLE = re.compile(r"^[\w.$]*StreamingQueryException: (\[\w+\] )?(Query .*? terminated with exception: )?")


def in_a_line(error: str) -> str:
    """The user's own error where Python code failed: Spark puts its traceback in the middle."""
    lines = error.splitlines()
    for at in reversed([at for at, line in enumerate(lines) if _TRACEBACK in line]):
        told = next((line for line in lines[at + 1 :] if line.strip() and not line[0].isspace()), None)
        if told is not None:
            return told.strip()[:_LONGEST]
    first = next((line.strip() for line in lines if line.strip()), "")
    return (_PREAMBLE.sub("", first) or first)[:_LONGEST]
