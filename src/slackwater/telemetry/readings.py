"""The values of all gauges and counters, from an application's overview and its totals; in no system's form."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from slackwater.telemetry.totals import LONGEST_LABEL

if TYPE_CHECKING:
    from slackwater.endpoint.overview import Overview, QueryOverview
    from slackwater.telemetry.totals import QueryTotals, Totals

log = logging.getLogger("slackwater")

# Which alarms are on: pairs of kind and query, the query empty where one concerns the whole application.
Alarms = Callable[[], Iterable[tuple[str, str]]]
Told = dict[str, str | float | int | bool | None]

_RUNNING: Final = ("data batch", "sweep batch")
_REVISIONS: Final = {
    "on_time": "on_time_results",
    "late": "late_results",
    "final": "final_results",
    "repeated": "repeated_results",
}
_LATE: Final = {
    "slackwater_late_open_windows": "open_windows",
    "slackwater_late_past_windows": "past_windows",
    "slackwater_late_pending_rows": "pending_rows",
    "slackwater_late_staleness_ratio": "stalest",
    "slackwater_late_rows_total": "late_rows",
    "slackwater_late_dead_letters_total": "dead_rows",
    "slackwater_late_purged_windows_total": "purged_windows",
    "slackwater_late_memory_bytes": "memory_bytes",
}


class Reading(NamedTuple):
    """One value of a metric; labels are in the catalogue's order."""

    name: str
    labels: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Scene:
    """An application and the totals of its queries at one time. `running` has what the overview says, by label."""

    seen: Overview
    queries: list[QueryTotals]
    running: dict[str, QueryOverview]
    missed: int


def scene(overview: Callable[[], Overview], totals: Totals) -> Scene:
    """What has ended by the time that the overview is made must be known before its queries are named."""
    seen = overview()
    totals.take()
    running = {totals.label(query.key, query.name): query for query in seen.queries}
    return Scene(seen, totals.queries(), running, totals.missed)


def readings(now: Scene, alarms: Alarms | None = None) -> Iterator[Reading]:
    yield from _application(now.seen)
    yield Reading("slackwater_telemetry_missed_records_total", (), now.missed)
    for query in now.queries:
        yield from _query(query, now.running.get(query.label))
    yield from _late(now.seen.told.get("late", ()))
    for (kind, name), count in sorted(_alarms(alarms).items()):
        yield Reading("slackwater_alarms_active", (kind, name), count)


def _application(seen: Overview) -> Iterator[Reading]:
    who = (seen.application_id, seen.name, seen.master, seen.version, seen.policy)
    yield Reading("slackwater_application_info", who, 1)
    yield Reading("slackwater_cores", (), seen.cores)
    yield Reading("slackwater_lanes", (), seen.lanes)
    yield Reading("slackwater_lanes_busy", (), sum(query.stage in _RUNNING for query in seen.queries))
    scheduler = seen.scheduler
    if scheduler is not None:
        yield Reading("slackwater_decisions_total", (), scheduler.decisions)
        yield Reading("slackwater_decision_p99_seconds", (), scheduler.decision_ms_p99 / 1000)
        yield Reading("slackwater_last_decision_timestamp_seconds", (), scheduler.last_decision_wall_ts)
        yield Reading("slackwater_scheduler_cpu_seconds_total", (), scheduler.cpu_s)
        yield Reading("slackwater_gates_open", (), scheduler.gates_open)
        yield Reading("slackwater_gates_opened_total", (), scheduler.gates_opened)
    memory = seen.memory
    if memory is not None:
        yield Reading("slackwater_memory_used_bytes", (), memory.used_bytes)
        yield Reading("slackwater_memory_live_bytes", (), memory.live_bytes)
        yield Reading("slackwater_memory_max_bytes", (), memory.max_bytes)
        if memory.bound_bytes is not None:
            yield Reading("slackwater_memory_bound_bytes", (), memory.bound_bytes)
        yield Reading("slackwater_memory_rules", (), memory.rules)
        yield Reading("slackwater_memory_cycles_total", (), memory.cycles)


def _query(totals: QueryTotals, now: QueryOverview | None) -> Iterator[Reading]:
    label = (totals.label,)
    runs = now is not None and totals.ended_wall_ts is None
    yield Reading("slackwater_query_up", label, runs)
    yield Reading("slackwater_query_failures_total", label, totals.failures)
    yield Reading("slackwater_query_rows_total", label, totals.rows)
    for stage, count in sorted(totals.turns.items()):
        yield Reading("slackwater_query_turns_total", (totals.label, stage), count)
    if now is None or not runs:
        return
    yield Reading("slackwater_query_info", (totals.label, now.query_id, now.key), 1)
    yield Reading("slackwater_query_paused", label, now.stage == "paused")
    yield Reading("slackwater_query_class", label, now.priority_class)
    yield Reading("slackwater_query_dropped_rows_total", label, now.dropped_rows)
    yield Reading("slackwater_query_backlog_rows", label, now.backlog_rows)
    yield Reading("slackwater_query_state_bytes", label, now.state_bytes)
    yield Reading("slackwater_query_state_rows", label, now.state_rows)
    for name, value in (
        ("slackwater_query_slack_seconds", now.slack_s),
        ("slackwater_query_watermark_lag_seconds", now.watermark_lag_s),
        ("slackwater_query_last_batch_timestamp_seconds", now.last_batch_wall_ts),
    ):
        if value is not None:
            yield Reading(name, label, value)


def _late(rows: Iterable[Told]) -> Iterator[Reading]:
    """Of two runs with one name the last is told of: the other has ended, or nobody could tell them apart."""
    for name, row in {str(row.get("name", ""))[:LONGEST_LABEL]: row for row in rows}.items():
        for metric, key in _LATE.items():
            if (value := _number(row.get(key))) is not None:
                yield Reading(metric, (name,), value)
        for kind, key in _REVISIONS.items():
            if (value := _number(row.get(key))) is not None:
                yield Reading("slackwater_late_revisions_total", (name, kind), value)


def _number(value: str | float | bool | None) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _alarms(alarms: Alarms | None) -> Counter[tuple[str, str]]:
    try:
        return Counter(alarms() if alarms is not None else ())
    except Exception as error:
        log.debug("alarms could not be told: %s: %s", type(error).__name__, error)
        return Counter()
