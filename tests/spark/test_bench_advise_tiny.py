"""The benchmarks of advice and of recording, tiny, on a real Spark: what they count, never how right or fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slackwater.bench import advise
from slackwater.bench.advise import Case, advise_bench, recording_bench
from slackwater.bench.harness import Listener
from slackwater.bench.model import RunResult, RunSettings, RunSpec
from slackwater.recording.reading import read_trace

if TYPE_CHECKING:
    from pathlib import Path

    from slackwater.sim.experiment import Experiment

TINY = RunSpec(
    workload="ysb", policy="spark-fair", seed=0, queries=2, rate=100, window_s=2.0, delay_s=1.0, seconds=6.0,
    phases="spread", payload="columns",
    settings=RunSettings(heap="1g", warmup_min_s=2.0, warmup_max_s=2.0, steady_span_s=2.0, drain_s=20.0,
                         grace_s=200.0),
)  # fmt: skip


class Keeps(Listener):
    def __init__(self) -> None:
        self.runs: list[RunResult] = []

    def finished(self, run: RunResult) -> None:
        self.runs.append(run)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_plain_spark_is_recorded_and_another_policy_predicted_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    listener = Keeps()
    known: list[Experiment] = []
    found = advise_bench([Case("ysb", TINY)], "klink", [0], listener, told.append, tmp_path, known.append)
    assert known == [found]
    (row,) = found.rows
    assert "failed" not in row, row
    assert row["predicted mean s"] > 0
    assert row["live mean s"] > 0
    assert row["trace mean s"] > 0
    claims = {claim.claim for claim in found.claims}
    assert claims >= {
        "ysb, seed 0: error of the predicted mean of klink",
        "ysb, seed 0: error of the predicted p99 of klink",
        "ysb, seed 0: error of the predicted gain in the mean",
    }
    assert all("advice is to switch" in claim for claim in claims if "error" not in claim)
    trace = read_trace(tmp_path / "ysb-0.trace")
    assert [query.name for query in trace.queries] == ["ysb_0", "ysb_1"]

    # What recording took is told by the run that was recorded; another Spark would tell the same.
    recorded, live = listener.runs
    assert live.recording is None
    monkeypatch.setattr(advise, "_measured", lambda spec, listener: recorded)
    cost = recording_bench(TINY, [0], listener)
    (row,) = cost.rows
    assert "failed" not in row, row
    assert row["lost"] == 0
    assert row["bytes"] > 0
    assert 0 < row["CPU share of a core"] < 1
    assert len(cost.claims) == 3
