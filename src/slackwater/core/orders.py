"""What people ordered for single queries: paused, or put into another class, whatever the policy says.

Kept by query id: a query that is started again stays paused, and in its class. Of queries that never come back the
oldest orders are forgotten once there are many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from slackwater.core.history import History
    from slackwater.core.model import Policy
    from slackwater.core.query import QueryState

_GREATEST_CLASS = 1000
_MOST_KEPT = 1000
T = TypeVar("T")


class Orders:
    def __init__(self, history: History) -> None:
        self._history = history
        self._paused: dict[str, float] = {}
        self._classes: dict[str, int] = {}

    def pause(self, state: QueryState, policy: Policy, now_wall_ts: float) -> None:
        """No turn for it, however long it waits, until it is resumed. A turn that runs is finished."""
        facts = state.facts
        if not facts.gated:
            raise ConfigurationError(f"{facts.name!r} cannot be paused: its trigger is one that no gate holds.")
        if not policy.enforces:
            raise ConfigurationError(
                f"{facts.name!r} cannot be paused while the policy {policy.name!r} only watches. "
                "Switch to one that schedules first."
            )
        if state.paused_wall_ts is None:
            _keep(self._paused, facts.query_id, now_wall_ts)
            state.pause(now_wall_ts)
            self._history.add(now_wall_ts, "ordered", facts.key, "paused")

    def resume(self, state: QueryState, now_wall_ts: float) -> None:
        if state.paused_wall_ts is not None:
            self._paused.pop(state.facts.query_id, None)
            paused_s = now_wall_ts - state.paused_wall_ts
            state.resume()
            self._history.add(now_wall_ts, "ordered", state.facts.key, f"resumed after {paused_s:.0f} s")

    def set_class(self, state: QueryState, priority_class: int, now_wall_ts: float) -> None:
        """Queries of a smaller class go before those of a greater one."""
        if not -_GREATEST_CLASS <= priority_class <= _GREATEST_CLASS:
            raise ConfigurationError(
                f"class {priority_class!r}: from {-_GREATEST_CLASS} to {_GREATEST_CLASS} is possible; 0 is usual, "
                "smaller goes first."
            )
        before = state.facts.options.priority_class
        _keep(self._classes, state.facts.query_id, priority_class)
        state.reclass(priority_class)
        self._history.add(now_wall_ts, "ordered", state.facts.key, f"from class {before} to {priority_class}")

    def apply_to(self, state: QueryState) -> None:
        """A query that has come, perhaps again."""
        query_id = state.facts.query_id
        if query_id in self._classes:
            state.reclass(self._classes[query_id])
        if query_id in self._paused:
            state.pause(self._paused[query_id])

    def __len__(self) -> int:
        return len(self._paused) + len(self._classes)


def _keep(orders: dict[str, T], query_id: str, order: T) -> None:
    orders.pop(query_id, None)
    while len(orders) >= _MOST_KEPT:
        del orders[next(iter(orders))]
    orders[query_id] = order
