"""A policy with a period of its own (Haren's P): its last order stands until the period is over."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from slackwater.core.model import Stage
from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from slackwater.core.model import Choice, Policy, Snapshot


class Periodic:
    """Asks another policy once a period, or when queries come and go; else repeats what it said.

    What it says is for the whole period, and a query that runs now may be back at its gate before that is over. So the
    policy is asked as if every gated query could start; the engine grants only to those that can when a lane is free.
    """

    def __init__(self, policy: Policy, period_s: float) -> None:
        if not (isinstance(period_s, int | float) and 0 < period_s < math.inf):
            raise ConfigurationError(f"period_s={period_s!r}: a positive number of seconds is needed.")
        self.policy = policy
        self.period_s = period_s
        self.name = policy.name
        self.enforces: bool = getattr(policy, "enforces", True)
        self.needs: tuple[str, ...] = getattr(policy, "needs", ())
        self.max_wait_s: float | None = getattr(policy, "max_wait_s", None)
        self._said: list[Choice] = []
        self._keys: tuple[str, ...] = ()
        self._asked_wall_ts = -math.inf
        self._stands_until_wall_ts = -math.inf

    def asks(self, snapshot: Snapshot) -> bool:
        """Whether the period is over, the clock went back, or other queries are there."""
        stands = self._asked_wall_ts <= snapshot.wall_ts < self._stands_until_wall_ts
        return not stands or _keys(snapshot) != self._keys

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        if self.asks(snapshot):
            until = snapshot.wall_ts + self.period_s
            queries = tuple(
                replace(query, eligible=query.stage not in (Stage.UNGATED, Stage.PAUSED)) for query in snapshot.queries
            )
            said = self.policy.decide(replace(snapshot, queries=queries))
            self._said = [_not_before(choice, until) for choice in said]
            self._asked_wall_ts, self._stands_until_wall_ts = snapshot.wall_ts, until
            self._keys = _keys(snapshot)
        return self._said


def at_its_period(policy: Policy) -> Policy:
    """The policy, asked only once a period if it declares a `period_s` and does not keep it itself."""
    period_s = getattr(policy, "period_s", None)
    return policy if period_s is None or hasattr(policy, "asks") else Periodic(policy, period_s)


def _not_before(choice: Choice, until_wall_ts: float) -> Choice:
    """Nobody is asked before the period is over, so waking earlier is in vain."""
    if choice.wake_wall_ts is None or choice.wake_wall_ts >= until_wall_ts:
        return choice
    return choice.but(wake_wall_ts=until_wall_ts)


def _keys(snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(query.key for query in snapshot.queries)
