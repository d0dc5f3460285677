"""`slackwater bench late`, tiny, on a real Spark: every window is right, whoever computes it; never how fast."""

from __future__ import annotations

import pytest

from slackwater.bench.late_harness import LateListener, run_late
from slackwater.bench.late_model import LatePlan, LateRunSpec, LateSettings


@pytest.mark.spark
@pytest.mark.timeout(700)
@pytest.mark.parametrize(
    ("kind", "contenders"), [("rows", ("ours", "spark-memory", "spark-pandas-salted")), ("aggregates", ("ours",))]
)
def test_windows_with_late_rows_are_those_of_the_oracle(kind, contenders):
    run = LateRunSpec(
        workload="average",
        contender="",
        kind=kind,
        past_windows=1,
        rate=100,
        window_s=2.0,
        payload_bytes=64,
        seed=3,
        seconds=4.0,
        trigger_s=1.0,
        warmup_s=3.0,
        # A slow machine may need long to emit; a quick one leaves the drain as soon as all is out.
        drain_s=40.0,
        settings=LateSettings(grace_s=240.0),
    )
    result = run_late(LatePlan(run, contenders, (1,)), LateListener())
    assert result.complete
    assert tuple(measured.contender for measured in result.runs) == contenders
    for measured in result.runs:
        assert measured.outcome != "died", measured.reason
        assert measured.windows is not None
        assert measured.windows.right >= 2
        assert (measured.windows.wrong, measured.windows.missing, measured.overdue) == (0, 0, 0)
        assert measured.latency_s.count >= 1
        assert measured.warnings == []
        if measured.contender == "ours":
            assert measured.ours is not None
            assert measured.ours.dead_rows == 0
            assert measured.ours.on_time_results + measured.ours.late_results >= measured.windows.right
        else:
            assert measured.ours is None
