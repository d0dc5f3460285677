"""Rules over a query's progress: offsets that stop, a watermark that stalls, results that come later and later.

What is a long pause differs by query: each rule learns the pauses that are usual and only then calls one too long.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slackwater.core.model import Stage
from slackwater.supervision.alarms import Finding, Kind
from slackwater.supervision.seen import is_paused, whose

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slackwater.endpoint.overview import QueryOverview
    from slackwater.supervision.seen import Seen
    from slackwater.supervision.settings import Alarms

_PAUSES_KEPT = 20
_TIMES_USUAL = 4.0
_SAME_S = 0.01


@dataclass(slots=True)
class Pauses:
    """How long it usually takes from one event to the next of its kind."""

    last_wall_ts: float | None = None
    spans_s: deque[float] = field(default_factory=lambda: deque(maxlen=_PAUSES_KEPT))

    def happened(self, wall_ts: float) -> None:
        if self.last_wall_ts is not None and wall_ts > self.last_wall_ts:
            self.spans_s.append(wall_ts - self.last_wall_ts)
        self.last_wall_ts = wall_ts

    def too_long_s(self, least_s: float) -> float:
        return max(least_s, _TIMES_USUAL * max(self.spans_s, default=0.0))


class Stopped:
    """A query that has had rows reads none any more."""

    def __init__(self) -> None:
        self._known: dict[str, Pauses] = {}

    def findings(self, seen: Seen, settings: Alarms) -> Iterator[Finding]:
        self._known = {query.key: self._known.get(query.key, Pauses()) for query in seen.overview.queries}
        for ran in seen.ran:
            if ran.rows > 0 and ran.key in self._known:
                self._known[ran.key].happened(ran.ended_wall_ts)
        for query in seen.overview.queries:
            pauses = self._known[query.key]
            if pauses.last_wall_ts is None:
                continue
            if is_paused(query):
                pauses.last_wall_ts = seen.now_wall_ts
            pause_s = seen.now_wall_ts - pauses.last_wall_ts
            runs = query.stage in (Stage.DATA, Stage.SWEEP)
            yield Finding(
                kind=Kind.STOPPED,
                whose=whose(query),
                verdict="wrong" if pause_s > pauses.too_long_s(settings.stopped_s) else "right",
                query=query.name,
                key=query.key,
                what=f"no batch with rows has ended for {pause_s:.0f} s"
                + (", and one is running." if runs else "; its source has given none since."),
                what_to_do="See in Spark's page what its batch waits for."
                if runs
                else f"See whether its source still gets rows{_names(query)}; stop the query if it has ended.",
            )


def _names(query: QueryOverview) -> str:
    return f" ({', '.join(query.reads)})" if query.reads else ""


@dataclass(slots=True)
class _Mark:
    event_ts: float | None = None
    moves: Pauses = field(default_factory=Pauses)
    rows_wall_ts: float | None = None


class Stalled:
    """Rows come, and the watermark stands. With several inputs, the one furthest behind holds it."""

    def __init__(self) -> None:
        self._known: dict[str, _Mark] = {}

    def findings(self, seen: Seen, settings: Alarms) -> Iterator[Finding]:
        self._known = {query.key: self._known.get(query.key, _Mark()) for query in seen.overview.queries}
        for ran in seen.ran:
            if ran.rows > 0 and ran.key in self._known:
                self._known[ran.key].rows_wall_ts = ran.ended_wall_ts
        for query in seen.overview.queries:
            if query.watermark_lag_s is None:
                continue
            mark = self._known[query.key]
            event_ts = seen.now_wall_ts - query.watermark_lag_s
            if mark.event_ts is None or event_ts > mark.event_ts + _SAME_S or is_paused(query):
                mark.event_ts = event_ts
                mark.moves.happened(seen.now_wall_ts)
            moved_wall_ts = mark.moves.last_wall_ts or seen.now_wall_ts
            stands_s = seen.now_wall_ts - moved_wall_ts
            long = stands_s > mark.moves.too_long_s(settings.stalled_s)
            rows_came = mark.rows_wall_ts is not None and mark.rows_wall_ts > moved_wall_ts
            yield Finding(
                kind=Kind.STALLED,
                whose=whose(query),
                verdict="right" if not long else "wrong" if rows_came else "neither",
                query=query.name,
                key=query.key,
                what=f"rows come, and its watermark has not moved for {stands_s:.0f} s: {holder(query)}.",
                what_to_do="No window leaves until it moves. See why that input gives no newer event times; for inputs "
                "that may be idle, set spark.sql.streaming.multipleWatermarkPolicy=max, or send them a heartbeat.",
            )


def holder(query: QueryOverview) -> str:
    """Which input holds the watermark: one without rows, else the one furthest behind."""
    lags = query.input_lags_s
    if len(lags) < 2:
        return "no row had a newer event time"
    silent = [index for index, lag_s in enumerate(lags) if lag_s is None]
    index = silent[0] if silent else max(range(len(lags)), key=lambda at: lags[at] or 0.0)
    name = query.reads[index] if len(query.reads) == len(lags) else f"input {index + 1} of {len(lags)}"
    lag_s = lags[index]
    return f"{name} has had no rows" if lag_s is None else f"{name} is idle, {lag_s:.0f} s behind"


@dataclass(slots=True)
class _Steps:
    """The least lag of each step. A step has at least two signs of progress, so that no step is all waiting."""

    began_wall_ts: float
    sign: float | None = None
    signs: int = 0
    least_s: float | None = None
    done_s: deque[float] = field(default_factory=deque)

    def take(self, lag_s: float, sign: float, now_wall_ts: float, step_s: float, keep: int) -> None:
        if self.sign is None or abs(sign - self.sign) > _SAME_S:
            self.sign = sign
            self.signs += 1
        self.least_s = lag_s if self.least_s is None else min(self.least_s, lag_s)
        if now_wall_ts - self.began_wall_ts >= step_s and self.signs >= 2:
            self.done_s.append(self.least_s)
            self.began_wall_ts, self.signs, self.least_s = now_wall_ts, 0, None
        while len(self.done_s) > keep:
            self.done_s.popleft()

    @property
    def growths_s(self) -> list[float]:
        done = list(self.done_s)
        return [later - earlier for earlier, later in itertools.pairwise(done)]


class Behind:
    """Progress is made, and results come later and later: the work is more than the query gets done."""

    def __init__(self) -> None:
        self._known: dict[str, _Steps] = {}

    def findings(self, seen: Seen, settings: Alarms) -> Iterator[Finding]:
        now = seen.now_wall_ts
        self._known = {query.key: self._known.get(query.key) or _Steps(now) for query in seen.overview.queries}
        for query in seen.overview.queries:
            if is_paused(query):
                self._known[query.key] = _Steps(now)
                continue
            steps = self._known[query.key]
            measured = _lag(query, now)
            if measured is not None:
                steps.take(*measured, now, settings.step_s, settings.behind_steps + 1)
            growths_s = steps.growths_s
            grown_s = sum(growths_s)
            steady = len(growths_s) >= settings.behind_steps and all(grown > 0 for grown in growths_s)
            yield Finding(
                kind=Kind.BEHIND,
                whose=whose(query),
                verdict="wrong"
                if steady and grown_s >= settings.behind_s
                else "neither"
                if growths_s and growths_s[-1] > 0
                else "right",
                query=query.name,
                key=query.key,
                what=f"it falls behind: its lag grew by {grown_s:.0f} s in {len(growths_s)} steps, to "
                f"{steps.done_s[-1] if steps.done_s else 0.0:.0f} s.",
                what_to_do="It gets more rows than it gets done. Give it more cores or a smaller class, or lighten "
                "its work; `slackwater doctor` names settings that cost time.",
                clear_s=settings.clear_s,
            )


def _lag(query: QueryOverview, now_wall_ts: float) -> tuple[float, float] | None:
    """How far behind it is, and a number that changes with its progress."""
    if query.watermark_lag_s is not None:
        return query.watermark_lag_s, now_wall_ts - query.watermark_lag_s
    if query.rows_per_s > 0:
        return query.backlog_rows / query.rows_per_s, float(query.batches)
    return None
