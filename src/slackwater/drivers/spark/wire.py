"""What the JVM side says, decoded strictly, and turned into the core's words.

What one query says in a way that nobody understands is left out, and noted: it must not stop the others.
"""

from __future__ import annotations

import logging
import re
from datetime import datetime
from typing import Any

import msgspec

from slackwater.core.model import (
    BatchReport,
    Commands,
    InputMaximum,
    QueryFacts,
    QueryOptions,
    QueryReport,
    Report,
    TaskTime,
)
from slackwater.core.places import normalised
from slackwater.drivers.spark.failures import in_a_line
from slackwater.drivers.spark.plan import About, facts_of

log = logging.getLogger("slackwater")

DELAYS = "slackwater_delays_"
"""What a query calls the observed delays of its watermarked input of this number."""


class _Heap(msgspec.Struct):
    used: int
    max: int
    live: int


class _Input(msgspec.Struct):
    delay_ms: int
    rows: int
    max_ms: int | None = None
    min_ms: int | None = None


class _Operator(msgspec.Struct):
    op: str
    rows: int


class _StateOperator(msgspec.Struct):
    numRowsTotal: int = 0  # noqa: N815 - Spark's names
    memoryUsedBytes: int = 0  # noqa: N815
    numRowsDroppedByWatermark: int = 0  # noqa: N815
    numShufflePartitions: int | None = None  # noqa: N815


class _Sink(msgspec.Struct):
    description: str = ""
    numOutputRows: int = -1  # noqa: N815


class _Source(msgspec.Struct):
    description: str = ""
    endOffset: Any = None  # noqa: N815
    latestOffset: Any = None  # noqa: N815
    metrics: dict[str, str] | None = None


class _Progress(msgspec.Struct):
    batchId: int  # noqa: N815
    timestamp: str
    numInputRows: int = 0  # noqa: N815
    durationMs: dict[str, int] = msgspec.field(default_factory=dict)  # noqa: N815
    eventTime: dict[str, str] = msgspec.field(default_factory=dict)  # noqa: N815
    stateOperators: list[_StateOperator] = msgspec.field(default_factory=list)  # noqa: N815
    sources: list[_Source] = msgspec.field(default_factory=list)
    sink: _Sink = msgspec.field(default_factory=_Sink)
    observedMetrics: dict[str, Any] = msgspec.field(default_factory=dict)  # noqa: N815


class _Batch(msgspec.Struct):
    ended_ms: int
    progress: msgspec.Raw
    inputs: list[_Input] = msgspec.field(default_factory=list)
    operators: list[_Operator] = msgspec.field(default_factory=list)
    evicts_ms: int | None = None
    driver_cpu_ns: int = -1


class _Worked(msgspec.Struct):
    batch: int
    cpu_ns: int
    run_ms: int


class _Query(msgspec.Struct):
    run: str
    alive: bool
    waiting: bool
    wait: int
    since_ms: int
    next_watermark_ms: int
    tasks: int = 0
    awaited: bool = False
    batches: list[_Batch] = msgspec.field(default_factory=list)
    worked: list[_Worked] = msgspec.field(default_factory=list)
    about: msgspec.Raw = msgspec.Raw()
    error: str | None = None


class JvmReport(msgspec.Struct):
    """One answer of `SlackwaterGate.exchange`."""

    now_ms: int
    open: bool
    opened: int
    cores: int
    heap: _Heap
    queries: list[_Query]
    elastic: bool = False
    ordinary_tasks: int = 0
    cpu_ns: int = 0
    process_cpu_ns: int = -1
    collecting_cpu_ns: int = -1
    compiling_cpu_ns: int = -1
    processors: int = 0
    steady_ns: int | None = None
    notes: list[str] = msgspec.field(default_factory=list)


_PLACE = re.compile(r"^(?:File\w*|Delta\w*)\[(.+)\]$")

decode = msgspec.json.Decoder(JvmReport).decode
decode_kept = msgspec.json.Decoder(dict[str, int]).decode
_decode_progress = msgspec.json.Decoder(_Progress).decode
_decode_about = msgspec.json.Decoder(About).decode
_encode = msgspec.json.Encoder().encode


def report_of(seen: JvmReport, options: dict[str, QueryOptions]) -> Report:
    return Report(
        wall_ts=seen.now_ms / 1000,
        cores=seen.cores,
        elastic=seen.elastic,
        queries=tuple(_query(query, options) for query in seen.queries),
        gates_open=seen.open,
        ordinary_tasks=seen.ordinary_tasks,
        heap_used_bytes=seen.heap.used,
        heap_max_bytes=seen.heap.max,
        heap_live_bytes=seen.heap.live,
        cpu_s=_seconds(seen.process_cpu_ns),
        collecting_cpu_s=_seconds(seen.collecting_cpu_ns),
        compiling_cpu_s=_seconds(seen.compiling_cpu_ns),
        processors=seen.processors,
        steady_s=seen.steady_ns / 1e9 if seen.steady_ns is not None else None,
    )


def _seconds(nanoseconds: int) -> float | None:
    """None where nobody told."""
    return nanoseconds / 1e9 if nanoseconds >= 0 else None


def commands_json(commands: Commands) -> str:
    return _encode(
        {
            "enforce": commands.enforce,
            "grants": [{"run": grant.key, "wait": grant.wait_no} for grant in commands.grants],
            "priorities": commands.urgencies,
        }
    ).decode()


