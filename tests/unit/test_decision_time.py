"""How long a decision takes, for every policy: measured by `make bench-decisions`, never asserted.

A decision is one step of the engine as the Spark driver makes it: a report of all queries in, what their batches tell
learnt, the policy asked, commands out. The reports come from the scripted driver on two cores. Batches differ in
length, as Spark's do, so that they end one after the other: a report tells of a few, whether gates hold the
queries or not (`observe`). One in ten is of a class before the others; all hold state, and the heap is not short.

The time is that of the clock on the wall; the thread's processor time is told beside it, because on a machine that is
busy with something else the former says how long the thread waited for a core.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from slackwater.core.model import Commands, QueryOptions, Report, Window
from slackwater.policies.assembly import engine_for
from slackwater.policies.registry import known_policies
from slackwater.testing import ScriptedDriver, SimulatedQuery

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

SECONDS_OF_HISTORY = 25
LENGTHS = tuple(0.75 + 0.5 * i / 1000 for i in range(1001))


class Scheduled:
    """An engine and its driver, one step at a time."""

    def __init__(self, policy: str, queries: int) -> None:
        # Every query has a turn a window, whatever their number.
        cost_s = 10 / queries
        self.cpu_s: list[float] = []
        self.engine = engine_for(policy)
        self.driver = ScriptedDriver(
            [
                SimulatedQuery(
                    f"q{i:04d}",
                    windows=(Window(10, 10, 10 * i / queries),),
                    delay_s=1.0,
                    step_s=1.0,
                    batch_cost_s=cost_s / 2,
                    factors=LENGTHS,
                    state_bytes=2**20,
                    options=QueryOptions(priority_class=-1 if i % 10 == 0 else 0),
                )
                for i in range(queries)
            ]
        )
        self.commands = Commands(enforce=self.engine.policy.enforces, wake_after_s=0.01)
        until = self.driver.clock.now() + SECONDS_OF_HISTORY
        steps = 0
        while self.driver.clock.now() < until and steps < queries // 2:
            self.step(self.report())
            steps += 1

    def report(self) -> Report:
        return replace(self.driver.exchange(self.commands), heap_live_bytes=2**30, heap_max_bytes=2**32)

    def step(self, report: Report) -> None:
        begun = time.thread_time()
        self.commands = self.engine.step(report)
        self.cpu_s.append(time.thread_time() - begun)


@pytest.mark.parametrize("policy", known_policies())
def test_a_decision(policy: str, request: pytest.FixtureRequest, benchmark: BenchmarkFixture) -> None:
    queries = request.config.getoption("decision_queries")
    scheduled = Scheduled(policy, queries)

    def upcoming() -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (scheduled.report(),), {}

    benchmark.pedantic(scheduled.step, setup=upcoming, rounds=request.config.getoption("decision_rounds"))
    stats = benchmark.stats
    if stats is not None:
        times_s = stats.stats.data
        benchmark.extra_info["queries"] = queries
        benchmark.extra_info["p99_ms"] = _p99_ms(times_s)
        benchmark.extra_info["p99_cpu_ms"] = _p99_ms(scheduled.cpu_s[-len(times_s) :])
    assert len(scheduled.engine.views) == queries
    assert set(scheduled.commands.urgencies) == {view.key for view in scheduled.engine.views}


def _p99_ms(times_s: list[float]) -> float:
    return round(1000 * sorted(times_s)[int(0.99 * (len(times_s) - 1))], 3)
