"""A policy that takes the scheduler with it when told to: what a bug that nobody catches would do."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slackwater.core.model import Choice, Policy, Snapshot


class Doomed:
    """Decides as another policy does, and has all its other properties, until it is told to die."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._told = threading.Event()
        self._dead = threading.Event()
        self.name = policy.name
        self.enforces = policy.enforces

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        if self._told.is_set():
            self._dead.set()
            # No Exception, all of which the scheduler survives; the thread ends without a word.
            raise SystemExit
        return self._policy.decide(snapshot)

    def die(self) -> None:
        """With the next decision."""
        self._told.set()

    def await_death(self, timeout_s: float) -> bool:
        return self._dead.wait(timeout_s)
