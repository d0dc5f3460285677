"""What a benchmark on a cluster may ask for, before anything is started."""

from __future__ import annotations

from typing import Any

import pytest

from slackwater.bench.commands import bench_command
from slackwater.bench.harness import check
from slackwater.bench.model import BenchPlan, OnCluster, RunSpec
from slackwater.errors import ConfigurationError


def plan(**cluster: Any) -> BenchPlan:
    run = RunSpec(
        workload="ysb",
        policy="",
        seed=0,
        queries=2,
        rate=100,
        window_s=2.0,
        delay_s=1.0,
        seconds=30.0,
        phases="spread",
        payload="columns",
        cluster=OnCluster(**cluster),
    )
    return BenchPlan(run, policies=("klink",), seeds=(0,))


def test_a_worker_killed_within_the_span_and_back_within_it_is_a_plan() -> None:
    check(plan(workers=2, kill_worker_after_s=10.0, back_after_s=5.0))


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ({"workers": -1}, "workers=-1"),
        ({"workers": 2, "memory": "lots"}, "512m or 1g"),
        ({"workers": 2, "kill_worker_after_s": 30.0}, "in the measured span of 30 s"),
        ({"workers": 1, "kill_worker_after_s": 3.0}, "a cluster of 2 or more"),
        ({"workers": 2, "kill_worker_after_s": 3.0, "back_after_s": 300.0}, "comes back after 0 to 30 s"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_before_anything_starts(cluster: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        check(plan(**cluster))


def test_a_short_run_on_a_cluster_without_a_kill_asks_nothing_of_the_time_to_come_back() -> None:
    check(plan(workers=2, back_after_s=300.0))


def test_killing_a_worker_needs_workers() -> None:
    with pytest.raises(ConfigurationError, match="--cluster 2"):
        bench_command("ysb")(kill_worker_after=3.0)


def test_a_run_on_a_cluster_gets_time_for_the_cluster_to_start() -> None:
    on_cluster = plan(workers=2).run
    local = RunSpec("ysb", "", 0, 2, 100, 2.0, 1.0, 30.0, "spread", "columns")
    assert on_cluster.timeout_s == local.timeout_s + 120.0
