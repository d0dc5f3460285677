"""Klink: least slack first (Algorithm 1), made aware of what a micro-batch costs.

A turn before the sweeping watermark can be read emits nothing and pays a batch's fixed cost `a` again, so a query
waits until its watermark is there with the configured confidence; then the least slack goes first. Preparing
earlier pays only where the work that piles up, b·rows, outweighs `a`: then one batch is placed to end as the
watermark arrives, and what is left for the turn itself shrinks geometrically. The knob says how much must pile up.
Where many windows end together (crowd.py) less must pile up, since all who wait behind pay for it.
Where a batch has no fixed cost (a tuple-at-a-time engine) nobody waits, and the paper's algorithm is what is left.

When memory reaches its bound, the memory manager (3.4) takes over for a while: whoever frees most goes first, ties by
slack, on half of the lanes, and nobody who frees nothing starts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from slackwater.core.memory import MemoryManager
from slackwater.core.model import Choice
from slackwater.core.slack import expected_slack
from slackwater.errors import ConfigurationError
from slackwater.policies.crowd import ALONE, places

if TYPE_CHECKING:
    from slackwater.core.model import Knob, QueryView, Snapshot
    from slackwater.policies.crowd import Place

# Preparing pays when the work that would wait at the watermark exceeds this many fixed costs.
_MOST_PREPARATIONS = 6
_PREPARE_ABOVE: dict[str, float] = {"cost": math.inf, "balanced": 2.0, "latency": 0.5}


class Klink:
    """Least slack first; near the memory bound, whoever frees most."""

    name = "klink"
    enforces = True

    def __init__(self, knob: Knob = "balanced", memory_bound: float | None = 0.75) -> None:
        if knob not in _PREPARE_ABOVE:
            raise ConfigurationError(f"knob={knob!r}: one of {', '.join(_PREPARE_ABOVE)} is needed.")
        self.knob = knob
        self.memory_bound = memory_bound
        self.manager = MemoryManager(memory_bound) if memory_bound is not None else None

    def decide(self, snapshot: Snapshot) -> list[Choice]:
        crowds = places(snapshot.queries, max(1, min(snapshot.lanes, snapshot.cores)))
        choices = [
            self._choose(query, slack, snapshot.wall_ts, crowds.get(query.key, ALONE))
            for query, slack in zip(snapshot.queries, _slacks(snapshot), strict=True)
        ]
        if self.manager is None or not self.manager.rules(snapshot.wall_ts, snapshot.memory):
            return choices
        return _freeing(snapshot, choices)

    def _choose(self, query: QueryView, slack: float, now: float, place: Place) -> Choice:
        sure = query.swm_sure_wall_ts
        if query.deadline_s is not None and query.window_end_event_ts is not None:
            slack = min(slack, query.window_end_event_ts + query.deadline_s - now - query.turn_cost_s)
        if query.sweep_pending and not self._rides(query, query.pending_end_event_ts, now):
            overdue_s = now - query.waiting_since_wall_ts
            return Choice(query.key, True, -overdue_s - query.batch_cost_s, "a window is ready to be emitted")
        if now >= sure:
            sweep = not self._rides(query, query.window_end_event_ts, now)
            reason = f"its sweeping watermark is due; slack {slack:+.2f} s"
            return Choice(query.key, True, slack, reason, sweep=sweep)
        if query.batch_cost_s <= 0:
            return Choice(query.key, True, slack, f"its sweeping watermark is expected in {sure - now:.1f} s")
        prepare = self._prepare_at(query, place)
        if prepare is not None and now >= prepare:
            return Choice(query.key, True, slack, f"prepares for a watermark in {sure - now:.1f} s")
        wake = sure if prepare is None else min(prepare, sure)
        return Choice(query.key, False, slack, f"waits for a watermark in {sure - now:.1f} s", wake)

    def _rides(self, query: QueryView, end_event_ts: float | None, now: float) -> bool:
        """Under the cost knob the sweep of a window may wait for the next window's data batch.

        With a deadline, if that batch keeps it; without one, every other window's: three batches for two windows.
        The name decides which, so that not all queries ride at once.
        """
        if self.knob != "cost" or end_event_ts is None or query.slide_s is None:
            return False
        lag_s = max(0.0, query.swm_wall_ts - (query.window_end_event_ts or end_event_ts))
        out_after_s = query.slide_s + lag_s + query.batch_cost_s + query.row_cost_s * query.backlog_rows
        if now > end_event_ts + 1.5 * out_after_s:
            return False
        if query.deadline_s is not None:
            return out_after_s <= query.deadline_s
        return (round(end_event_ts / query.slide_s) + crc32(query.name.encode())) % 2 == 1

    def _prepare_at(self, query: QueryView, place: Place) -> float | None:
        """When the first preparing batch must start so that the last one ends as the watermark arrives.

        With ρ = b·rate, a batch begun x after the last one takes a + ρ·x, the next one a + ρ·(a + ρ·x), and so on:
        as many as leave less to do than the knob allows. None where even no preparation does. In a crowd the last one
        ends earlier by the lead, so that others can prepare after it, and less may be left, as more wait for it.
        """
        if not query.windowed:
            return None
        rho, a = query.row_cost_s * query.rows_per_s, query.batch_cost_s
        until_swm_s = query.swm_wall_ts - query.offsets_wall_ts
        horizon_s = until_swm_s - place.lead_s
        allowed_s = _PREPARE_ABOVE[self.knob] * a / place.behind
        start_s, left_s = math.inf, rho * until_swm_s
        fixed, slope, fixed_sum, slope_sum = a, rho, 0.0, 0.0
        for _ in range(_MOST_PREPARATIONS):
            if left_s <= allowed_s:
                break
            fixed_sum, slope_sum = fixed_sum + fixed, slope_sum + slope
            x = (horizon_s - fixed_sum) / (1 + slope_sum)
            if x <= place.lead_s:  # it would leave more for later than it takes
                break
            start_s, left_s = x, rho * (fixed + slope * x + place.lead_s)
            fixed, slope = a + rho * fixed, rho * slope
        return query.offsets_wall_ts + start_s if math.isfinite(start_s) else None


class KlinkNoMm(Klink):
    """Least slack first, whatever the memory."""

    name = "klink-no-mm"

    def __init__(self, knob: Knob = "balanced") -> None:
        super().__init__(knob, memory_bound=None)


def _slacks(snapshot: Snapshot) -> list[float]:
    columns = np.array(
        [(q.swm_wall_ts, q.swm_sigma_s, q.swm_sure_wall_ts, q.turn_cost_s) for q in snapshot.queries], np.float64
    ).reshape(-1, 4)
    slacks: list[float] = expected_slack(snapshot.wall_ts, *columns.T).tolist()
    return slacks


def _freeing(snapshot: Snapshot, choices: list[Choice]) -> list[Choice]:
    memory = snapshot.memory
    share = 100 * memory.used_bytes / memory.max_bytes if memory else 0.0
    freeable = {query.key: query.freeable_bytes for query in snapshot.queries}
    order = sorted(choices, key=lambda choice: (-freeable[choice.key], choice.urgency, choice.key))
    busy = snapshot.lanes - snapshot.lanes_free
    room = max(1, snapshot.lanes // 2) - busy
    waiting = [query.key for query in snapshot.queries if query.eligible and query.freeable_bytes > 0]
    started = [choice.key for choice in order if choice.key in set(waiting)][: max(0, room)]
    out = []
    for place, choice in enumerate(order):
        frees = freeable[choice.key]
        what = f"frees {frees / 2**20:.1f} MB" if frees > 0 else "would free nothing: waits"
        reason = f"memory is {share:.0f} % full: {what}"
        start = choice.key in started
        out.append(Choice(choice.key, start, float(place), reason, choice.wake_wall_ts, freeing=frees > 0))
    return out
