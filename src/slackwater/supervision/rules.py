"""When something is wrong: one small rule for each kind of alarm, over what the scheduler tells. Pure.

A rule is asked once a look and keeps what it needs to compare with. It says wrong, right or neither of each query that
it knows about; the book makes alarms of that. Rules over progress are in `progress`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slackwater.supervision.alarms import Finding, Kind
from slackwater.supervision.restarts import State
from slackwater.supervision.seen import whose

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slackwater.core.records import Ended
    from slackwater.supervision.restarts import Supervised
    from slackwater.supervision.seen import Seen
    from slackwater.supervision.settings import Alarms

_MOST_DEAD = 1000
_LONGEST_ERROR = 300
_MEMORY_CLEAR_SHARE = 0.9


# ---- queries that die ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Death:
    last: Ended
    times: int = 1
    alive_wall_ts: float | None = None


class Dead:
    """Ended with an error; over when it has been running again, and well, for a while."""

    def __init__(self) -> None:
        self._dead: dict[str, _Death] = {}

    def findings(self, seen: Seen, settings: Alarms) -> Iterator[Finding]:
        for end in seen.ended:
            self._take(end)
        for query_id, death in list(self._dead.items()):
            running = [
                query
                for query in seen.overview.queries
                if query.key != death.last.key and (query.query_id == query_id or query.name == death.last.name)
            ]
            if any(query.batches > 0 for query in running):
                death.alive_wall_ts = seen.now_wall_ts if death.alive_wall_ts is None else death.alive_wall_ts
                if seen.now_wall_ts - death.alive_wall_ts >= settings.clear_s:
                    del self._dead[query_id]
                    continue
            elif seen.now_wall_ts - death.last.wall_ts >= settings.forget_s:
                del self._dead[query_id]
                continue
            yield self._finding(query_id, death, seen, runs=bool(running))

    def _take(self, end: Ended) -> None:
        query_id = end.query_id or end.key
        if end.error is None:
            self._dead.pop(query_id, None)
        elif query_id in self._dead:
            death = self._dead[query_id]
            if death.last.key == end.key:
                return
            death.last, death.times, death.alive_wall_ts = end, death.times + 1, None
        elif len(self._dead) < _MOST_DEAD:
            self._dead[query_id] = _Death(end)

    def _finding(self, query_id: str, death: _Death, seen: Seen, *, runs: bool) -> Finding:
        often = f" ({death.times} times by now)" if death.times > 1 else ""
        return Finding(
            kind=Kind.DEAD,
            whose=query_id,
            verdict="wrong",
            query=death.last.name,
            key=death.last.key,
            what=f"it died{often}: {_line(death.last.error)}",
            what_to_do=_what_to_do(seen.supervised.get(query_id), seen.now_wall_ts, runs=runs),
        )


def _line(error: str | None) -> str:
    lines = [line.strip() for line in (error or "").splitlines() if line.strip()]
    line = lines[0][:_LONGEST_ERROR] if lines else "no error is known"
    return line if line.endswith((".", "!", "?")) else f"{line}."


def _what_to_do(supervised: Supervised | None, now_wall_ts: float, *, runs: bool) -> str:
    if runs:
        return "It runs again; see why it died."
    if supervised is None:
        return "Mend what the error names and start it again; attach(supervise=True) starts such queries by itself."
    # What supervision itself makes of a death it may not have heard of yet; this it knew before.
    if supervised.why_not is not None:
        return f"It cannot be started again from here: {supervised.why_not}"
    if supervised.state is State.GIVEN_UP:
        return f"It was given up after {supervised.restarts} restarts. Mend what the error names and start it again."
    if supervised.next_try_wall_ts is not None:
        return f"It is started again in {max(0.0, supervised.next_try_wall_ts - now_wall_ts):.0f} s."
    return "It will be started again."


class GivenUp:
    """Started again too often. Over when somebody starts it."""

    def findings(self, seen: Seen, settings: Alarms) -> Iterator[Finding]:  # noqa: ARG002
        for query_id, supervised in seen.supervised.items():
            if supervised.state is State.GIVEN_UP:
                yield Finding(
                    kind=Kind.GIVEN_UP,
                    whose=query_id,
                    verdict="wrong",
                    query=supervised.name,
                    what=f"it is not started again after {supervised.restarts} restarts; it died of: "
                    f"{_line(supervised.last_error)}",
                    what_to_do="Mend what the error names, then start it again.",
                )


# ---- rows, memory, the scheduler -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Drops:
    rows: int = 0
    before: int = 0  # when the alarm was last off
    grew_wall_ts: float = 0.0


class Dropped:
    """Rows that came too late for their windows: dropped by Spark, or dead letters of a late query."""

    def __init__(self) -> None:
        self._known: dict[str, _Drops] = {}

    def findings(self, seen: Seen, settings: Alarms) -> Iterator[Finding]:
        counted = [(query.key, whose(query), query.name, query.dropped_rows, False) for query in seen.overview.queries]
        for row in seen.overview.told.get("late", []):
            name, rows = str(row.get("query") or row.get("name") or ""), row.get("dead_rows")
            if name and isinstance(rows, int | float):
                counted.append((f"late:{name}", f"late:{name}", name, int(rows), True))
        self._known = {key: self._known.get(key, _Drops()) for key, *_ in counted}
        for key, same, name, rows, late in counted:
            drops = self._known[key]
            if rows > drops.rows:
                drops.grew_wall_ts = seen.now_wall_ts
            drops.rows = rows
            lost = rows - drops.before
            if lost and seen.now_wall_ts - drops.grew_wall_ts >= settings.clear_s:
                drops.before, lost = rows, 0
            where = "went to the dead letters" if late else "were dropped"
            yield Finding(
                kind=Kind.DROPPED,
                whose=same,
                verdict="wrong" if lost >= settings.dropped_rows else "right",
                query=name,
                key="" if late else key,
                what=f"{lost} rows came too late and {where}.",
                what_to_do="Allow more lateness for it, or wait longer before windows are purged."
                if late
                else "Give its watermark a longer delay, or let slackwater.late correct its results.",
            )


class Memory:
    """What lives in the heap has reached the bound from which on memory rules."""

    def findings(self, seen: Seen, settings: Alarms) -> Iterator[Finding]:
        memory = seen.overview.memory
        if memory is None or memory.bound_bytes is None:
            return
        reached = memory.rules or memory.live_bytes >= memory.bound_bytes
        free = memory.live_bytes <= _MEMORY_CLEAR_SHARE * memory.bound_bytes
        yield Finding(
            kind=Kind.MEMORY,
            whose="",
            verdict="wrong" if reached else "right" if free else "neither",
            what=f"{memory.live_bytes / 2**20:.0f} MB live in the driver's heap of {memory.max_bytes / 2**20:.0f} MB; "
            f"from {memory.bound_bytes / 2**20:.0f} MB on, queries that free most go first.",
            what_to_do="Give the driver more heap, shorten windows or delays, or keep state in RocksDB.",
            clear_s=settings.clear_s,
        )


class Scheduler:
    """Nobody decides, or the watchdog has opened the gates: queries follow their own triggers."""

    def findings(self, seen: Seen, settings: Alarms) -> Iterator[Finding]:
        scheduler = seen.overview.scheduler
        if scheduler is None:
            return
        silent_s = seen.now_wall_ts - scheduler.last_decision_wall_ts
        silent = scheduler.last_decision_wall_ts > 0 and silent_s > settings.scheduler_s
        wrong = silent or scheduler.gates_open
        yield Finding(
            kind=Kind.SCHEDULER,
            whose="",
            verdict="wrong" if wrong else "right",
            what=f"the scheduler has not decided for {silent_s:.0f} s; queries follow their own triggers."
            if silent
            else "the gates are open; queries follow their own triggers.",
            what_to_do="See the application's log. Queries run on; detach and attach again to have them scheduled.",
            hold_s=0.0 if silent else settings.scheduler_s,
            clear_s=settings.scheduler_s,
        )
