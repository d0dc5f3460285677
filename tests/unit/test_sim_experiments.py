"""Every experiment runs tiny: rows, claims, files, pictures, and wrong options said clearly."""

from __future__ import annotations

import contextlib
import json

import pytest

from slackwater.cli import main
from slackwater.errors import ConfigurationError
from slackwater.sim import haren, klink, region
from slackwater.sim.commands import EXPERIMENTS
from slackwater.sim.options import Options, parse
from slackwater.sim.pipelines import Pipeline, Steady

TINY = Options(queries=(2,), minutes=0.45, delays=("uniform",))


@pytest.mark.parametrize("workload", [klink.YSB, klink.LRB, klink.NYT], ids=lambda workload: workload.name)
def test_klink_against_the_others_has_a_row_for_each_and_the_papers_claims(workload):
    found = klink.compare(workload, 0, TINY)
    assert [row["policy"] for row in found.rows] == list(klink.POLICIES)
    assert all(row["windows"] > 0 and row["mean_s"] > 0 for row in found.rows)
    texts = " ".join(claim.claim for claim in found.claims)
    for word in ("default", "fcfs", "round-robin", "sbox", "p99", "throughput"):
        assert word in texts
    assert found.assumptions


def test_the_same_seed_gives_the_same_figures():
    options = Options(queries=(3,), minutes=0.45, policies=("klink", "default"), delays=("zipf",))
    assert klink.compare(klink.YSB, 4, options) == klink.compare(klink.YSB, 4, options)
    assert klink.compare(klink.YSB, 4, options).rows != klink.compare(klink.YSB, 5, options).rows


def test_the_knee_is_where_the_cores_are_full():
    plan = klink.Plan(knee=40.0)
    for workload in (klink.YSB, klink.LRB, klink.NYT):
        queries = klink.pipelines(workload, plan, 40, seed=0)
        work = sum(workload.events_per_s * query.costs_s.sum() for query in queries)
        assert work == pytest.approx(plan.cores)


def test_memory_and_cpu_are_sampled_over_time():
    found = klink.memory(0, Options(queries=(2,), minutes=0.3))
    assert {row["policy"] for row in found.rows} == {"default", "klink"}
    assert len(found.rows[0]["memory_gb_over_time"]) == len(found.rows[0]["cpu_pct_over_time"]) == 4


def test_overhead_has_a_row_for_each_confidence():
    found = klink.overhead(0, Options(queries=(2,), minutes=0.05))
    assert [row["confidence"] for row in found.rows] == [0.8, 0.85, 0.9, 0.95, 0.99]
    assert len(found.claims) == 5
    with pytest.raises(ConfigurationError, match="klink alone"):
        klink.overhead(0, Options(policies=("fcfs",)))


def test_the_region_has_claims_for_each_point():
    points = (region.Setting(0.5), region.Setting(2.0, held="broker"))
    plan = region.RegionPlan(policies=("default", "klink"), minutes=0.1, queries=(2,), settings=points)
    rows = [region._row(0, plan, point, "uniform", 2, policy) for point in points for policy in plan.policies]
    assert len(list(region._claims(rows))) == 6


def test_single_class_chains_are_measured_for_each_policy():
    found = haren.single(0, Options(queries=(5, 6), minutes=0.04))
    assert [(row["queries"], row["policy"]) for row in found.rows] == [
        (queries, policy) for queries in (5, 6) for policy in ("default", "fcfs", "hr", "chain")
    ]
    assert any("chain's throughput" in claim.claim for claim in found.claims)


def test_synthetic_queries_are_as_the_paper_draws_them():
    chains = haren.synthetic(20, seed=1)
    assert chains[:5] == haren.synthetic(5, seed=1)
    for chain in chains:
        assert all(0 < operator.selectivity <= 1 for operator in chain)
        costs = [operator.cost_s for operator in chain]
        assert max(costs) / min(costs) <= 1.1 / 0.9
    full = haren.scaled(chains, [1000.0] * 20, 0.5)
    work = sum(1000 * Pipeline("", chain, Steady(1000.0)).costs_s.sum() for chain in full)
    assert work == pytest.approx(2.0)


def test_classes_have_their_rows_in_both_scenarios():
    found = haren.multiclass(0, Options(minutes=0.1))
    assert {(row["scenario"], row["policy"], row["class"]) for row in found.rows} == {
        (scenario, policy, group)
        for scenario in ("steady", "dynamic")
        for policy in ("default", "multi-class")
        for group in ("high", "low")
    }
    assert len(found.claims) == 9
    assert {row["draws"] for row in found.rows} == {5}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"queries": "0"}, "whole numbers from 1"),
        ({"queries": "a,2"}, "whole numbers from 1"),
        ({"queries": ","}, "one or more"),
        ({"minutes": 0.0}, "positive"),
        ({"policies": "klink,klin"}, "klink"),
        ({"policies": "observe"}, "unknown policy"),
        ({"delays": "gamma"}, "uniform"),
    ],
)
def test_a_wrong_option_is_said_clearly(told, words):
    with pytest.raises(ConfigurationError, match=words):
        parse(**told)


@pytest.mark.parametrize(
    ("name", "options"),
    [("klink-estimator", Options(minutes=1.0)), ("haren-single", Options(delays=("zipf",)))],
)
def test_an_option_that_an_experiment_does_not_have_is_said_clearly(name, options):
    with pytest.raises(ConfigurationError, match="leave"):
        EXPERIMENTS[name](0, options)


def test_the_command_writes_file_and_picture(tmp_path, capsys):
    json_file, picture = tmp_path / "x.json", tmp_path / "x.png"
    small = ["--queries", "2", "--minutes", "0.45", "--policies", "default,klink", "--delays", "uniform"]
    with contextlib.suppress(SystemExit):
        main(["sim", "klink-ysb", *small, "--seed", "3", "--json", str(json_file), "--plot", str(picture)])
    written = json.loads(json_file.read_text("utf-8"))
    assert written["experiment"] == "klink-ysb"
    assert written["seed"] == 3
    assert picture.stat().st_size > 1000
    assert "drawn:" in capsys.readouterr().out


def test_a_picture_of_another_kind_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["sim", "klink-ysb", "--plot", str(tmp_path / "x.gif")])
    assert ended.value.code == 2
    assert ".png" in capsys.readouterr().err
