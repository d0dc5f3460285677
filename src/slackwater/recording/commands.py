"""`slackwater trace show FILE`: what a trace holds."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path  # noqa: TC003  # cyclopts reads the annotations
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from slackwater.recording.reading import Trace, TracedQuery, read_trace

trace = App(name="trace", help="Look at traces that attach(record=…) wrote.")


@dataclass(frozen=True)
class QuerySummary:
    name: str
    windows_s: list[float]
    batches: int
    empty_batches: int
    rows: int
    rows_per_s: float
    batch_mean_s: float | None
    busy_share: float
    state_mb: float
    dropped_rows: int
    granted: int
    failed: str | None


@dataclass(frozen=True)
class TraceSummary:
    file: str
    bytes: int
    application: str
    spark: str
    policy: str
    switched_to: list[str]
    seconds: float
    cores: int
    cpu_cores: float | None
    ended: bool
    lost: int
    cut: bool
    queries: list[QuerySummary]


@trace.command(name="show")
def trace_show(
    file: Path,
    *,
    salvage: Annotated[bool, Parameter(negative=())] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Say what a trace holds: for how long, under which policy, and what each query did.

    Parameters
    ----------
    file
        A trace that `attach(record=FILE)` wrote.
    salvage
        Read a damaged trace up to the damage.
    as_json
        Print facts as JSON.
    """
    found = summary_of(read_trace(file, salvage=salvage), file)
    if as_json:
        print(json.dumps(asdict(found), indent=1))
        return
    print(
        f"{found.application or 'an application'} on Spark {found.spark}: {found.seconds:.0f} s under {found.policy}"
        + "".join(f", then {policy}" for policy in found.switched_to)
        + f", {found.cores} cores"
        + (f", {found.cpu_cores:.2f} of them busy" if found.cpu_cores is not None else "")
    )
    print(f"{found.bytes / 1e6:.2f} MB, {3600 * found.bytes / 1e6 / max(found.seconds, 1.0):.1f} MB an hour")
    if found.cut:
        print("The trace reached the size that it may have: what came after is not in it.")
    elif not found.ended:
        print("The recording did not end by itself: the application was killed, or still runs.")
    if found.lost:
        print(f"The recorder did not keep up: {found.lost} batches and grants are missing.")
    table = Table("query", "windows", "batches", "empty", "rows/s", "batch mean", "busy", "state", "dropped", "granted")
    for query in found.queries:
        table.add_row(
            query.name if query.failed is None else f"{query.name} (failed)",
            ", ".join(f"{size:g} s" for size in query.windows_s),
            str(query.batches),
            str(query.empty_batches),
            f"{query.rows_per_s:.0f}",
            "" if query.batch_mean_s is None else f"{query.batch_mean_s:.2f} s",
            f"{100 * query.busy_share:.0f} %",
            f"{query.state_mb:.1f} MB",
            str(query.dropped_rows),
            str(query.granted),
        )
    Console().print(table)


def summary_of(found: Trace, file: Path) -> TraceSummary:
    told = [host for host in found.hosts if host.cpu_s is not None]
    span_s = told[-1].wall_ts - told[0].wall_ts if told else 0.0
    cpu = None
    if span_s > 0 and told[-1].cpu_s is not None and told[0].cpu_s is not None:
        cpu = round((told[-1].cpu_s - told[0].cpu_s) / span_s, 3)
    return TraceSummary(
        file=str(file),
        bytes=file.stat().st_size,
        application=found.head.application,
        spark=found.head.spark,
        policy=found.head.policy,
        switched_to=[one.policy for one in found.switched],
        seconds=round(found.seconds, 3),
        cores=found.cores,
        cpu_cores=cpu,
        ended=found.ended,
        lost=0 if found.lost is None else found.lost.batches + found.lost.grants,
        cut=found.cut is not None,
        queries=[_query(query, found) for query in found.queries],
    )


def _query(query: TracedQuery, found: Trace) -> QuerySummary:
    batches = query.batches
    until = query.gone.wall_ts if query.gone is not None else found.to_wall_ts
    seconds = max(1e-3, until - query.about.wall_ts)
    rows = sum(batch.rows for batch in batches)
    return QuerySummary(
        name=query.name,
        windows_s=[size for size, _, _ in query.about.windows],
        batches=len(batches),
        empty_batches=sum(batch.rows == 0 for batch in batches),
        rows=rows,
        rows_per_s=round(rows / seconds, 1),
        batch_mean_s=round(sum(batch.duration_s for batch in batches) / len(batches), 4) if batches else None,
        busy_share=round(min(1.0, sum(batch.duration_s for batch in batches) / seconds), 4),
        state_mb=round(max((batch.state_bytes for batch in batches), default=0) / 1e6, 3),
        dropped_rows=sum(batch.dropped_rows for batch in batches),
        granted=len(query.grants),
        failed=query.gone.error if query.gone is not None else None,
    )
