"""Spark and Flink on one host under one middleware, tiny: what is counted and set, never how fast it is."""

from __future__ import annotations

import os

import pytest

from slackwater.bench.engines import FlinkLoad, engines
from slackwater.bench.flink_distribution import cached
from slackwater.bench.harness import Listener
from slackwater.bench.model import RunSettings, RunSpec


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.skipif(
    cached() is None, reason="no Flink here; `python -m slackwater.bench.flink_distribution` fetches it"
)
@pytest.mark.skipif(os.geteuid() != 0, reason="nice can be put back by root only, without further rights")
def test_one_middleware_sets_units_of_both_engines_and_every_window_is_right():
    base = RunSpec(
        workload="ysb",
        policy="klink",
        seed=0,
        queries=1,
        rate=100,
        window_s=2.0,
        delay_s=1.0,
        seconds=6.0,
        phases="spread",
        payload="columns",
        settings=RunSettings(heap="1g", warmup_min_s=6.0, warmup_max_s=6.0, steady_span_s=2.0, drain_s=20.0),
    )
    found = engines(base, FlinkLoad(jobs=2, rate=100), ["qs-nice"], [100.0], [0], Listener())
    assert [row.get("failed") for row in found.rows] == [None, None]
    spark, flink = found.rows
    assert (spark["engine"], flink["engine"]) == ("spark", "flink")
    assert spark["units set"] >= 1
    assert flink["units set"] >= 16
    for row in found.rows:
        assert row["windows"] >= 2
        assert row["windows missing"] == row["windows wrong"] == 0
        assert row["rows/s"] > 0
    assert {claim.claim: claim.holds for claim in found.claims}["windows with a wrong result"]
