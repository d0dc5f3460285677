"""What `status` and `top` show of an application: a few lines and a table, for any width."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from slackwater.control.plain import plain
from slackwater.core.model import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from slackwater.endpoint.overview import Overview, QueryOverview

_STYLES = {Stage.DATA: "green", Stage.SWEEP: "bold green", Stage.PAUSED: "yellow", Stage.UNGATED: "dim"}
_RUNNING = (Stage.DATA, Stage.SWEEP)


def shown(told: Overview, queries: Iterable[QueryOverview] | None = None) -> RenderableType:
    """The application, and the queries given, or all of them by name."""
    rows = tuple(told.queries if queries is None else queries)
    left_out = len(told.queries) - len(rows)
    rest = [Text(f"and {left_out} more", style="dim")] if left_out > 0 else []
    return Group(*_heading(told), _table(rows, told.wall_ts), *rest)


def urgent_first(told: Overview) -> list[QueryOverview]:
    """Those that run, then by slack; paused and unknown ones last."""

    def order(query: QueryOverview) -> tuple[int, float, str]:
        if query.stage in _RUNNING:
            return 0, 0.0, query.name
        if query.stage == Stage.PAUSED or query.slack_s is None:
            return 2, 0.0, query.name
        return 1, query.slack_s, query.name

    return sorted(told.queries, key=order)


def _heading(told: Overview) -> list[Text]:
    parameters = ", ".join(f"{name}={value}" for name, value in told.parameters.items())
    lanes = f"{told.lanes} lane{'s' if told.lanes != 1 else ''} on {told.cores} cores"
    policy = f"{told.policy} ({parameters})" if parameters else told.policy
    lines = [Text(plain(f"{told.name} ({told.application_id}): policy {policy}, {lanes}"), style="bold")]
    counts = ", ".join(
        f"{number} {stage}" for stage in Stage if (number := sum(query.stage == stage for query in told.queries))
    )
    memory = told.memory
    if memory is not None:
        bound = f" of {memory.bound_bytes / 2**20:.0f} allowed" if memory.bound_bytes is not None else ""
        rules = "; memory rules now" if memory.rules else ""
        counts += f"; heap {memory.live_bytes / 2**20:.0f} MB{bound}, {memory.max_bytes / 2**20:.0f} at most{rules}"
    lines.append(Text(f"{len(told.queries)} queries: {counts}" if told.queries else "No query runs."))
    scheduler = told.scheduler
    if scheduler is not None and scheduler.gates_open:
        lines.append(Text("The gates are open: nobody schedules, queries follow their own triggers.", style="bold red"))
    return lines


def _table(queries: Iterable[QueryOverview], now_wall_ts: float) -> Table:
    table = Table(expand=False, show_edge=False, pad_edge=False)
    table.add_column("query", no_wrap=True, min_width=8, max_width=40)
    table.add_column("state", no_wrap=True)
    for heading in ("class", "slack s", "waits s", "lag s", "backlog", "state MB", "latency s", "batches"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("closes", no_wrap=True)
    table.add_column("why", no_wrap=True, overflow="ellipsis", ratio=1)
    for query in queries:
        waits = query.waiting_since_wall_ts if query.stage in (Stage.WAITING, Stage.PAUSED) else None
        table.add_row(
            Text(plain(query.name)),
            Text(plain(query.stage), style=_STYLES.get(Stage(query.stage), "")),
            str(query.priority_class),
            _slack(query),
            _figure(now_wall_ts - waits if waits is not None else None, ".1f"),
            _figure(query.watermark_lag_s, ".1f"),
            _figure(query.backlog_rows, ",.0f"),
            _figure(query.state_bytes / 2**20, ".1f"),
            _figure(query.last_latency_s, ".1f"),
            str(query.batches),
            _clock(query.swm_wall_ts if query.window_end_ts is not None else None),
            Text(plain(query.reason)),
        )
    return table


def _slack(query: QueryOverview) -> str:
    if query.slack_s is None:
        return "-"
    if query.slack_low_s is None or query.slack_high_s is None:
        return f"{query.slack_s:+.1f}"
    return f"{query.slack_s:+.1f} ±{(query.slack_high_s - query.slack_low_s) / 2:.1f}"


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _clock(wall_ts: float | None) -> str:
    if wall_ts is None:
        return "-"
    try:
        return f"{datetime.fromtimestamp(wall_ts):%H:%M:%S}"  # noqa: DTZ006 - for people on this machine
    except (OverflowError, ValueError, OSError):
        return "-"