def _query(query: _Query, options: dict[str, QueryOptions]) -> QueryReport:
    return QueryReport(
        key=query.run,
        alive=query.alive,
        waiting=query.waiting,
        wait_no=query.wait,
        since_wall_ts=query.since_ms / 1000,
        next_watermark_event_ts=query.next_watermark_ms / 1000 if query.next_watermark_ms >= 0 else None,
        running_tasks=query.tasks,
        awaited=query.awaited,
        batches=tuple(report for batch in query.batches if (report := _batch(query.run, batch)) is not None),
        worked=tuple(TaskTime(one.batch, one.cpu_ns / 1e9, one.run_ms / 1000) for one in query.worked),
        facts=_facts(query.run, query.about, options) if query.about else None,
        error=in_a_line(query.error) if query.error is not None else None,
    )


def _facts(run: str, about: msgspec.Raw, options: dict[str, QueryOptions]) -> QueryFacts:
    """A query whose plan cannot be read is scheduled still, as one without windows."""
    try:
        return facts_of(run, _decode_about(about), options)
    except Exception as error:
        log.warning("the plan of query %s could not be read: %s: %s", run, type(error).__name__, error)
        return QueryFacts(key=run, name=run, query_id=run, stateful=False, emits_at_sweep=False)


def _batch(run: str, batch: _Batch) -> BatchReport | None:
    try:
        progress = _decode_progress(batch.progress)
        # An idle trigger's progress has no addBatch and tells of no batch.
        return _batch_report(batch, progress) if "addBatch" in progress.durationMs else None
    except Exception as error:
        log.debug("a batch of query %s could not be read: %s: %s", run, type(error).__name__, error)
        return None


def _batch_report(batch: _Batch, progress: _Progress) -> BatchReport:
    durations = progress.durationMs
    started = timestamp(progress.timestamp)
    fixing_s = sum(durations.get(name, 0) for name in ("latestOffset", "getOffset")) / 1000
    inputs = tuple(
        InputMaximum(
            seen.delay_ms / 1000,
            seen.rows,
            seen.max_ms / 1000 if seen.max_ms is not None else None,
            _delays(progress.observedMetrics.get(f"{DELAYS}{index}")),
            seen.min_ms / 1000 if seen.min_ms is not None else None,
        )
        for index, seen in enumerate(batch.inputs)
    )
    if not inputs and "max" in progress.eventTime:
        inputs = (InputMaximum(0.0, progress.numInputRows, timestamp(progress.eventTime["max"])),)
    watermark = progress.eventTime.get("watermark")
    return BatchReport(
        batch_id=progress.batchId,
        offsets_wall_ts=started + fixing_s,
        ended_wall_ts=batch.ended_ms / 1000,
        duration_s=durations.get("triggerExecution", 0) / 1000,
        rows=progress.numInputRows,
        watermark_event_ts=timestamp(watermark) if watermark else 0.0,
        evicts_event_ts=batch.evicts_ms / 1000 if batch.evicts_ms else None,
        inputs=inputs,
        rows_out=_rows_out(batch, progress),
        state_rows=sum(operator.numRowsTotal for operator in progress.stateOperators),
        state_bytes=sum(operator.memoryUsedBytes for operator in progress.stateOperators),
        dropped_rows=sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators),
        backlog_rows=_backlog(progress.sources),
        limited=any(
            source.latestOffset is not None and source.latestOffset != source.endOffset for source in progress.sources
        ),
        reads=tuple(place for source in progress.sources if (place := place_of(source.description)) is not None),
        writes=place_of(progress.sink.description),
        state_partitions=max((operator.numShufflePartitions or 0 for operator in progress.stateOperators), default=0),
        driver_cpu_s=_seconds(batch.driver_cpu_ns),
        parts_s={name: took_ms / 1000 for name, took_ms in durations.items() if name != "triggerExecution"},
    )


def _delays(observed: Any) -> tuple[int, float, float, float] | None:
    """What a query tells of when its rows were ingested; nothing for a batch without rows."""
    if not isinstance(observed, dict) or not observed.get("rows"):
        return None
    return int(observed["rows"]), float(observed["total_s"]), float(observed["squares"]), float(observed["cubes"])


def place_of(description: str) -> str | None:
    """Where a source reads or a sink writes, as Spark describes it: `FileStreamSource[file:/a]`, `DeltaSink[/b]`."""
    match = _PLACE.search(description)
    return normalised(match[1]) if match else None


def _rows_out(batch: _Batch, progress: _Progress) -> int:
    """As the sink counts them; a sink that does not is asked through the plan's topmost operator."""
    if progress.sink.numOutputRows >= 0:
        return progress.sink.numOutputRows
    return batch.operators[0].rows if batch.operators else 0


def _backlog(sources: list[_Source]) -> int | None:
    """Rows that wait in the sources, where they tell (Kafka's offsets behind the latest)."""
    told = [rows for source in sources if (rows := _behind(source)) is not None]
    return round(sum(told)) if told else None


def _behind(source: _Source) -> float | None:
    """Kafka counts a topic's rows by partition, so what is behind the latest offsets is known to the row."""
    latest, end = _offsets(source.latestOffset), _offsets(source.endOffset)
    if source.description.startswith("Kafka") and latest and end is not None:
        # A partition that Spark has not begun with is read from its start.
        return sum(max(0, offset - end.get(partition, 0)) for partition, offset in latest.items())
    if source.metrics and "avgOffsetsBehindLatest" in source.metrics:
        return float(source.metrics["avgOffsetsBehindLatest"]) * (len(end) if end else 1)
    return None


def _offsets(told: Any) -> dict[tuple[str, str], int] | None:
    """Offsets by topic and partition; None where a source counts otherwise."""
    if not isinstance(told, dict):
        return None
    return {
        (topic, partition): offset
        for topic, partitions in told.items()
        if isinstance(partitions, dict)
        for partition, offset in partitions.items()
        if isinstance(offset, int)
    }


def timestamp(text: str) -> float:
    """Spark's ISO timestamps (`2026-11-15T03:49:31.504Z`) as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()
