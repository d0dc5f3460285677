"""A policy that does as another one until it is told to go astray."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slackwater.core.model import Choice

if TYPE_CHECKING:
    from slackwater.core.model import Policy, Snapshot

Answer = Callable[["Snapshot"], Any]


class Wayward:
    """Has all other properties of the policy that it is made of."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._astray: Answer | None = None
        self.name = policy.name
        self.enforces = policy.enforces
        self.astray_answers = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def decide(self, snapshot: Snapshot) -> Any:
        astray = self._astray
        if astray is None:
            return self._policy.decide(snapshot)
        self.astray_answers += 1
        answer = astray(snapshot)
        return self._policy.decide(snapshot) if answer is AS_EVER else answer

    def go_astray(self, answer: Answer) -> None:
        """From the next decision on. An answer of AS_EVER leaves the decision to the policy."""
        self.astray_answers = 0
        self._astray = answer

    def come_back(self) -> None:
        self._astray = None


AS_EVER = object()


def _raises(_: Snapshot) -> Any:
    raise RuntimeError("no idea")


def _recurses(snapshot: Snapshot) -> Any:
    return _recurses(snapshot)


def _all(snapshot: Snapshot, **said: Any) -> list[Choice]:
    usual: dict[str, Any] = {"start": True, "urgency": 0.0, "reason": "?"}
    return [Choice(**{"key": query.key, **usual, **said}) for query in snapshot.queries]


NONSENSE: dict[str, Answer] = {
    "raises": _raises,
    "never returns from itself": _recurses,
    "a query that is none": lambda _: [Choice("nobody", True, 0.0, "?")],
    "every query twice": lambda snapshot: _all(snapshot) * 2,
    "an urgency that is no number": lambda snapshot: _all(snapshot, urgency=math.nan),
    "an urgency without end": lambda snapshot: _all(snapshot, urgency=-math.inf),
    "an urgency in words": lambda snapshot: _all(snapshot, urgency="very"),
    "a time that is no number": lambda snapshot: _all(snapshot, wake_wall_ts=math.nan),
    "a lane that is no number": lambda snapshot: _all(snapshot, lane=math.nan),
    "half a lane": lambda snapshot: _all(snapshot, lane=0.5),
    "a turn without end": lambda snapshot: _all(snapshot, batches=math.inf),
    "keys that cannot be looked up": lambda snapshot: _all(snapshot, key=[]),
    "nothing": lambda _: None,
    "a number": lambda _: 42,
    "names": lambda snapshot: [q.key for q in snapshot.queries],
    "the same without end": lambda snapshot: itertools.repeat(_all(snapshot)[0]) if snapshot.queries else None,
}


def nonsense() -> Answer:
    """Another kind with every decision."""
    kinds = itertools.cycle(NONSENSE.values())

    def answer(snapshot: Snapshot) -> Any:
        return next(kinds)(snapshot)

    return answer


def dying(_: Snapshot) -> Any:
    """No Exception, all of which the scheduler survives: its thread ends without a word."""
    raise SystemExit


def hanging(until: threading.Event) -> Answer:
    def answer(_: Snapshot) -> Any:
        until.wait()
        return AS_EVER

    return answer


def dawdling(seconds: float) -> Answer:
    """Takes long, and then decides well."""
    never = threading.Event()

    def answer(_: Snapshot) -> Any:
        never.wait(seconds)
        return AS_EVER

    return answer


def refusing(snapshot: Snapshot) -> list[Choice]:
    return _all(snapshot, start=False)
