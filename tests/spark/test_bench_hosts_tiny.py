"""The benchmark of a full host, tiny: what it counts and sets, never how fast it is."""

from __future__ import annotations

import pytest

from slackwater.bench.harness import Listener
from slackwater.bench.hosts import LOW_NAME, hosts
from slackwater.bench.hosts_child import ChildSpec
from slackwater.bench.middleware_cost import middleware_cost
from slackwater.bench.model import RunSettings, RunSpec
from slackwater.translators.kernel import Linux


@pytest.fixture(autouse=True)
def needs_nice() -> None:
    if not Linux().may_lower_nice(0):
        pytest.skip("needs the right to lower nice again (CAP_SYS_NICE or RLIMIT_NICE)")


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_an_urgent_application_and_one_that_fills_the_host_are_both_measured_under_the_middleware() -> None:
    base = RunSpec(
        workload="ysb", policy="klink", seed=0, queries=1, rate=100, window_s=2.0, delay_s=1.0, seconds=4.0,
        phases="spread", payload="columns",
        settings=RunSettings(heap="1g", warmup_min_s=2.0, warmup_max_s=2.0, steady_span_s=2.0, drain_s=20.0,
                             grace_s=200.0),
    )  # fmt: skip
    low = ChildSpec(LOW_NAME, "saturating", queries=1, rows_per_batch=500, cores=1, heap="512m")
    found = hosts(base, low, ["nice"], [0], Listener())
    (row,) = found.rows
    assert "failed" not in row, row
    assert row["windows"] >= 2
    assert row["windows wrong"] == row["windows missing"] == 0
    assert row["LOW rows/s"] > 0
    assert row["middleware CPU %"] > 0


def test_the_middlewares_own_cost_is_measured_on_as_many_entities_as_asked_for() -> None:
    told: list[str] = []
    found = middleware_cost(6, 2, 1.0, 0.2, 0, told.append)
    assert [row["entities"] for row in found.rows] == [6, 6]
    assert [row["mechanism"] for row in found.rows] == ["nice", "cgroup"]
    assert all(row["periods"] >= 1 and row["CPU share"] > 0 for row in found.rows)
    assert len(told) == len(found.claims) == 2
