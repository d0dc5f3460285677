"""The recording of a run: read from progress reports, written in one format, refused when it is not that."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from slackwater.bench.run_trace import traced
from slackwater.bench.showing import Shown, progress_bar
from slackwater.cli import main
from slackwater.errors import ConfigurationError
from slackwater.sim.trace import RunTrace, TracedBatch, TracedQuery, read_trace


def _report(batch_id: int, second: int, **durations: int) -> dict[str, Any]:
    return {
        "batchId": batch_id,
        "timestamp": f"1970-01-01T00:00:{second:02d}.000Z",
        "durationMs": durations,
        "eventTime": {"max": f"1970-01-01T00:00:{second - 1:02d}.999Z", "watermark": "1970-01-01T00:00:00.500Z"},
        "sources": [{"numInputRows": 30}, {"numInputRows": 12}],
    }


def _run(policy: str = "klink") -> RunTrace:
    return RunTrace(
        policy=policy,
        seed=0,
        cores=2,
        lanes=2,
        from_ms=0,
        to_ms=60_000,
        cpu_s=12.5,
        queries=[TracedQuery(name="q", phase_ms=10, rate=100, window_s=10.0, delay_s=1.0)],
        batches=[
            TracedBatch(query="q", batch_id=3, start_ms=5000, duration_ms=240, rows=42, parts_ms={"addBatch": 150})
        ],
        cpu=[(0, 1.0), (60_000, 13.5)],
    )


def test_batches_of_the_measured_span_are_taken_from_progress_reports_with_their_parts():
    reports = [
        _report(9, 20, addBatch=100, triggerExecution=200),
        _report(7, 5, addBatch=100, walCommit=20, triggerExecution=250),
        _report(8, 9, latestOffset=1, triggerExecution=2),
        _report(6, 3, addBatch=100, triggerExecution=200),
    ]
    (batch,) = traced("q", reports, 4000, 20_000)
    assert batch == TracedBatch(
        query="q",
        batch_id=7,
        start_ms=5000,
        duration_ms=250,
        rows=42,
        watermark_ms=500,
        event_max_ms=4999,
        parts_ms={"addBatch": 100, "walCommit": 20},
    )


def test_a_batch_that_only_reaches_into_the_span_is_recorded_since_it_slowed_others():
    reports = [_report(6, 3, addBatch=100, triggerExecution=1500), _report(9, 19, addBatch=100, triggerExecution=3000)]
    assert [batch.batch_id for batch in traced("q", reports, 4000, 20_000)] == [6, 9]


def test_a_batch_without_rows_has_no_largest_event_time():
    report = _report(6, 3, addBatch=100, triggerExecution=200) | {"eventTime": {"watermark": "1970-01-01T00:00:01Z"}}
    (batch,) = traced("q", [report], 0, 20_000)
    assert batch.event_max_ms is None


def test_a_traced_run_comes_back_from_the_worker_as_it_was(tmp_path):
    trace = _run()
    shown = Shown(progress_bar(), None, tmp_path / "trace.json")
    for policy in ("klink", "spark-fair"):
        built = msgspec.to_builtins(msgspec.structs.replace(trace, policy=policy))
        shown.traced(msgspec.json.decode(msgspec.json.encode(built)))
    found = read_trace(tmp_path / "trace.json")
    assert found.format == 1
    assert found.runs == [trace, msgspec.structs.replace(trace, policy="spark-fair")]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"format": 2}, "format 1"),
        ({"format": "1"}, "format 1"),
        ({"surplus": 1}, "surplus"),
        ({"runs": []}, "no runs"),
        ({"runs": [{"policy": "klink"}]}, "seed"),
    ],
)
def test_whatever_is_not_a_trace_is_refused_with_what_was_found(tmp_path, change, complaint):
    file = tmp_path / "trace.json"
    whole = {"format": 1, "workload": "ysb", "commit": None, "runs": [msgspec.to_builtins(_run())]}
    file.write_text(json.dumps(whole), "utf-8")
    assert read_trace(file).runs[0] == _run()
    file.write_text(json.dumps(whole | change), "utf-8")
    with pytest.raises(ConfigurationError, match=complaint) as refused:
        read_trace(file)
    assert "--trace FILE" in str(refused.value)


def test_a_file_that_is_not_json_or_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot read"):
        read_trace(tmp_path / "none.json")
    (tmp_path / "text.json").write_text("batches", "utf-8")
    with pytest.raises(ConfigurationError, match="not a trace"):
        read_trace(tmp_path / "text.json")


def test_a_trace_into_a_folder_that_is_not_there_is_refused_before_anything_runs(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", "ysb", "--trace", str(tmp_path / "none" / "trace.json")])
    assert ended.value.code == 2
    assert "--trace" in capsys.readouterr().err
