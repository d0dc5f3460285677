"""The search for what a policy sustains: with few tries, and with a reason for where it stops."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from slackwater.bench.harness import Listener
from slackwater.bench.measure import distribution
from slackwater.bench.model import Backlog, RunSpec, WindowCounts, WorkerResult
from slackwater.bench.scale import ScalePlan, ScaleResult, check_scale, scale, troubles, usable_rate
from slackwater.bench.scale_commands import print_scale
from slackwater.bench.scale_search import Bounds, largest
from slackwater.errors import ConfigurationError, SlackwaterError
from slackwater.workloads.registry import WORKLOADS
from tests.unit.test_bench_measure import result_of

RUN = RunSpec("ysb", "", 0, 3, 100, 2.0, 1.0, 4.0, "spread", "columns")
PLAN = ScalePlan(RUN, ("spark-tuned", "klink"), (0,), "queries", 10.0, first=4, most=40, step=2)
SWEEP = ("spark-staggered-2s", "spark-staggered-4s")


@given(limit=st.integers(0, 200), first=st.integers(1, 200), most=st.integers(1, 150))
def test_the_search_finds_the_limit_and_tries_no_size_twice(limit, first, most):
    tried = []

    def sustains(size):
        assert size not in tried
        assert 1 <= size <= most
        tried.append(size)
        return size <= limit

    found = largest(sustains, first, most)
    assert found.sustained == (min(limit, most) or None)
    assert found.too_large == (limit + 1 if limit < most else None)
    assert len(tried) <= 24


def test_sizes_grow_by_half_and_the_gap_is_then_halved():
    tried = []

    def sustains(size):
        tried.append(size)
        return size <= 20

    assert largest(sustains, 4, 100) == Bounds(20, 21)
    assert tried == [4, 6, 9, 14, 21, 17, 19, 20]


def test_a_run_without_trouble_is_sustained():
    assert troubles(result_of(RUN, 9.9), 10.0, 0.2) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"latency_s": distribution([10.2])}, "p99 over target: 10.2 s"),
        ({"windows": WindowCounts(8, 5, 0)}, "windows missing: 3 of 8"),
        ({"windows": WindowCounts(8, 8, 1, 1)}, "windows wrong: 2"),
        ({"windows": WindowCounts(0, 0, 0)}, "no window was due in the measured span"),
        ({"backlog": Backlog(None, None, 2.0, 2.5)}, "backlog growing: 2.0 to 2.5 s"),
    ],
)
def test_what_stops_a_run_is_told(changes, said):
    assert troubles(replace(result_of(RUN, 1.0), **changes), 10.0, 0.2) == [said]


@pytest.mark.parametrize("backlog", [Backlog(None, None, 2.0, 2.3), Backlog(None, None, 9.0, 2.0), Backlog(None, None)])
def test_a_backlog_that_shrinks_or_hardly_grows_stops_nothing(backlog):
    assert troubles(replace(result_of(RUN, 1.0), backlog=backlog), 10.0, 0.2) == []


@pytest.mark.parametrize("workload", WORKLOADS)
@given(rate=st.integers(1, 300_000))
def test_a_usable_rate_is_near_and_the_workload_takes_it(workload, rate):
    entry = WORKLOADS[workload]
    found = usable_rate(workload, rate)
    assert rate <= found <= rate + 3 * entry.streams
    entry.check(entry.payloads[0], found, entry.window_s, entry.slide_s)


def searched(monkeypatch, sustained, plan=PLAN):
    """The result of a search in which each policy sustains so much, and what was started."""
    started = []

    def fake(spec, on_state):
        size = spec.queries if plan.by == "queries" else spec.rate
        started.append((spec.policy, size, spec.seed))
        if size > sustained[spec.policy, spec.seed] + 10:
            raise SlackwaterError("ended with 1. java.lang.OutOfMemoryError")
        over = size > sustained[spec.policy, spec.seed]
        return WorkerResult(result_of(spec, 20.0 if over else 1.0), "4.3.0", "17")

    monkeypatch.setattr("slackwater.bench.scale.run_in_subprocess", fake)
    told: list[ScaleResult] = []
    result = scale(plan, Listener(), told.append)
    assert told[-1] == result
    assert all(len(later.rows) - len(before.rows) in (0, 1) for before, later in pairwise(told))
    return result, started


def test_every_policy_gets_its_limit_and_a_reason_and_spark_is_tuned_at_every_size(monkeypatch):
    sustained = {(SWEEP[0], 0): 5, (SWEEP[1], 0): 10, ("klink", 0): 17}
    result, started = searched(monkeypatch, sustained, replace(PLAN, sweep=SWEEP))
    tuned, ours = result.limits
    assert (tuned.policy, tuned.sustained, tuned.too_large, tuned.chosen) == ("spark-tuned", 10, 12, SWEEP[1])
    assert tuned.stopped_by == f"{SWEEP[1]}: p99 over target: 20.0 s; {SWEEP[0]}: p99 over target: 20.0 s"
    assert (ours.sustained, ours.too_large, ours.chosen) == (16, 18, None)
    assert ours.stopped_by == "p99 over target: 20.0 s"
    # 6 is too much for the first trigger; from there on the second, which sustained it, goes first.
    assert [run[:2] for run in started if run[0] != "klink"] == [
        (SWEEP[0], 4),
        (SWEEP[0], 6),
        (SWEEP[1], 6),
        *((SWEEP[1], size) for size in (10,)),
        *((name, 16) for name in (SWEEP[1], SWEEP[0])),
        *((name, 12) for name in (SWEEP[1], SWEEP[0])),
    ]
    assert [(claim.measured, claim.holds) for claim in result.claims] == [(1.6, True), (0, True)]
    assert result.complete
    assert msgspec.json.decode(msgspec.json.encode(result), type=ScaleResult) == result


def test_a_size_is_sustained_only_if_it_is_with_every_seed(monkeypatch):
    plan = replace(PLAN, policies=("klink",), seeds=(0, 1))
    result, started = searched(monkeypatch, {("klink", 0): 30, ("klink", 1): 6}, plan)
    (limit,) = result.limits
    assert (limit.sustained, limit.too_large) == (6, 8)
    assert limit.stopped_by == "p99 over target: 20.0 s (seed 1)"
    assert ("klink", 8, 0) in started


def test_a_run_that_fails_stops_the_size_with_its_cause(monkeypatch):
    plan = replace(PLAN, policies=("klink",), first=40)
    result, _ = searched(monkeypatch, {("klink", 0): 3}, plan)
    assert result.limits[0].sustained == 2
    failed = [row for row in result.rows if row["stopped_by"].startswith("run failed: OutOfMemoryError")]
    assert failed
    assert not any(row["sustained"] for row in failed)


def test_the_rate_grows_instead_of_the_queries_when_asked(monkeypatch):
    plan = replace(PLAN, by="rate", policies=("klink",), first=1000, most=2000, step=1000)
    result, started = searched(monkeypatch, {("klink", 0): 5000}, plan)
    assert [size for _, size, _ in started] == [1000, usable_rate("ysb", 2000)]
    assert (result.limits[0].sustained, result.limits[0].too_large) == (2000, None)
    assert {row["queries"] for row in result.rows} == {RUN.queries}


@pytest.mark.parametrize("wrong", [{"p99_s": 0.0}, {"step": 0}, {"first": 1}, {"most": 3}])
def test_a_search_that_cannot_be_made_is_refused(wrong):
    with pytest.raises(ConfigurationError):
        check_scale(replace(PLAN, **wrong))


def test_the_curve_and_what_stops_each_policy_are_printed(monkeypatch):
    result, _ = searched(monkeypatch, {("klink", 0): 5}, replace(PLAN, policies=("klink",)))
    out = StringIO()
    print_scale(result, Console(file=out, width=160))
    assert "klink sustains 4 queries (p99 ≤ 10 s); stopped at 6 by p99 over target: 20.0 s." in out.getvalue()
    assert "1.00" in out.getvalue()
