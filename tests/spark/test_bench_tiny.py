"""The benchmark itself, tiny, on a real Spark: what it counts, never how fast it is."""

from __future__ import annotations

import msgspec
import pytest

from slackwater.bench.commands import write_result
from slackwater.bench.harness import Listener, run_bench
from slackwater.bench.model import BenchPlan, BenchResult, RunSettings, RunSpec


class ToFile(Listener):
    def __init__(self, file):
        self.file = file
        self.live = []

    def state(self, spec, state):
        self.live += [(spec.policy, row) for row in state.get("queries", [])]

    def result(self, result):
        write_result(result, self.file)


@pytest.mark.spark
def test_a_tiny_benchmark_emits_every_window_with_the_counts_of_the_oracle(tmp_path):
    file = tmp_path / "tiny.json"
    run = RunSpec(
        workload="ysb",
        policy="",
        seed=0,
        queries=2,
        rate=100,
        window_s=2.0,
        delay_s=1.0,
        seconds=4.0,
        phases="spread",
        payload="json",
        # A slow machine may need long to emit; a quick one leaves the drain as soon as all is out.
        settings=RunSettings(heap="1g", warmup_min_s=2.0, warmup_max_s=2.0, steady_span_s=2.0, drain_s=20.0, live=True),
    )
    listener = ToFile(file)
    run_bench(BenchPlan(run, policies=("spark-fair", "klink"), seeds=(0,)), listener)
    result = msgspec.json.decode(file.read_bytes(), type=BenchResult)

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
    assert list(tmp_path.iterdir()) == [file]
    assert {(policy, row["name"]) for policy, row in listener.live} == {
        (policy, name) for policy in ("spark-fair", "klink") for name in ("ysb_0", "ysb_1")
    }
    assert any(row["slack_s"] is not None for policy, row in listener.live if policy == "klink")
