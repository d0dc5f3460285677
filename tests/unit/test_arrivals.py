"""Rows are handed over by seed, and the oracle knows from the producer's log when each was there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.bench.producer import TopicFeed, delays_of
from slackwater.errors import ConfigurationError
from slackwater.workloads.arrivals import (
    Began,
    Handed,
    Handovers,
    Late,
    Schedule,
    first_handed_ms,
    read_handovers,
)

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

CREATED_MS = 1_700_000_000_123


def every(numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    return numbers >= 0


def schedule(network: str = "uniform", late: Late | None = None, rate: int = 50, seed: int = 7) -> Schedule:
    return Schedule(rate, seed, CREATED_MS, delays_of(network, 0.5), late or Late())  # type: ignore[arg-type]


@pytest.mark.parametrize("network", ["none", "uniform", "zipf"])
def test_delays_lie_between_none_and_the_longest(network: str):
    seconds = [schedule(network).second(index) for index in range(5)]
    waits = np.concatenate([second.send_ms - second.event_ms for second in seconds])
    assert waits.min() >= 0
    assert waits.max() <= 500
    assert (waits.max() == 0) == (network == "none")


def test_a_seed_gives_the_same_rows_again_and_another_one_others():
    again, other = schedule().second(3), schedule(seed=8).second(3)
    assert np.array_equal(schedule().second(3).send_ms, again.send_ms)
    assert not np.array_equal(again.send_ms, other.send_ms)
    assert np.array_equal(again.event_ms, other.event_ms)


def test_a_share_of_rows_is_late_on_top():
    rows = schedule("none", Late(share=0.2, longest_s=30.0), rate=5000).second(0)
    late = rows.send_ms > rows.event_ms
    assert 0.15 < late.mean() < 0.25
    assert (rows.send_ms - rows.event_ms).max() <= 30_000


@given(st.integers(1, 60), st.lists(st.integers(1, 1500), min_size=1, max_size=20), st.booleans())
def test_a_feed_gives_each_row_once_and_never_before_its_time(rate: int, steps_ms: list[int], late: bool):
    plan = schedule(late=Late(0.3, 2.0) if late else None, rate=rate)
    feed = TopicFeed(plan, lambda numbers, event_ms: [b"%d" % number for number in numbers])
    now_ms = CREATED_MS
    given: list[int] = []
    for step_ms in steps_ms:
        now_ms += step_ms
        feed.prepare_ahead(now_ms)
        rows = feed.due(now_ms)
        assert all(int(body) == number for number, body in rows)
        given += [number for number, _ in rows]
    seconds = [plan.second(index) for index in range((now_ms - CREATED_MS) // 1000 + 1)]
    sent = np.concatenate([second.send_ms for second in seconds])
    numbers = np.concatenate([second.numbers for second in seconds])
    assert sorted(given) == sorted(numbers[sent <= now_ms].tolist())


@given(st.integers(0, 3000), st.sampled_from(["none", "uniform", "zipf"]), st.integers(1, 40))
def test_the_first_row_past_a_deadline_is_the_one_that_was_there_first(after_ms: int, network: str, rate: int):
    plan = schedule(network, rate=rate)
    deadline_ms = CREATED_MS + after_ms
    ticks = np.arange(CREATED_MS, CREATED_MS + 10_000, 25)
    handovers = Handovers(CREATED_MS, ticks, ticks + 7)
    rows = [plan.second(index) for index in range(8)]
    sent = np.concatenate([second.send_ms[second.event_ms >= deadline_ms] for second in rows])
    expected = ticks[np.searchsorted(ticks, sent.min())] + 7
    assert first_handed_ms(deadline_ms, plan, handovers, every) == expected


def test_the_log_of_one_topic_is_read_out_of_those_of_all(tmp_path: Path):
    lines = [Began("a", 5), Handed("a", 10, 12), Began("b", 7), Handed("b", 11, 15), Handed("a", 35, 40)]
    log = tmp_path / "log"
    log.write_bytes(b"\n".join(msgspec.json.encode(line) for line in lines))
    found = read_handovers(log, "a")
    assert (found.creation_ms, found.to_ms.tolist(), found.at_ms.tolist()) == (5, [10, 35], [12, 40])
    assert found.late_ms.tolist() == [7, 30]
    assert found.available_ms(11) == 40
    with pytest.raises(ConfigurationError, match="says nothing of the topic 'c'"):
        read_handovers(log, "c")


def test_wrong_shares_and_laws_are_told():
    with pytest.raises(ConfigurationError, match="between 0 and 1"):
        Late(share=2.0)
    with pytest.raises(ConfigurationError, match="none, uniform, zipf"):
        delays_of("pareto", 1.0)  # type: ignore[arg-type]
