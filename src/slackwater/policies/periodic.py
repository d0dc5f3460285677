"""A policy with a period of its own (Haren's P): its last order stands until the period is over."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from slackwater.core.model import Choice, Policy, Snapshot


class Periodic:
    """Asks another policy once a period, or when queries come and go; else repeats what it said."""

    def __init__(self, policy: Policy, period_s: float) -> None:
        if not (isinstance(period_s, int | float) and 0 < period_s < math.inf):
            raise ConfigurationError(f"period_s={period_s!r}: a positive number of seconds is needed.")
        self.policy = policy
        self.period_s = period_s
        self.name = policy.name
        self.enforces = policy.enforces
        self.needs: tuple[str, ...] = getattr(policy, "needs", ())
        self.max_wait_s: float | None = getattr(policy, "max_wait_s", None)
        self._said: list[Choice] = []
        self._keys: tuple[str, ...] = ()
        self._asked_wall_ts = -math.inf

    def asks(self, snapshot: Snapshot) -> bool:
        """Whether the period is over, the clock went back, or other queries are there."""
        since_s = snapshot.wall_ts - self._asked_wall_ts
        return not 0 <= since_s < self.period_s or _keys(snapshot) != self._keys

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        if self.asks(snapshot):
            self._said = self.policy.decide(snapshot)
            self._asked_wall_ts, self._keys = snapshot.wall_ts, _keys(snapshot)
        return self._said


def _keys(snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(query.key for query in snapshot.queries)
