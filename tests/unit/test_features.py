"""Types of features, and that computing only what can have changed gives what computing everything gives."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.core.engine import Engine
from slackwater.core.model import QueryView, Snapshot, Stage, Window
from slackwater.errors import ConfigurationError
from slackwater.metrics.catalogue import CATALOGUE, OFFERED
from slackwater.metrics.features import MEASURED, STATIC, TICKING, Dependency, Feature, Primitive, derived
from slackwater.metrics.graph import Metric, MetricProvider, PathMetric
from slackwater.policies.round_robin import RoundRobin
from slackwater.testing import ScriptedDriver, SimulatedQuery, run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

START_WALL_TS = 1000.0
UPSTREAM = Feature(depends_on=frozenset({Dependency.UPSTREAM}))
DOWNSTREAM = Feature(depends_on=frozenset({Dependency.DOWNSTREAM}))
BOTH = Feature(depends_on=frozenset({Dependency.UPSTREAM, Dependency.DOWNSTREAM}))

# Beside what Spark's driver offers: primitives that change when peers run, and metrics that look the other way.
PRIMITIVES = OFFERED | {
    "fed": Primitive(lambda query, _: query.freeable_bytes, UPSTREAM),
    "drained": Primitive(lambda query, _: query.swm_sigma_s, DOWNSTREAM),
    "passed": Primitive(lambda query, _: query.freeable_bytes + query.swm_sigma_s, BOTH),
}
METRICS = (
    *CATALOGUE,
    PathMetric(
        "rows-before",
        "",
        ("rows-per-s", "fed"),
        lambda i, columns, writers, own: columns[0][i] + columns[1][i] + 0.1 * sum(own[w] for w in writers[i]),
        Dependency.UPSTREAM,
    ),
    Metric("shut", "", ("rows-before", "drained", "path-rate"), lambda columns: columns[0] - columns[1] * columns[2]),
    Metric("class-cost", "", ("priority-class",), lambda columns: 1 + columns[0]),
    Metric("nothing", "", (), lambda columns: 7.0),  # type: ignore[arg-type,return-value]
)
NAMES = (*PRIMITIVES, *(metric.name for metric in METRICS))


def _provider() -> MetricProvider:
    return MetricProvider(METRICS, PRIMITIVES, driver="test")


@dataclass
class _Query:
    came_wall_ts: float
    offsets_wall_ts: float
    batches: int = 0
    readers: list[str] = field(default_factory=list)
    measured: dict[str, float] = field(default_factory=dict)


class World:
    """Queries that come, go, run and are chained anew. What only a run changes, only a run changes here."""

    def __init__(self) -> None:
        self.wall_ts = START_WALL_TS
        self.queries: dict[str, _Query] = {}

    def come(self, key: str) -> None:
        self.queries.setdefault(key, _Query(self.wall_ts, self.wall_ts))

    def go(self, key: str) -> None:
        self.queries.pop(key, None)

    def chain(self, key: str, reader: str) -> None:
        if key in self.queries:
            readers = self.queries[key].readers
            if reader in readers:
                readers.remove(reader)
            else:
                readers.append(reader)

    def run(self, key: str, selectivity: float = 0.5, row_cost_s: float = 1e-4, rows_per_s: float = 10.0) -> None:
        if key in self.queries:
            query = self.queries[key]
            query.batches += 1
            query.offsets_wall_ts = self.wall_ts
            query.measured = {
                "selectivity": selectivity,
                "row_cost_s": row_cost_s,
                "rows_per_s": rows_per_s,
                "batch_cost_s": 0.1 + selectivity,
                "sweep_cost_s": 0.2 * selectivity,
                "state_bytes": int(1e6 * row_cost_s),
            }

    def snapshot(self) -> Snapshot:
        self.wall_ts += 1.0
        return Snapshot(self.wall_ts, tuple(self._view(key) for key in sorted(self.queries)), 1, 1, 1)

    def _view(self, key: str) -> QueryView:
        query = self.queries[key]
        writers = {k: [w for w, other in self.queries.items() if k in other.readers] for k in self.queries}
        readers = {k: [r for r in other.readers if r in self.queries] for k, other in self.queries.items()}
        blank: dict[str, Any] = {"selectivity": 1.0, "row_cost_s": 0.0, "rows_per_s": 0.0, "batch_cost_s": 0.5}
        blank |= {"sweep_cost_s": 0.0, "state_bytes": 0}
        measured = blank | query.measured
        return QueryView(
            key=key,
            name=key,
            stage=Stage.WAITING,
            eligible=True,
            waiting_since_wall_ts=self.wall_ts,
            last_turn_wall_ts=self.wall_ts,
            window_end_event_ts=None,
            swm_wall_ts=self.wall_ts,
            swm_sigma_s=self._runs(key, readers),
            swm_sure_wall_ts=self.wall_ts,
            backlog_rows=measured["rows_per_s"] * (self.wall_ts - query.offsets_wall_ts),
            offsets_wall_ts=query.offsets_wall_ts,
            batches=query.batches,
            freeable_bytes=self._runs(key, writers),
            downstream=tuple(query.readers),
            priority_class=ord(key) % 3,
            **measured,
        )

    def _runs(self, key: str, peers: Mapping[str, Sequence[str]]) -> float:
        """All batches of a query and of everybody who can be reached from it."""
        seen, waiting = {key}, [key]
        while waiting:
            fresh = set(peers[waiting.pop()]) - seen
            seen |= fresh
            waiting += fresh
        return float(sum(self.queries[k].batches * (1 + ord(k) % 7) for k in seen))


keys = st.sampled_from("abcdef")
events = st.one_of(
    st.tuples(st.just("come"), keys),
    st.tuples(st.just("come"), keys),
    st.tuples(st.just("go"), keys),
    st.tuples(st.just("chain"), keys, keys),
    st.tuples(
        st.just("run"),
        keys,
        st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0]),
        st.sampled_from([0.0, 1e-5, 3e-3]),
        st.sampled_from([0.0, 7.0, 1e4]),
    ),
)


@settings(deadline=None, max_examples=80)
@given(
    begin=st.sets(keys),
    periods=st.lists(st.tuples(st.lists(events, max_size=4), st.sets(st.sampled_from(NAMES))), min_size=2, max_size=8),
)
def test_what_is_kept_and_renewed_equals_a_computation_from_scratch(begin, periods):
    world, kept = World(), _provider()
    for key in begin:
        world.come(key)
    kept(world.snapshot(), NAMES)
    for happened, left_out in periods:
        for what, *arguments in happened:
            getattr(world, what)(*arguments)
        snapshot, wanted = world.snapshot(), [name for name in NAMES if name not in left_out]
        assert kept(snapshot, wanted) == _provider()(snapshot, wanted)


def test_the_same_holds_for_queries_that_an_engine_schedules():
    """Proves the types: nothing that is typed as renewed by a run alone changes otherwise."""
    kept, compared = MetricProvider(CATALOGUE, OFFERED, "test"), []
    names = [*OFFERED, *(metric.name for metric in CATALOGUE)]

    class Comparing(RoundRobin):
        needs = tuple(names)

    def metrics(snapshot: Snapshot, wanted: Iterable[str]) -> dict[str, list[float]]:
        found = kept(snapshot, wanted)
        compared.append(found == MetricProvider(CATALOGUE, OFFERED, "test")(snapshot, wanted))
        return found

    queries = [
        SimulatedQuery("a", windows=(Window(5, 5),), delay_s=1.0, row_cost_s=1e-4, fails_at_s=35.0),
        SimulatedQuery("b", windows=(Window(10, 2),), delay_s=0.0, step_s=1.0, idle_s=((10.0, 20.0),)),
        SimulatedQuery("c", rows_per_s=3000, max_rows=2000, stateful=False, starts_at_s=7.0),
    ]
    run(Engine(Comparing(), RoundRobin(), metrics=metrics), ScriptedDriver(queries), 60)
    assert len(compared) > 100
    assert all(compared)


def _pipeline() -> World:
    """Four queries in a row, a → b → c → d, and six by themselves; all have run."""
    world = World()
    for key in "abcdefghij":
        world.come(key)
        world.run(key)
    for key, reader in ("ab", "bc", "cd"):
        world.chain(key, reader)
    return world


def _renewed(provider: MetricProvider, snapshot: Snapshot, name: str) -> int:
    before = provider.renewed_cells
    provider(snapshot, [name])
    return provider.renewed_cells - before


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("priority-class", 0),  # static
        ("selectivity", 1),  # independent: b alone
        ("fed", 3),  # b, and downstream of it c and d
        ("drained", 2),  # b, and upstream of it a
        ("passed", 4),  # the pipeline
        ("head-age-s", 10),  # the clock
        ("path-selectivity", 1 + 2),  # b's selectivity, and what a and b bring out
        ("load", 3 + 1),  # b's three inputs, and its load
    ],
)
def test_after_a_run_of_one_query_only_what_it_can_have_changed_is_renewed(name: str, cells: int):
    world, provider = _pipeline(), _provider()
    everything = _renewed(provider, world.snapshot(), name)
    assert everything >= 10
    world.run("b", 0.9, 2e-4, 77.0)
    assert _renewed(provider, world.snapshot(), name) == cells


def test_nothing_is_renewed_where_nothing_ran():
    world, provider = _pipeline(), _provider()
    provider(world.snapshot(), ["path-selectivity", "load", "fed"])
    before = provider.renewed_cells
    provider(world.snapshot(), ["path-selectivity", "load", "fed"])
    assert provider.renewed_cells == before


def test_a_run_that_changed_nothing_goes_no_further():
    world, provider = _pipeline(), _provider()
    provider(world.snapshot(), ["path-selectivity"])
    world.run("d")
    assert _renewed(provider, world.snapshot(), "path-selectivity") == 1  # d's own selectivity, as it was


def test_a_new_reader_renews_what_lies_before_it():
    world, provider = _pipeline(), _provider()
    provider(world.snapshot(), ["path-selectivity"])
    world.chain("b", "j")
    assert _renewed(provider, world.snapshot(), "path-selectivity") == 2


def test_a_metric_that_was_not_wanted_last_time_is_computed_anew():
    world, provider = _pipeline(), _provider()
    provider(world.snapshot(), ["selectivity"])
    world.run("b", 0.9)
    provider(world.snapshot(), ["row-cost-s"])
    assert provider(world.snapshot(), ["selectivity"])["selectivity"][1] == 0.9


def test_another_query_that_took_a_key_is_not_mistaken_for_the_old_one():
    world, provider = _pipeline(), _provider()
    provider(world.snapshot(), ["selectivity"])
    world.go("b")
    world.come("b")
    world.run("b", 0.9)  # one batch, as the old one had
    assert provider(world.snapshot(), ["selectivity"])["selectivity"][1] == 0.9


def test_a_metric_that_fails_leaves_the_last_period_as_it_was():
    world = _pipeline()
    broken: list[bool] = []

    def value(query: QueryView, _: float) -> float:
        if broken:
            raise ZeroDivisionError
        return query.selectivity

    provider = MetricProvider([], {"brittle": Primitive(value, MEASURED), "rows": OFFERED["rows-per-s"]}, "test")
    provider(world.snapshot(), ["rows", "brittle"])
    world.run("b", 0.9, 0.0, 5.0)
    broken.append(True)
    with pytest.raises(ZeroDivisionError):
        provider(world.snapshot(), ["rows", "brittle"])
    broken.clear()
    found = provider(world.snapshot(), ["rows", "brittle"])
    assert (found["rows"][1], found["brittle"][1]) == (5.0, 0.9)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("row-cost-s", "dynamic, independent, execution-intrinsic"),
        ("selectivity", "dynamic, independent, execution-intrinsic"),
        ("head-age-s", "dynamic, dependent on clock"),
        ("priority-class", "static"),
        ("load", "dynamic, independent, execution-intrinsic"),
        ("cost-s", "dynamic, dependent on clock"),
        ("path-selectivity", "dynamic, dependent on downstream"),
        ("path-rate", "dynamic, dependent on clock and downstream"),
        ("rows-before", "dynamic, dependent on upstream"),
        ("class-cost", "static"),
    ],
)
def test_every_metric_has_a_type_and_derived_ones_inherit_it(name: str, words: str):
    assert str(_provider().feature(name)) == words


def test_the_type_of_an_unknown_metric_is_refused_like_the_metric():
    with pytest.raises(ConfigurationError, match="moon-phase"):
        _provider().feature("moon-phase")


@pytest.mark.parametrize(
    "wrong",
    [
        {"static": True, "depends_on": TICKING.depends_on},
        {"static": True, "execution_intrinsic": True},
        {"depends_on": TICKING.depends_on, "execution_intrinsic": True},
    ],
)
def test_types_that_contradict_themselves_are_refused(wrong: dict[str, Any]):
    with pytest.raises(ConfigurationError, match="but was declared"):
        Feature(**wrong)


def test_a_static_part_leaves_a_metric_to_be_renewed_by_runs_alone():
    assert derived([STATIC, MEASURED]) == MEASURED
    assert not derived([MEASURED, replace(MEASURED, execution_intrinsic=False)]).execution_intrinsic
