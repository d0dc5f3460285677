"""Why a query failed, in a line, out of what Spark says at length, and without the secrets that it may name.

The line goes where anybody on the host can read it, and by a webhook to others: databases and brokers that refuse a
connection say with which address, and that often holds a password.
"""

from __future__ import annotations

import re

_LONGEST = 400
_TRACEBACK = "Traceback (most recent call last)"
_PREAMBLE = re.compile(r"^[\w.$]*StreamingQueryException: (\[\w+\] )?(Query .*? terminated with exception: )?")
_IN_ADDRESS = re.compile(r"(?<=://)([^\s/@:]*):[^\s/@]+@")
_NAMED = re.compile(
    r"""((?:secret|passw(?:or)?d|(?:access|account|api|private)[._-]?key|(?:access|auth|session|sas)[._-]?token"""
    r"""|\b(?:token|sig|pwd)(?==))[\w.-]*["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s"'&;,)\]}]+)""",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Passwords in addresses, and values that are called one, as `…`."""
    return _NAMED.sub(r"\1…", _IN_ADDRESS.sub(r"\1:…@", text))


def in_a_line(error: str) -> str:
    """The user's own error where Python code failed: Spark puts its traceback in the middle."""
    return without_secrets(_line(error)[: 5 * _LONGEST])[:_LONGEST]


def _line(error: str) -> str:
    lines = error.splitlines()
    for at in reversed([at for at, line in enumerate(lines) if _TRACEBACK in line]):
        told = next((line for line in lines[at + 1 :] if line.strip() and not line[0].isspace()), None)
        if told is not None:
            return told.strip()
    first = next((line.strip() for line in lines if line.strip()), "")
    return _PREAMBLE.sub("", first) or first
