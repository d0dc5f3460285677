"""The benchmark of supervision, tiny, on a real Spark: what it counts, never how fast it is."""

from __future__ import annotations

import pytest

from slackwater.bench.experiments import outcomes
from slackwater.bench.harness import Listener
from slackwater.bench.model import Doomed, RunSettings, RunSpec

pytestmark = pytest.mark.spark


def test_a_query_that_is_killed_comes_back_with_an_alarm_and_no_window_is_lost_or_doubled() -> None:
    spec = RunSpec(
        workload="ysb",
        policy="klink",
        seed=0,
        queries=1,
        rate=100,
        window_s=2.0,
        delay_s=1.0,
        seconds=4.0,
        phases="spread",
        payload="columns",
        doomed=Doomed(every_s=1.0),
        settings=RunSettings(heap="1g", warmup_min_s=2.0, warmup_max_s=2.0, steady_span_s=2.0, drain_s=20.0),
    )
    ((outcome),) = outcomes([("killed", spec)], Listener())
    assert outcome.run is not None, outcome.error
    assert outcome.run.windows.emitted == outcome.run.windows.expected >= 1
    assert outcome.run.windows.wrong == 0
    doomed = outcome.run.doomed
    assert doomed is not None
    assert doomed["deaths"] >= 1
    assert None not in doomed["alarm_s"]
    assert None not in doomed["started_again_s"]
    assert doomed["windows"] >= 1
    assert (doomed["windows_wrong"], doomed["windows_missing"]) == (0, 0)
