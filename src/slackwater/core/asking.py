"""Asking a policy, whatever it does: its answer is checked, and while it raises or talks nonsense another decides."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING

from slackwater.core.model import Choice, Snapshot

if TYPE_CHECKING:
    from slackwater.core.history import History
    from slackwater.core.model import Policy

log = logging.getLogger("slackwater")

_TROUBLE_SILENCE_S = 60.0

Metrics = Callable[[Snapshot, Iterable[str]], Mapping[str, Sequence[float]]]


class Asking:
    """`metrics` computes what a policy declares in `needs`; the fallback needs none."""

    def __init__(self, fallback: Policy, metrics: Metrics | None, history: History) -> None:
        self._fallback = fallback
        self._metrics = metrics
        self._history = history
        self._troubled = False
        self._told_wall_ts = -math.inf

    def choices(self, policy: Policy, snapshot: Snapshot) -> dict[str, Choice]:
        """The policy's choices, or the fallback's for this step if the policy raises or talks nonsense."""
        try:
            choices = _checked(policy.decide(self._measured(policy, snapshot)), snapshot)
            self._troubled = False
            return choices
        except Exception as error:
            if not self._troubled:
                self._history.add(snapshot.wall_ts, "trouble", "", f"{type(error).__name__}: {error}")
            self._troubled = True
            if snapshot.wall_ts - self._told_wall_ts > _TROUBLE_SILENCE_S:
                self._told_wall_ts = snapshot.wall_ts
                story = "\n".join(f"  {e.kind}: {e.key} {e.what}" for e in self._history.recent(limit=10))
                log.warning(
                    "policy %r failed (%s: %s); %r decides until it recovers. What led there:\n%s",
                    policy.name,
                    type(error).__name__,
                    error,
                    self._fallback.name,
                    story,
                )
            return _checked(self._fallback.decide(snapshot), snapshot)

    def switched(self) -> None:
        """What the next policy does wrong is its own trouble."""
        self._troubled = False

    def step_clock(self, by_s: float) -> None:
        self._told_wall_ts += by_s

    def _measured(self, policy: Policy, snapshot: Snapshot) -> Snapshot:
        needs = getattr(policy, "needs", ())
        if not needs or self._metrics is None or not _asks(policy, snapshot):
            return snapshot
        return replace(snapshot, metrics=self._metrics(snapshot, needs))


def _asks(policy: Policy, snapshot: Snapshot) -> bool:
    """Whether the policy will look at this snapshot; one with a period of its own may not."""
    asks = getattr(policy, "asks", None)
    return asks is None or bool(asks(snapshot))


def _checked(choices: list[Choice], snapshot: Snapshot) -> dict[str, Choice]:
    known = {view.key for view in snapshot.queries}
    out: dict[str, Choice] = {}
    for choice in choices:
        if not isinstance(choice, Choice):
            raise TypeError(f"a policy answers with Choice objects, not {type(choice).__name__}")
        if choice.key not in known:
            raise LookupError(f"the policy named an unknown query {choice.key!r}")
        if choice.key in out:
            raise ValueError(f"the policy named query {choice.key!r} twice")
        if not math.isfinite(choice.urgency):
            raise ValueError(f"the policy gave query {choice.key!r} the urgency {choice.urgency!r}")
        if choice.wake_wall_ts is not None and not math.isfinite(choice.wake_wall_ts):
            raise ValueError(f"the policy wants to wake for query {choice.key!r} at {choice.wake_wall_ts!r}")
        if choice.lane is not None and not (isinstance(choice.lane, (int, Integral)) and choice.lane >= 0):
            raise ValueError(f"the policy gave query {choice.key!r} the lane {choice.lane!r}; they count from 0")
        if not (isinstance(choice.batches, (int, Integral)) and choice.batches >= 1):
            raise ValueError(f"the policy gave query {choice.key!r} a turn of {choice.batches!r} batches")
        out[choice.key] = choice
    return out
