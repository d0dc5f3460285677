"""Kills and power cuts at every step of every operation: nothing is lost, nothing counts twice."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.late_faults import Faults
from tests.unit.late_model import (
    Action,
    Batch,
    Compact,
    Emit,
    Model,
    PurgeBefore,
    PurgeOne,
    Spark,
    after,
    chance_of,
    check,
    opened,
    stopped,
    table,
)

if TYPE_CHECKING:
    from slackwater.late.store import WindowStore

STORY: list[Action] = [
    Batch({0: [1, 2], 10: [3]}),
    Batch({0: [4], 10: [5, 6], 20: [7]}, parts=(3, 2)),
    Emit(0, "sweep-0"),
    Compact(0),
    Batch({0: [8], 20: [9, 10]}),
    Compact(0),
    Emit(0, "late-0"),
    Compact(10),
    PurgeOne(0),
    Batch({0: [11, 12], 20: [13]}, parts=(2, 1)),
    Compact(20),
    Emit(20, "sweep-20"),
    PurgeBefore(20),
    Batch({10: [14], 20: [15]}),
    PurgeOne(20),
]

MODES = {"kill": (None, None), "power cut": (True, None), "no rename": (None, False)}


@pytest.mark.parametrize("mode", MODES)
def test_stopped_at_any_step_and_repeated_every_operation_ends_in_the_same_state(tmp_path, mode):
    power, rename = MODES[mode]
    origin, model, spark, points = tmp_path / "origin", Model(), Spark(), 0
    opened(origin, -1, rename=rename).close()
    for action in STORY:
        crashed, at = True, 0
        while crashed:
            root, again, faults = tmp_path / "copy", Spark(spark.committed), Faults(at)
            shutil.copytree(origin, root)
            crashed = stopped(root, again, partial(run, action, again), faults, power=power, rename=rename)
            repeat(root, action, model, again, spark.committed, power=power, rename=rename)
            shutil.rmtree(root)
            at += 1
        points += at - 1
        assert not stopped(origin, spark, partial(run, action, spark), Faults(), rename=rename)
        action.model(model)
    assert points > 100


def run(action: Action, spark: Spark, store: WindowStore) -> None:
    action.run(store, spark)


def repeat(root: Path, action: Action, model: Model, spark: Spark, committed: int, **how: Any) -> None:
    """After a crash: one state or the other, whole; after doing it again: the other, and nothing left over."""
    done, rename = after(model, action), how["rename"]
    with opened(root, spark.committed, rename=rename) as store:
        if spark.committed > committed:
            check(store, done)
        else:
            check(store, model, done)
    if spark.committed == committed:
        spark.attempt = 1
        assert not stopped(root, spark, partial(run, action, spark), Faults(), **how)
    with opened(root, spark.committed, rename=rename) as store:
        check(store, done)
        assert not list((root / "tmp").iterdir())
        assert {f"data/{path.name}" for path in (root / "data").iterdir()} == store._held.index.files.keys()
        assert not list(store._held.index.garbage(spark.committed, store.is_purged))


@pytest.mark.parametrize("power", [None, True])
def test_a_store_whose_creation_is_stopped_is_created_by_the_next_start(tmp_path, power):
    crashed, at = True, 0
    while crashed:
        root, spark, faults = tmp_path / str(at), Spark(), Faults(at)
        crashed = stopped(root, spark, lambda store: None, faults, power=power)
        with opened(root, -1) as store:
            STORY[0].run(store, spark)
            check(store, after(Model(), STORY[0]))
        at += 1
    assert at > 10


WINDOW = st.sampled_from([0, 10, 20, 30])
ACTIONS = st.one_of(
    st.builds(
        Batch,
        st.dictionaries(WINDOW, st.lists(st.integers(0, 999), max_size=4), max_size=3),
        st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple),
    ),
    st.builds(Compact, WINDOW),
    st.builds(PurgeOne, WINDOW),
    st.builds(PurgeBefore, st.sampled_from([10, 20])),
    st.builds(Emit, WINDOW, st.sampled_from(["a", "b", "c"])),
)
STOPS = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["kill", "cut", "chance"])), max_size=3)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(ACTIONS, STOPS), max_size=8), st.integers(0, 9))
def test_any_story_with_any_crashes_repeated_ones_too_shows_what_the_model_shows(story, seed):
    chance = chance_of(seed)
    with TemporaryDirectory() as folder:
        root, model, spark = Path(folder) / "store", Model(), Spark()
        for action, stops in story:
            batch = isinstance(action, Batch)
            before, spark.attempt = spark.committed, 0
            for at, how in stops:
                power = {"kill": None, "cut": True, "chance": chance}[how]
                if batch and spark.committed > before:
                    break
                if not stopped(root, spark, partial(run, action, spark), Faults(at), power=power):
                    break
                spark.attempt += 1
                with opened(root, spark.committed) as store:
                    committed = batch and spark.committed > before
                    check(store, *((after(model, action),) if committed else (model, after(model, action))))
            else:
                if not batch or spark.committed == before:
                    stopped(root, spark, partial(run, action, spark), Faults())
            action.model(model)
            with opened(root, spark.committed) as store:
                check(store, model)


def test_what_an_attempt_left_stays_deleted_when_the_repeated_batch_has_no_rows_and_the_power_is_cut(tmp_path):
    def first(store: WindowStore) -> None:
        store.begin(0)
        store.write(0, {0: table(1)})
        store.dead(0, {5: table(2)})

    def second(store: WindowStore) -> None:
        store.begin(0)
        store.write(0, {})
        store.commit(0)

    stopped(tmp_path, Spark(), first, Faults(), power=True)
    stopped(tmp_path, Spark(), second, Faults(), power=True)
    with opened(tmp_path, 0) as store:
        check(store, Model())
