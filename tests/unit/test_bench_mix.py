"""Mixes: what a file may say, which queries follow from it, and how unlike queries are compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.bench.harness import Listener, check, run_bench
from slackwater.bench.members import members_of
from slackwater.bench.mix_commands import mix_plan
from slackwater.bench.mix_file import load_mix, parse_mix
from slackwater.bench.mix_model import Group
from slackwater.bench.model import BenchResult, QueryResult, RunSettings, RunSpec, WindowCounts, WorkerResult
from slackwater.bench.slowdown import by_class, by_group, mix_claims, slowdown, weighted
from slackwater.errors import ConfigurationError
from tests.unit.test_bench_measure import result_of

MIXES = Path(__file__).parents[2] / "benchmarks" / "mixes"
ADS = {"workload": "ysb", "queries": 2, "rate": 100, "window": 4, "payload": "json", "class": "high"}


def parsed(**changes):
    """The mix of two groups, with changes to the first."""
    return parse_mix({"groups": {"ads": {**ADS, **changes}, "taxi-rides": {"workload": "nyt"}}}, "mix.toml", "two")


def plan_of(mix, *policies):
    return mix_plan(mix, seconds=4.0, policies=policies or ("klink",), seeds=(0,), sweep="2,1x", settings=RunSettings())


def test_a_group_has_the_usual_settings_of_its_workload_unless_it_says_others():
    mix = parsed()
    assert mix.name == "two"
    assert mix.groups == (
        Group("ads", "ysb", 2, 100, 4.0, None, 1.0, "spread", "json", "high"),
        Group("taxi-rides", "nyt", 1, 7000, 2.0, 1.0, 1.0, "spread", "columns", "normal"),
    )
    assert (mix.queries, mix.offered_per_s, mix.longest_window_s) == (3, 7200, 4.0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"quereis": 2}, r"mix\.toml: group 'ads': unknown key 'quereis'.*Did you mean 'queries'"),
        ({"workload": "yssb"}, r"group 'ads': unknown workload 'yssb'.*Did you mean 'ysb'"),
        ({"class": "hgih"}, r"group 'ads': unknown class 'hgih'.*Did you mean 'high'"),
        ({"phases": "spred"}, r"group 'ads': unknown phases 'spred'.*Did you mean 'spread'"),
        ({"rate": "fast"}, r"group 'ads': Expected `int \| null`, got `str` - at `\$\.rate`"),
    ],
)
def test_a_wrong_key_or_name_is_told_with_its_group_and_the_nearest_known_one(changes, said):
    with pytest.raises(ConfigurationError, match=said):
        parsed(**changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"queries": 0}, "group 'ads': queries must be at least 1"),
        ({"payload": "csv"}, "group 'ads': the payload of ysb is columns or json"),
        ({"slide": 5}, "group 'ads': windows of 4 s slide by"),
        ({"delay": -1}, "group 'ads': the watermark delay"),
        ({"window": 0.01}, "group 'ads': windows must be at least"),
        ({"rate": 6000}, "group 'ads': at 6000 events/s .* use 6001"),
    ],
)
def test_what_a_workload_cannot_do_is_refused_before_anything_starts(changes, said):
    with pytest.raises(ConfigurationError, match=said):
        check(plan_of(parsed(**changes)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "missing required field `groups`"),
        ({"groups": {}}, "there is no group"),
        ({"group": {}}, "unknown key 'group'.*Did you mean 'groups'"),
        ({"groups": {"a b": {"workload": "ysb"}}}, "a name starts with a letter"),
        ({"groups": {"a-b": {"workload": "ysb"}, "a_b": {"workload": "nyt"}}}, "'a-b' and 'a_b' would both"),
    ],
)
def test_a_file_that_is_no_mix_is_refused(content, said):
    with pytest.raises(ConfigurationError, match=said):
        parse_mix(content, "mix.toml", "mix")


def test_a_file_that_cannot_be_read_or_is_not_toml_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="No such file"):
        load_mix(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("groups = [")
    with pytest.raises(ConfigurationError, match=r"bad\.toml is not TOML"):
        load_mix(tmp_path / "bad.toml")


def test_the_queries_of_a_mix_have_names_data_and_classes_of_their_groups():
    run = plan_of(parsed()).spec("klink", 3)
    members = members_of(run)
    assert [member.query.name for member in members] == ["ads_0", "ads_1", "taxi_rides_0"]
    assert [member.workload.name for member in members] == ["ysb", "ysb", "nyt"]
    assert [member.priority_class for member in members] == [-1, -1, 0]
    assert [member.group for member in members] == ["ads", "ads", "taxi-rides"]
    assert [member.query.rate for member in members] == [100, 100, 7000]
    assert [member.query.slide_ms for member in members] == [4000, 4000, 1000]
    seeds = {member.query.seed for seed in range(4) for member in members_of(replace(run, seed=seed))}
    assert len(seeds) == 4 * len(members)
    assert msgspec.json.decode(msgspec.json.encode(run), type=RunSpec) == run


def test_outside_a_mix_the_first_queries_are_the_urgent_ones():
    run = RunSpec("ysb", "", 0, 3, 100, 2.0, 1.0, 4.0, "spread", "columns", high=1)
    assert [(m.query.name, m.priority_class, m.group) for m in members_of(run)] == [
        ("ysb_0", -1, ""),
        ("ysb_1", 0, ""),
        ("ysb_2", 0, ""),
    ]


@pytest.mark.parametrize(("name", "queries"), [("platform", 14), ("platform-full", 14), ("teams", 9)])
def test_every_committed_mix_has_queries_of_five_kinds_and_of_all_classes(name, queries):
    mix = load_mix(MIXES / f"{name}.toml")
    check(plan_of(mix))
    assert mix.name == name
    assert mix.queries == queries
    assert len({(group.workload, group.payload) for group in mix.groups}) >= 5
    assert {group.class_name for group in mix.groups} == {"high", "normal", "low"}


def query(name, group, latencies_s, *, every_s, priority_class=0, wrong=0):
    counts = WindowCounts(len(latencies_s), len(latencies_s), wrong)
    return QueryResult(name, 0, None, None, 1, counts, priority_class, latencies_s, group, every_s)


SLOW = query("a_0", "a", [2.0, 4.0], every_s=10.0, priority_class=1)
QUICK = query("b_0", "b", [1.0] * 9 + [3.0], every_s=1.0, priority_class=-1, wrong=1)


def test_slowdown_is_latency_over_the_time_from_result_to_result_and_every_query_counts_the_same():
    assert slowdown([SLOW]).mean == 0.3
    assert slowdown([QUICK]).mean == 1.2
    both = slowdown([SLOW, QUICK])
    assert both.mean == 0.75
    assert (both.count, both.p50, both.p90, both.p99, both.max) == (12, 0.4, 1.0, 3.0, 3.0)
    assert slowdown([]).mean is None


def test_groups_stand_in_their_order_and_classes_by_urgency():
    groups = by_group([SLOW, QUICK])
    assert [(group.name, group.queries, group.windows.wrong) for group in groups] == [("a", 1, 0), ("b", 1, 1)]
    assert [group.slowdown.mean for group in groups] == [0.3, 1.2]
    assert groups[0].latency_s.mean == 3.0
    assert [group.name for group in by_class([SLOW, QUICK])] == ["high", "low"]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30))
def test_with_equal_weights_a_quantile_has_its_share_of_values_at_or_below_it(values):
    found = weighted(values, [1 / len(values)] * len(values))
    for share, quantile in ((0.5, found.p50), (0.9, found.p90), (0.99, found.p99)):
        below = sum(round(value, 4) <= quantile for value in values)
        assert below >= share * len(values) - 1e-6
        assert sum(round(value, 4) < quantile for value in values) < share * len(values)
    assert found.max == round(max(values), 4)


def test_a_mix_claims_that_klink_slows_down_least_and_that_all_is_right(monkeypatch):
    means = {"klink": 0.5, "spark-fair": 2.0, "spark-staggered-2s": 0.1, "spark-staggered-1x": 1.0}

    def fake(spec, on_state):
        found = query("a_0", "a", [means[spec.policy]], every_s=1.0)
        run = result_of(spec, 9.0, steady=spec.policy != "spark-staggered-2s")
        return WorkerResult(replace(run, slowdown=slowdown([found]), per_query=[found]), "4.3.0", "17")

    monkeypatch.setattr("slackwater.bench.harness.run_in_subprocess", fake)
    result = run_bench(plan_of(parsed(), "spark-fair", "spark-tuned", "klink"), Listener())
    tuned = next(run for run in result.runs if run.policy == "spark-tuned")
    assert tuned.chosen == "spark-staggered-1x"  # the other was not steady
    assert [(claim.claim, claim.measured, claim.holds) for claim in result.claims] == [
        ("klink: mean slowdown, times that of spark-tuned, the best other", 0.5, True),
        ("klink: p99 slowdown, times that of spark-tuned, the best other", 0.5, True),
        ("windows with a wrong result", 0, True),
    ]
    assert (result.phases, result.payload, result.rate) == ("spread", "mixed", 2400)
    assert msgspec.json.decode(msgspec.json.encode(result), type=BenchResult) == result
    assert mix_claims([]) == []
