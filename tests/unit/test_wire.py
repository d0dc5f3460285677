"""What the JVM side says, and what becomes of it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from slackwater.core.model import BatchReport, Commands, Grant, Report, Stage
from slackwater.drivers.spark import wire

STARTED_TS = 1_763_178_571.504


def _progress(**changes: Any) -> dict[str, Any]:
    """A batch of a windowed count over the rate source, as Spark 4.3 tells it."""
    progress = {
        "id": "5f5c2d2e-5f0b-4d7b-a0a9-6c6f1b1f1c1d",
        "runId": "a-run",
        "name": "clicks",
        "timestamp": "2025-11-15T03:49:31.504Z",
        "batchId": 7,
        "batchDuration": 412,
        "numInputRows": 10000,
        "inputRowsPerSecond": 1000.0,
        "processedRowsPerSecond": 24271.8,
        "durationMs": {
            "addBatch": 290,
            "commitBatch": 20,
            "commitOffsets": 18,
            "getBatch": 0,
            "latestOffset": 6,
            "queryPlanning": 45,
            "triggerExecution": 412,
            "walCommit": 18,
        },
        "eventTime": {
            "avg": "2025-11-15T03:49:25.000Z",
            "max": "2025-11-15T03:49:30.999Z",
            "min": "2025-11-15T03:49:21.000Z",
            "watermark": "2025-11-15T03:49:19.999Z",
        },
        "stateOperators": [
            {
                "operatorName": "stateStoreSave",
                "numRowsTotal": 200,
                "numRowsUpdated": 100,
                "memoryUsedBytes": 65536,
                "customMetrics": {"loadedMapCacheHitCount": 12},
            }
        ],
        "sources": [
            {
                "description": "RateStreamV2[rowsPerSecond=1000]",
                "startOffset": 20,
                "endOffset": 30,
                "latestOffset": 30,
                "numInputRows": 10000,
            }
        ],
        "sink": {"description": "MemorySink", "numOutputRows": 1},
        "observedMetrics": {},
    }
    return progress | changes


def _batch(**changes: Any) -> dict[str, Any]:
    batch = {
        "ended_ms": 1_763_178_571_920,
        "next_watermark_ms": 1_763_178_569_999,
        "progress": _progress(),
        "inputs": [{"delay_ms": 1000, "rows": 10000, "max_ms": 1_763_178_570_999, "min_ms": 1, "avg_ms": 2.5}],
        "operators": [{"op": "StateStoreSave", "rows": 3}, {"op": "HashAggregate", "rows": 100}],
    }
    return batch | changes


def _said(*batches: dict[str, Any], **changes: Any) -> str:
    query = {
        "run": "a-run",
        "alive": True,
        "waiting": True,
        "wait": 12,
        "since_ms": 1_763_178_571_925,
        "next_watermark_ms": 1_763_178_569_999,
        "tasks": 0,
        "awaited": False,
        "batches": list(batches),
    }
    return json.dumps(
        {
            "now_ms": 1_763_178_572_000,
            "open": False,
            "opened": 1,
            "cores": 2,
            "elastic": True,
            "ordinary_tasks": 3,
            "heap": {"used": 1, "max": 2, "live": 3},
            "notes": ["something could not be done"],
            "queries": [query | changes],
        }
    )


def _heard(*batches: dict[str, Any], **changes: Any) -> Report:
    return wire.report_of(wire.decode(_said(*batches, **changes)), {})


def _one(batch: dict[str, Any]) -> BatchReport:
    (report,) = _heard(batch).queries[0].batches
    return report


def test_a_report_is_understood():
    report = _heard()
    assert (report.wall_ts, report.cores, report.gates_open, report.ordinary_tasks) == (1_763_178_572.0, 2, False, 3)
    assert report.elastic
    assert (report.heap_used_bytes, report.heap_max_bytes, report.heap_live_bytes) == (1, 2, 3)
    query = report.queries[0]
    assert (query.key, query.alive, query.waiting, query.wait_no) == ("a-run", True, True, 12)
    assert query.since_wall_ts == 1_763_178_571.925
    assert query.next_watermark_event_ts == 1_763_178_569.999
    assert query.facts is None


def test_a_batch_is_understood():
    batch = _one(_batch())
    assert batch.batch_id == 7
    assert batch.rows == 10_000
    assert batch.duration_s == 0.412
    assert batch.ended_wall_ts == 1_763_178_571.92
    assert batch.watermark_event_ts == pytest.approx(1_763_178_559.999)
    assert batch.inputs[0].delay_s == 1.0
    assert batch.inputs[0].max_event_ts == 1_763_178_570.999
    assert (batch.rows_out, batch.state_rows, batch.state_bytes) == (1, 200, 65_536)
    assert not batch.limited


def test_offsets_are_fixed_once_the_latest_offset_is_known():
    assert _one(_batch()).offsets_wall_ts == pytest.approx(STARTED_TS + 0.006)


def test_an_idle_triggers_progress_is_no_batch():
    idle = _progress(numInputRows=0, durationMs={"latestOffset": 4, "triggerExecution": 4})
    assert _heard(_batch(progress=idle, inputs=[], operators=[])).queries[0].batches == ()


def test_a_sweep_without_rows_is_a_batch_without_a_maximum():
    event_time = {"watermark": "2025-11-15T03:49:29.999Z"}
    sweep = _progress(numInputRows=0, eventTime=event_time)
    batch = _one(_batch(progress=sweep, inputs=[{"delay_ms": 1000, "rows": 0}]))
    assert batch.rows == 0
    assert batch.inputs[0].max_event_ts is None


def test_without_per_input_statistics_sparks_own_maximum_serves():
    (maximum,) = _one(_batch(inputs=[])).inputs
    assert maximum.max_event_ts == pytest.approx(1_763_178_570.999)


@pytest.mark.parametrize(
    ("end", "latest", "limited"),
    [
        (30, 30, False),
        (30, 50, True),
        ({"t": {"0": 5}}, {"t": {"0": 9}}, True),
        ({"t": {"0": 5}}, {"t": {"0": 5}}, False),
        ({"logOffset": 4}, None, False),
    ],
)
def test_a_batch_that_left_rows_behind_is_limited(end: Any, latest: Any, limited: bool):
    sources = [{"description": "s", "endOffset": end, "latestOffset": latest}]
    assert _one(_batch(progress=_progress(sources=sources))).limited is limited


def test_kafkas_offsets_behind_the_latest_are_the_backlog():
    source = {
        "description": "KafkaV2[Subscribe[t]]",
        "endOffset": {"t": {"0": 10, "1": 20}},
        "latestOffset": {"t": {"0": 40, "1": 90}},
        "metrics": {"avgOffsetsBehindLatest": "50.0", "maxOffsetsBehindLatest": "70", "minOffsetsBehindLatest": "30"},
    }
    assert _one(_batch(progress=_progress(sources=[source]))).backlog_rows == 100


def test_a_partition_that_is_new_waits_from_its_start_and_what_is_ahead_is_no_debt():
    source = {
        "description": "KafkaV2[Subscribe[t]]",
        "endOffset": {"t": {"0": 10}},
        "latestOffset": {"t": {"0": 8, "1": 5}},
    }
    assert _one(_batch(progress=_progress(sources=[source]))).backlog_rows == 5


def test_a_source_with_other_offsets_is_asked_for_its_metrics():
    source = {
        "description": "Other",
        "endOffset": {"version": 4},
        "latestOffset": {"version": 9},
        "metrics": {"avgOffsetsBehindLatest": "7.0"},
    }
    assert _one(_batch(progress=_progress(sources=[source]))).backlog_rows == 7


def test_delays_that_a_query_observes_reach_the_input_that_they_are_of():
    told = {"slackwater_delays_1": {"rows": 4, "total_s": 2.0, "squares": 1.5, "cubes": 1.25}, "theirs": {"n": 1}}
    inputs = [{"delay_ms": 1000, "rows": 4}, {"delay_ms": 1000, "rows": 4}]
    first, second = _one(_batch(progress=_progress(observedMetrics=told), inputs=inputs)).inputs
    assert first.delays is None
    assert second.delays == (4, 2.0, 1.5, 1.25)


def test_a_batch_without_rows_tells_no_delays():
    told = {"slackwater_delays_0": {"rows": 0, "total_s": None, "squares": None, "cubes": None}}
    (first,) = _one(_batch(progress=_progress(observedMetrics=told), inputs=[{"delay_ms": 0, "rows": 0}])).inputs
    assert first.delays is None


def test_sources_that_tell_nothing_leave_the_backlog_unknown():
    assert _one(_batch()).backlog_rows is None


def test_a_query_without_a_watermark_tracker_has_no_watermark():
    assert _heard(next_watermark_ms=-1).queries[0].next_watermark_event_ts is None


def test_fields_that_a_newer_spark_adds_are_tolerated():
    progress = _progress(newThing={"deep": [1, 2]}, sources=[{"endOffset": 1, "latestOffset": 1, "novel": True}])
    report = _heard(_batch(progress=progress, more="?"), colour="blue")
    assert report.queries[0].batches[0].rows == 10_000


def test_a_batch_that_nobody_understands_leaves_the_others():
    strange = _batch(progress={"batchId": "seven"})
    assert [batch.batch_id for batch in _heard(strange, _batch()).queries[0].batches] == [7]


def test_an_answer_that_is_no_report_is_refused():
    with pytest.raises(msgspec.ValidationError):
        wire.decode('{"now_ms": "soon"}')


def test_facts_come_with_the_first_report_of_a_query():
    about = {
        "id": "an-id",
        "name": "clicks",
        "pool": "default",
        "gated": True,
        "trigger": "ProcessingTimeTrigger(0)",
        "user_interval_ms": 0,
        "output_mode": "Append",
        "checkpoint": "file:/tmp/c",
        "watermark_policy": "min",
        "no_data_batches": "true",
        "plan": [{"op": "EventTimeWatermark", "parent": -1, "streaming": True, "text": "List(ts#0-T2000ms)"}],
    }
    facts = _heard(about=about).queries[0].facts
    assert facts is not None
    assert (facts.key, facts.name, facts.query_id, facts.delay_s) == ("a-run", "clicks", "an-id", 2.0)


def test_a_query_whose_plan_nobody_understands_is_scheduled_still(caplog: pytest.LogCaptureFixture):
    facts = _heard(about={"plan": 42}).queries[0].facts
    assert facts is not None
    assert facts.gated
    assert facts.windows == ()
    assert "a-run" in caplog.text


def test_commands_are_written_as_the_gate_reads_them():
    commands = Commands((Grant("a-run", 12, Stage.DATA, "due"),), {"a-run": -1.5}, enforce=True)
    assert json.loads(wire.commands_json(commands)) == {
        "enforce": True,
        "grants": [{"run": "a-run", "wait": 12}],
        "priorities": {"a-run": -1.5},
    }


def test_timestamps_keep_their_milliseconds():
    assert wire.timestamp("2025-11-15T03:49:31.504Z") == pytest.approx(STARTED_TS, abs=1e-6)
    assert wire.timestamp("1970-01-01T00:00:00.000Z") == 0
