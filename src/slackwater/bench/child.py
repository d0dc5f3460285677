"""A benchmark's child process, and whom it talks to: a spec comes in, what is under way goes out, then the result."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import msgspec

from slackwater.errors import SlackwaterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Spec = TypeVar("_Spec")
_MOST_WARNINGS = 20


def answer(kind: type[_Spec], run: Callable[[_Spec], object]) -> None:
    """The main function of a child process: a spec comes in on stdin, its result goes out on stdout."""
    out = lone_stdout()
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=kind)
    try:
        result = run(spec)
    except SlackwaterError as error:
        print(json.dumps({"error": str(error)}), file=sys.stderr, flush=True)
        sys.exit(1)
    with out:
        out.write(msgspec.json.encode(result))


def lone_stdout() -> BinaryIO:
    """Stdout for this process's own answers: the JVM inherits it and may print, which goes to stderr from now on."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return out


def report(state: str, **facts: Any) -> None:
    """What is under way: one JSON object a line, on stderr."""
    print(json.dumps({"state": state, **facts}), file=sys.stderr, flush=True)


def now_ms() -> int:
    return round(time.time() * 1000)


@contextmanager
def kept_warnings() -> Iterator[list[str]]:
    """What Slackwater warns of meanwhile: it never fails a query, so the log is where trouble shows."""
    kept = _Warnings()
    logger = logging.getLogger("slackwater")
    logger.addHandler(kept)
    try:
        yield kept.texts
    finally:
        logger.removeHandler(kept)


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.texts) < _MOST_WARNINGS:
            self.texts.append(record.getMessage())
