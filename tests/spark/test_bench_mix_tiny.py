"""A mix and a search for what is sustained, tiny, on a real Spark: what they count, never how fast they are."""

from __future__ import annotations

import pytest

from slackwater.bench.harness import Listener, run_bench
from slackwater.bench.mix_commands import mix_plan
from slackwater.bench.mix_file import parse_mix
from slackwater.bench.model import RunSettings, RunSpec
from slackwater.bench.scale import ScalePlan, scale

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

# A slow machine may need long to emit; a quick one leaves the drain as soon as all is out.
SETTINGS = RunSettings(heap="1g", warmup_min_s=2.0, warmup_max_s=2.0, steady_span_s=2.0, drain_s=240.0, grace_s=300.0)
GROUPS = {
    "clicks": {"workload": "ysb", "queries": 2, "rate": 100, "window": 2, "payload": "json", "class": "low"},
    "taxis": {"workload": "nyt", "rate": 200, "window": 4, "slide": 2, "payload": "csv"},
    "roads": {"workload": "linear-road-stressed", "rate": 600, "class": "high"},
}


def test_every_query_of_a_mix_emits_its_windows_with_the_rows_of_its_oracle():
    mix = parse_mix({"groups": GROUPS}, "tiny.toml", "tiny")
    plan = mix_plan(mix, seconds=7.0, policies=("klink",), seeds=(0,), sweep="1x", settings=SETTINGS)
    result = run_bench(plan, Listener())
    assert result.failures == []
    (run,) = result.runs
    assert run.windows.expected == run.windows.emitted == run.latency_s.count
    assert run.windows.wrong == run.windows.wrong_outside == 0
    assert run.offered_events_per_s == 1000.0
    assert [query.name for query in run.per_query] == ["clicks_0", "clicks_1", "taxis_0", "roads_0"]
    assert [(group.name, group.queries) for group in run.per_group] == [("clicks", 2), ("taxis", 1), ("roads", 1)]
    for group, at_least in zip(run.per_group, (6, 3, 2), strict=True):
        assert group.windows.expected == group.windows.emitted >= at_least
        assert group.slowdown.count == group.windows.expected
    assert [part.name for part in run.per_class] == ["high", "normal", "low"]
    assert run.slowdown is not None
    assert run.slowdown.count == run.windows.expected


def test_a_search_tries_sizes_on_spark_and_tells_what_each_took():
    run = RunSpec("ysb", "", 0, 1, 100, 2.0, 1.0, 4.0, "spread", "columns", settings=SETTINGS)
    plan = ScalePlan(run, ("spark-tuned",), (0,), "queries", 0.001, first=1, most=1, step=1, sweep=("spark-every-1s",))
    result = scale(plan, Listener(), lambda _: None)
    (row,) = result.rows
    assert (row["policy"], row["contender"], row["queries"]) == ("spark-tuned", "spark-every-1s", 1)
    emitted, expected = row["windows"].split("/")
    assert int(emitted) == int(expected) >= 1
    assert row["wrong"] == 0
    assert row["cpu_cores"] > 0
    # No window can be out within a millisecond of its end.
    (limit,) = result.limits
    assert (limit.sustained, limit.too_large) == (None, 1)
    assert "p99 over target" in limit.stopped_by
