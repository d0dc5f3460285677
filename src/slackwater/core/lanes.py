"""How many turns run at once: enough to keep the cores busy, no more.

As many lanes as cores is where it starts, and where it stays on a machine that this saturates. Part of a batch waits
(for logs, for other executors), so cores may idle with all lanes taken: then one lane more, and one less when the cores
are full again. What counts is the busier of the two, the driver's processors and the tasks' cores: more turns than the
driver can plan help nobody.

On a cluster cores come and go. Without any, one turn may still start: its tasks are what asks for an executor. Where
the cluster grows on demand, waiting turns add lanes though the cores are full, because Spark asks for more executors
only while tasks wait all the time.
"""

from __future__ import annotations

import math

_LOOK_EVERY_S = 2.0
_IDLE_BELOW = 0.85
_FULL_ABOVE = 0.97
_MOST_TIMES_CORES = 2
_MOST_EXTRA_TO_GROW = 4


class AdaptiveLanes:
    """Feed it what each report says; `lanes` is the answer."""

    def __init__(self) -> None:
        self._extra = 0
        self._cores = 0
        self._began_wall_ts = math.nan
        self._began_cpu_s = 0.0
        self._seen_wall_ts = math.nan
        self._task_s = 0.0
        self._pressed_s = 0.0

    def lanes(self, cores: int) -> int:
        return max(1, cores + self._extra)

    def observe(
        self,
        now_wall_ts: float,
        *,
        cores: int,
        tasks: int,
        cpu_s: float | None,
        processors: int,
        pressed: bool,
        elastic: bool = False,
    ) -> None:
        """`pressed`: all lanes are taken, and a turn waits that the policy wants to start."""
        if cpu_s is None or processors <= 0:
            return
        passed_s = now_wall_ts - self._seen_wall_ts
        if not 0 <= passed_s < _LOOK_EVERY_S or cores != self._cores:
            self._extra = 0 if cores != self._cores else self._extra
            self._cores = cores
            self._begin(now_wall_ts, cpu_s)
            return
        self._seen_wall_ts = now_wall_ts
        self._task_s += tasks * passed_s
        self._pressed_s += passed_s * pressed
        span_s = now_wall_ts - self._began_wall_ts
        if span_s >= _LOOK_EVERY_S:
            busy = max((cpu_s - self._began_cpu_s) / (processors * span_s), self._task_s / (max(1, cores) * span_s))
            self._adapt(busy, pressed_share=self._pressed_s / span_s, elastic=elastic)
            self._begin(now_wall_ts, cpu_s)

    def _adapt(self, busy: float, pressed_share: float, *, elastic: bool) -> None:
        if pressed_share > _IDLE_BELOW and (busy < _IDLE_BELOW or elastic):
            most = (_MOST_TIMES_CORES - 1) * self._cores
            self._extra = min(self._extra + 1, max(most, _MOST_EXTRA_TO_GROW) if elastic else most)
        elif self._extra and (busy > _FULL_ABOVE or pressed_share < 1 - _IDLE_BELOW):
            self._extra -= 1

    def _begin(self, now_wall_ts: float, cpu_s: float) -> None:
        self._began_wall_ts = self._seen_wall_ts = now_wall_ts
        self._began_cpu_s, self._task_s, self._pressed_s = cpu_s, 0.0, 0.0
