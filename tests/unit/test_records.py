"""Records: bounded, numbered, for readers that come when they like; and what an engine puts into them."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.core.engine import Engine, EngineSettings
from slackwater.core.model import Stage, Window
from slackwater.core.records import Log, Records
from slackwater.policies.round_robin import RoundRobin
from slackwater.testing import ScriptedDriver, SimulatedQuery, run


@settings(deadline=None)
@given(st.integers(1, 20), st.lists(st.one_of(st.none(), st.integers()), max_size=200))
def test_a_reader_misses_the_oldest_at_most_and_sees_nothing_twice(most, steps):
    """None is a look of the reader, a number an entry that is added."""
    log: Log[int] = Log(most)
    seen_to, seen, added = 0, [], []
    for step in [*steps, None]:
        if step is not None:
            log.add(step)
            added.append(step)
            continue
        missed = max(0, len(added) - seen_to - most)
        fresh = log.since(seen_to)
        assert fresh == added[seen_to + missed :]
        assert len(fresh) <= most
        seen += fresh
        seen_to = log.added
    assert log.added == len(added)


def test_one_thread_adds_while_others_read():
    log: Log[int] = Log(100)
    done = threading.Event()
    troubles: list[str] = []

    def read() -> None:
        number = 0
        while not done.is_set():
            to = log.added
            fresh = log.since(number)
            if fresh != sorted(set(fresh)) or len(fresh) > 101:
                troubles.append(str(fresh))
            number = to

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for number in range(20_000):
        log.add(number)
    done.set()
    for reader in readers:
        reader.join(60)
    assert troubles == []
    assert log.added == 20_000
    assert log.since(0) == list(range(19_900, 20_000))


def test_all_records_of_an_engine_are_bounded():
    records = Records()
    for number in range(10_000):
        records.ran.add(number)  # type: ignore[arg-type]
        records.left.add(number)  # type: ignore[arg-type]
        records.ended.add(number)  # type: ignore[arg-type]
        records.memory_rules(float(number), rules=number % 2 == 0)
    assert (len(records.ran.since(0)), len(records.left.since(0)), len(records.ended.since(0))) == (4000, 4000, 500)
    assert len(records.ruled) == 200


def test_spans_in_which_memory_ruled_have_a_beginning_and_an_end():
    records = Records()
    for at, rules in enumerate([False, True, True, False, False, True]):
        records.memory_rules(float(at), rules=rules)
    assert [(span.began_wall_ts, span.ended_wall_ts) for span in records.ruled] == [(1.0, 3.0), (5.0, None)]


def test_every_batch_and_every_window_is_recorded_with_why_it_ran():
    engine = Engine(RoundRobin(), RoundRobin(), EngineSettings(lanes=2))
    queries = [SimulatedQuery(name, windows=(Window(10, 10),), delay_s=1.0) for name in ("a", "b", "gone")]
    queries[2] = SimulatedQuery("gone", fails_at_s=30.0)
    driver = ScriptedDriver(queries)
    trace = run(engine, driver, 60)
    ran, left = engine.records.ran.since(0), engine.records.left.since(0)
    for name in ("a", "b"):
        told = [batch for key, batch in trace.batches if key == name]
        of = [entry for entry in ran if entry.key == name]
        assert [entry.batch_id for entry in of] == [batch.batch_id for batch in told][: len(of)]
        assert len(told) - len(of) <= 1, "the last one may not be told yet"
        assert {entry.stage for entry in of} == {Stage.DATA, Stage.SWEEP}
        assert {entry.lane for entry in of} <= {0, 1}
        assert all(entry.reason and entry.ended_wall_ts >= entry.began_wall_ts for entry in of)
        emitted = {emission.window_end_event_ts: emission.latency_s for emission in trace.emissions_of(name)}
        for window in [window for window in left if window.key == name]:
            if window.window_end_event_ts in emitted:
                assert window.latency_s == pytest.approx(emitted[window.window_end_event_ts], abs=1e-6)
        assert {window.window_end_event_ts for window in left if window.key == name} & set(emitted)
    (ended,) = engine.records.ended.since(0)
    assert (ended.key, ended.name, ended.query_id) == ("gone", "gone", "gone")
