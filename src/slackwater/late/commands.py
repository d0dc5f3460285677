"""`slackwater late …`: look at a store of windows, compact it, check it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from slackwater.late.store import Opened, WindowStore

late = App(name="late", help="Look after a store of windows that wait for late rows.")

Store = Annotated[str, Parameter(help="The store's folder or URI.")]
Checkpoint = Annotated[
    str | None,
    Parameter(
        help="The query's checkpoint, which knows the last committed batch; without it the newest batch does not count."
    ),
]
Json = Annotated[bool, Parameter(name="--json", help="Print facts as JSON.")]


@late.command
def status(store: Store, *, checkpoint: Checkpoint = None, as_json: Json = False) -> None:
    """Say what a store holds. Only reads; the query may be running."""
    found, opened = _open(store, checkpoint, read_only=True)
    with found:
        facts = found.facts() | {"problems": [problem.reason for problem in opened.problems]}
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    print(f"{found.files}: {facts['kind']}, format {facts['format']}, batches up to {facts['committed_batch']} count")
    print(f"windows      {facts['windows']}, {facts['rows']} rows, {_size(facts['bytes'])} in memory")
    print(f"files        {facts['files']}, {_size(facts['disk_bytes'])}; {facts['compacted_files']} of them compacted")
    print(f"purged       {facts['purged_windows']} windows, {facts['purged_rows']} rows")
    print(f"dead letters {facts['dead_rows']} rows in {facts['dead_files']} files")
    print(f"emissions    {facts['emissions']}")
    print(f"quarantine   {facts['quarantined_files']} files")
    if facts["uncommitted_batches"]:
        print(f"uncommitted  batches {', '.join(map(str, facts['uncommitted_batches']))}")
    _print_problems(opened)


@late.command
def windows(store: Store, *, checkpoint: Checkpoint = None, as_json: Json = False) -> None:
    """List the windows of a store. Only reads; the query may be running."""
    found, opened = _open(store, checkpoint, read_only=True)
    with found:
        dead = found.dead_counts()
        listed = [
            asdict(info) | {"revision": found.revision(info.start_ms), "dead_rows": dead.get(info.start_ms, 0)}
            for info in found.windows()
        ]
    if as_json:
        print(json.dumps(listed, indent=1))
        return
    print(f"{'window (ms)':>20} {'rows':>10} {'memory':>10} {'disk':>10} {'files':>6} {'batches':>15} {'revision':>8}")
    for info in listed:
        batches = f"{info['first_batch']}–{info['last_batch']}"
        sizes = f"{_size(info['bytes']):>10} {_size(info['disk_bytes']):>10}"
        print(
            f"{info['start_ms']:>20} {info['rows']:>10} {sizes} {info['files']:>6} {batches:>15} {info['revision']:>8}"
        )
    _print_problems(opened)


@late.command
def compact(
    store: Store,
    *,
    window: Annotated[
        tuple[int, ...],
        Parameter(
            negative=(),
            help="Start of a window in ms, to be compacted in any case; may be repeated. Without it, all that pay.",
        ),
    ] = (),
    executions: Annotated[float, Parameter(help="How often each window is expected to be executed again.")] = 4.0,
    checkpoint: Checkpoint = None,
    as_json: Json = False,
) -> None:
    """Merge the files of windows, where that pays. The query must not be running."""
    found, opened = _open(store, checkpoint, read_only=False)
    with found:
        before = {info.start_ms: info for info in found.windows()}
        unknown = [start for start in window if start not in before]
        if unknown:
            raise ConfigurationError(
                f"--window {unknown[0]}: the store has no such window. `slackwater late windows {store}` lists them."
            )
        wanted = list(window) or [start for start in before if found.worth_compacting(start, executions)]
        merged = [info for start in wanted if (info := found.compact(start)) is not None]
        left = len(before) - len(merged)
    if as_json:
        rows = [asdict(info) | {"files_before": before[info.start_ms].files} for info in merged]
        print(json.dumps({"compacted": rows, "left_alone": left}, indent=1))
        return
    for info in merged:
        print(f"window {info.start_ms}: {before[info.start_ms].files} files into {info.files}, {info.rows} rows")
    print(f"{len(merged)} windows compacted, {left} left as they are")
    _print_problems(opened)


@late.command
def verify(store: Store, *, checkpoint: Checkpoint = None, as_json: Json = False) -> None:
    """Read every row of a store and compare it with the footers; ends with 1 when something is wrong. Only reads."""
    found, opened = _open(store, checkpoint, read_only=True)
    with found:
        report = found.verify()
    problems = [problem.reason for problem in opened.problems] + report.problems
    if as_json:
        print(json.dumps(asdict(report) | {"problems": problems}, indent=1))
    else:
        print(f"{report.files} files, {report.rows} rows, {_size(report.disk_bytes)} read")
        for note in report.notes:
            print(f"note: {note}")
        for problem in problems:
            print(f"problem: {problem}")
    if problems:
        from slackwater.late.errors import StoreError  # noqa: PLC0415

        raise StoreError(
            f"{len(problems)} problems in the store at {found.files}. Opening it for writing (a start of the query, "
            "or `slackwater late compact`) moves files that cannot be opened to quarantine/. Restore what a backup has."
        )


def _open(store: str, checkpoint: str | None, *, read_only: bool) -> tuple[WindowStore, Opened]:
    from slackwater.late.checkpoint import last_committed  # noqa: PLC0415 - pyarrow is loaded on use
    from slackwater.late.store import WindowStore  # noqa: PLC0415

    found = WindowStore(store)
    return found, found.open(None if checkpoint is None else last_committed(checkpoint), read_only=read_only)


def _print_problems(opened: Opened) -> None:
    for problem in opened.problems:
        print(f"problem: {problem.reason}" + (f" (moved to {problem.moved_to})" if problem.moved_to else ""))


def _size(count: Any) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
