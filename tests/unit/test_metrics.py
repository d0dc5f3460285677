"""The metric graph: what is taken, what is derived, once a period, and how a missing primitive is told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slackwater.core.model import QueryView, Snapshot, Stage
from slackwater.errors import ConfigurationError
from slackwater.metrics.catalogue import CATALOGUE, OFFERED
from slackwater.metrics.features import TICKING, Primitive
from slackwater.metrics.graph import Metric, MetricProvider
from slackwater.policies.assembly import engine_for

NOW = 1000.0


def _view(key, *, selectivity=1.0, row_cost_s=0.0, batch_cost_s=0.0, backlog_rows=1.0, downstream=()):
    return QueryView(
        key=key,
        name=key,
        stage=Stage.WAITING,
        eligible=True,
        waiting_since_wall_ts=NOW,
        last_turn_wall_ts=NOW,
        window_end_event_ts=None,
        swm_wall_ts=NOW,
        swm_sigma_s=0.0,
        swm_sure_wall_ts=NOW,
        batch_cost_s=batch_cost_s,
        row_cost_s=row_cost_s,
        sweep_cost_s=0.0,
        rows_per_s=0.0,
        backlog_rows=backlog_rows,
        selectivity=selectivity,
        downstream=downstream,
    )


def _snapshot(*views):
    return Snapshot(NOW, views, 1, 1, 1)


def _provider():
    return MetricProvider(CATALOGUE, OFFERED, driver="test")


def test_path_metrics_follow_a_pipeline_by_hand():
    """Bronze (s=.5, c=1 ms) feeds silver (s=.2, c=2 ms) feeds gold (s=1, c=4 ms)."""
    snapshot = _snapshot(
        _view("bronze", selectivity=0.5, row_cost_s=0.001, downstream=("silver",)),
        _view("gold", selectivity=1.0, row_cost_s=0.004),
        _view("silver", selectivity=0.2, row_cost_s=0.002, downstream=("gold",)),
    )
    found = _provider()(snapshot, ["path-selectivity", "path-cost-s", "path-rate"])
    assert found["path-selectivity"] == pytest.approx([0.1, 1.0, 0.2])
    assert found["path-cost-s"] == pytest.approx([0.001 + 0.5 * (0.002 + 0.2 * 0.004), 0.004, 0.0028])
    assert found["path-rate"] == pytest.approx([0.1 / 0.0024, 1 / 0.004, 0.2 / 0.0028])


def test_a_fork_adds_up_over_its_readers():
    snapshot = _snapshot(
        _view("a", selectivity=1.0, row_cost_s=0.001, downstream=("b", "c")),
        _view("b", selectivity=0.5, row_cost_s=0.002),
        _view("c", selectivity=0.1, row_cost_s=0.003),
    )
    found = _provider()(snapshot, ["path-selectivity", "path-cost-s"])
    assert found["path-selectivity"][0] == pytest.approx(0.6)
    assert found["path-cost-s"][0] == pytest.approx(0.006)


def test_a_join_counts_for_both_of_its_inputs():
    snapshot = _snapshot(
        _view("j", selectivity=0.25, row_cost_s=0.004),
        _view("l", selectivity=1.0, row_cost_s=0.001, downstream=("j",)),
        _view("r", selectivity=0.5, row_cost_s=0.001, downstream=("j",)),
    )
    assert _provider()(snapshot, ["path-selectivity"])["path-selectivity"] == pytest.approx([0.25, 0.25, 0.125])


def test_chain_takes_the_steepest_prefix_of_a_pipeline():
    """Alone, `a` discards nothing; with its cheap and choosy reader it discards 90 % in 2 ms. `c` lets rows leave."""
    snapshot = _snapshot(
        _view("a", selectivity=1.0, row_cost_s=0.001, downstream=("b",)),
        _view("b", selectivity=0.1, row_cost_s=0.001, downstream=("c",)),
        _view("c", selectivity=1.0, row_cost_s=0.02),
    )
    slopes = _provider()(snapshot, ["chain-slope"])["chain-slope"]
    assert slopes == pytest.approx([0.9 / 0.002, 0.9 / 0.001, 1.0 / 0.02])


def test_pipelines_that_feed_each_other_do_not_hang():
    snapshot = _snapshot(_view("a", downstream=("b",)), _view("b", downstream=("a",)))
    found = _provider()(snapshot, ["path-rate", "chain-slope"])
    assert all(np.isfinite(column).all() for column in found.values())


def test_a_reader_that_feeds_its_writer_counts_as_an_end_wherever_it_stands():
    """`a` and `b` feed each other, and `b` feeds `c` too: each of the two stands alone, the way to `c` counts."""
    snapshot = _snapshot(
        _view("a", selectivity=0.5, downstream=("b",)),
        _view("b", selectivity=0.2, downstream=("a", "c")),
        _view("c", selectivity=0.1),
    )
    turned = replace(snapshot, queries=snapshot.queries[::-1])
    found = _provider()(snapshot, ["path-selectivity"])["path-selectivity"]
    assert found == pytest.approx([0.5, 0.02, 0.1])
    assert found == _provider()(turned, ["path-selectivity"])["path-selectivity"][::-1]


def test_readers_that_are_gone_are_passed_over():
    snapshot = _snapshot(_view("a", selectivity=0.5, downstream=("gone",)))
    assert _provider()(snapshot, ["path-selectivity"])["path-selectivity"] == [0.5]


def test_a_metric_is_computed_once_a_period_however_many_need_it():
    calls = []

    def base(query, wall_ts):
        calls.append(1)
        return 1.0

    twice = Metric("twice", "", ("base",), lambda columns: 2 * columns[0])
    both = Metric("both", "", ("base", "twice"), lambda columns: columns[0] + columns[1])
    provider = MetricProvider([twice, both], {"base": Primitive(base, TICKING)}, driver="test")
    assert provider(_snapshot(_view("a")), ["both", "twice", "base"]) == {"both": [3.0], "twice": [2.0], "base": [1.0]}
    assert calls == [1]


def test_what_a_driver_offers_is_taken_and_not_derived():
    provider = MetricProvider(CATALOGUE, {"path-rate": Primitive(lambda *_: 7.0, TICKING)}, driver="test")
    provider.check(["path-rate"])
    assert provider(_snapshot(_view("a")), ["path-rate"])["path-rate"] == [7.0]


def test_a_missing_primitive_names_the_chain_that_asked_for_it():
    offered = {name: offer for name, offer in OFFERED.items() if name != "selectivity"}
    provider = MetricProvider(CATALOGUE, offered, driver="bare")
    with pytest.raises(ConfigurationError, match=r"path-rate → path-selectivity → selectivity.*'bare'"):
        provider.check(["path-rate"])


def test_metrics_that_need_each_other_are_refused():
    a = Metric("a", "", ("b",), lambda columns: columns[0])
    b = Metric("b", "", ("a",), lambda columns: columns[0])
    with pytest.raises(ConfigurationError, match="a → b → a"):
        MetricProvider([a, b], {}, driver="test").check(["a"])


def test_a_policy_that_needs_an_unknown_metric_is_refused_before_anything_runs():
    class Wishful:
        name = "wishful"
        enforces = True
        needs = ("moon-phase",)

        def decide(self, snapshot):
            return []

    with pytest.raises(ConfigurationError, match="moon-phase"):
        engine_for(Wishful())
