"""The demo, and with it the benchmark, tiny, on a real Spark: what they count and say, never how fast they are."""

from __future__ import annotations

import re

import msgspec
import pytest

from slackwater.bench.model import BenchResult
from slackwater.demo import DemoPlan, run_demo


@pytest.mark.spark
def test_the_demo_compares_spark_alone_with_slackwater_and_every_window_is_the_oracles(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal: a table that is drawn again and again
    monkeypatch.setenv("COLUMNS", "200")
    folder = tmp_path / "demo"
    # A slow machine may need long to emit; a quick one leaves the drain as soon as all is out.
    times = DemoPlan(rate=100, window_s=2.0, seconds=4.0, warmup_min_s=2.0, warmup_max_s=2.0, drain_s=20.0)
    run_demo(fast=True, queries=2, out=folder, serve=True, times=times)

    said = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().out)
    assert "1 of 2: Spark alone: measuring" in said
    assert "2 of 2: the same queries with Slackwater: measuring" in said
    assert re.search(r"ysb_[01] [^\n]* [+-]\d+\.\d ", said)  # with the slack of a query
    assert "With Slackwater results leave after" in said
    assert "windows wrong" in said
    assert "Live page: http://127.0.0.1:" in said
    first, second = said.split("2 of 2: the same queries with Slackwater: ", 1)
    assert all(f"{name} " in half for name in ("ysb_0", "ysb_1") for half in (first, second))
    files = {file.name for file in folder.iterdir()}
    assert files >= {"result.json", "report.html"}
    assert not [name for name in files if name.endswith(".partial")]

    result = msgspec.json.decode((folder / "result.json").read_bytes(), type=BenchResult)
    assert result.complete
    assert result.failures == []
    assert [measured.policy for measured in result.runs] == ["spark-fair", "klink"]
    for measured in result.runs:
        assert measured.windows.expected == measured.windows.emitted == measured.latency_s.count >= 3
        assert measured.windows.wrong == measured.windows.wrong_outside == 0
        assert measured.batches > 0
        assert measured.offered_events_per_s == 200.0
        assert measured.heap_mb.count > 0
        assert [query.name for query in measured.per_query] == ["ysb_0", "ysb_1"]
    spark, ours = result.runs
    assert spark.scheduler.decision_ms_p99 is None
    assert (ours.scheduler.decisions or 0) > 0
    assert ours.scheduler.gates_opened == 0
