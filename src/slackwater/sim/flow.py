"""How work moves through chains in one slice of time, for all queries at once.

Pointers have a row for each query: column 0 is what the source let in, column k + 1 what operator k has dealt with, all
in source events; costs are core-seconds for one source event. Inside a slice rates are constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.intp]
    Share = Callable[[Floats, float], Floats]

_ROUNDS = 12
_LEFT_SHARE = 1e-3


def sink_first(pointers: Floats, costs: Floats, slice_s: float, budget_s: Floats, last: Ints | None = None) -> Floats:
    """Advance of each operator if the events nearest to the sink go first, within a budget of core-seconds a query.

    An operator has one thread, so no more than the slice; events go as far as there is room, and an operator does not
    run ahead of a slower one behind it. `last` is the last operator that may run, by query; None: all may.
    """
    operators = costs.shape[1]
    if last is not None:
        costs = np.where(np.arange(operators) <= last[:, None], costs, 0.0)
    moved = np.zeros_like(costs)
    room = np.full_like(costs, slice_s)
    budget = budget_s.copy()
    waiting = pointers[:, :-1] - pointers[:, 1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        for k in reversed(range(operators)):
            if not (waiting[:, k] > 0).any():
                continue
            tail = costs[:, k:]
            whole = tail.sum(axis=1)
            fits = np.fmin.reduce(room[:, k:] / tail, axis=1)
            count = np.fmin(np.minimum(waiting[:, k], fits), budget / whole)
            if last is not None:
                count = np.where(last >= k, count, 0.0)
            count = np.maximum(count, 0.0)
            part = count[:, None] * tail
            moved[:, k:] += count[:, None] if last is None else np.where(tail > 0, count[:, None], 0.0)
            room[:, k:] -= part
            budget -= part.sum(axis=1)
    return moved


def in_order(demand: Floats, order: Ints, total: float) -> Floats:
    """Everyone's demand in order until the total is used up: priority, work-conserving."""
    wanted = demand[order]
    before = np.cumsum(wanted) - wanted
    out = np.empty_like(demand)
    out[order] = np.clip(total - before, 0.0, wanted)
    return out


def evenly(demand: Floats, total: float) -> Floats:
    """Max-min fair shares: processor sharing over all that have work, nobody more than it can use."""
    if demand.sum() <= total:
        return demand
    flat = np.sort(demand[demand > 0], axis=None)
    left = total - np.concatenate(([0.0], np.cumsum(flat)[:-1]))
    level = left / np.arange(len(flat), 0, -1)
    found: Floats = np.minimum(demand, level[np.argmax(flat >= level)])
    return found


def by_operator(pointers: Floats, costs: Floats, slice_s: float, total_s: float, share: Share) -> Floats:
    """Advance of each operator when operators compete by themselves for `total_s` core-seconds.

    What an operator puts out can be taken by the next one within the slice. A share that counted on input which did not
    come is left over, and goes to what really waits: so nothing is idle while there is work.
    """
    before, least_s = pointers, _LEFT_SHARE * total_s
    room = np.full_like(costs, slice_s)
    for again in range(_ROUNDS):
        wanted = _waiting(pointers, costs, room) if again else _forward(pointers, costs, room)
        demand = (wanted - pointers[:, 1:]) * costs
        if not again and demand.sum() <= total_s:
            return wanted - before[:, 1:]
        ended = _forward(pointers, costs, share(demand, total_s))
        used = (ended - pointers[:, 1:]) * costs
        spent_s = float(used.sum())
        pointers = np.concatenate((pointers[:, :1], ended), axis=1)
        room = room - used
        total_s -= spent_s
        if total_s <= least_s or (again and spent_s <= 0):
            break
    return pointers[:, 1:] - before[:, 1:]


def _forward(pointers: Floats, costs: Floats, spend_s: Floats) -> Floats:
    """Where each operator gets with so many core-seconds, fed by the one before it."""
    could = pointers[:, 1:] + spend_s / costs
    ended = np.empty_like(could)
    fed = pointers[:, 0]
    for k in range(could.shape[1]):
        fed = np.minimum(fed, could[:, k])
        ended[:, k] = fed
    return ended


def _waiting(pointers: Floats, costs: Floats, spend_s: Floats) -> Floats:
    """Where each operator gets with so many core-seconds and only what is queued now."""
    return np.minimum(pointers[:, :-1], pointers[:, 1:] + spend_s / costs)


def crossings(times_s: Floats, curve: Floats, places: Floats) -> Floats:
    """When a curve that never falls reaches each place, by straight lines between the times; inf where it does not."""
    found = np.full(len(places), np.inf)
    after = np.searchsorted(curve, places, side="left")
    reached = after < len(curve)
    first = reached & (after == 0)
    found[first] = times_s[0]
    inside = reached & (after > 0)
    high = after[inside]
    low = high - 1
    share = (places[inside] - curve[low]) / (curve[high] - curve[low])
    found[inside] = times_s[low] + share * (times_s[high] - times_s[low])
    return found
