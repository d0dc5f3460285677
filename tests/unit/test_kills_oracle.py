"""The oracle of killed queries: the feed is as asked for, and each kind of damage is found."""

from __future__ import annotations

import pytest

from slackwater.bench.kills_oracle import NO_WINDOW, DeadLetter, Event, Oracle, Row, Timing, Written, make_feed

TIMING = Timing()
FEED = make_feed(1, 30, 100, TIMING)


def letters(oracle: Oracle) -> list[DeadLetter]:
    """As a store has them that does everything right."""
    return [
        DeadLetter(batch, start, key, 1, event.id)
        for (batch, start, key), events in oracle.groups.items()
        for event in events
        if start == NO_WINDOW or start + TIMING.size + TIMING.lateness <= oracle.watermarks[batch]
    ]


def test_the_feed_has_rows_on_time_late_too_late_and_without_a_time():
    assert make_feed(1, 30, 100, TIMING) == FEED != make_feed(2, 30, 100, TIMING)
    oracle = Oracle(TIMING, FEED)
    dead = letters(oracle)
    assert {letter.window == NO_WINDOW for letter in dead} == {True, False}
    first = {start: batch for batch, start, _ in sorted(oracle.groups, reverse=True)}
    late_alone = [start for start, batch in first.items() if 0 < start + TIMING.size <= oracle.watermarks[batch]]
    assert late_alone
    assert len(dead) < 0.2 * sum(map(len, FEED))


def test_what_is_right_is_no_problem_and_a_row_more_or_less_is():
    oracle = Oracle(TIMING, FEED)
    dead = oracle.dead(letters(oracle))
    right = list(oracle.expected(dead))
    oracle.latest(right, dead)
    assert oracle.problems == []
    oracle.latest([*right[1:], Row(0, "a", 1, 1, 1, 1)], dead)
    assert [problem.text.split(":")[0] for problem in oracle.problems] == ["not expected", "missing"]


def test_dead_letters_must_be_late_enough_and_there_once():
    oracle = Oracle(TIMING, FEED)
    right = letters(oracle)
    event = next(event for event in FEED[0] if event.ts is not None)
    early = DeadLetter(0, TIMING.starts(event.ts or 0)[0], event.k, 1, event.id)
    oracle.dead([*right[1:], right[-1], early])
    assert {problem.category for problem in oracle.problems} == {"rows", "dead"}


@pytest.mark.parametrize(
    ("written", "right"),
    [
        ([(0, 1, "on_time", "x"), (0, 3, "late", "y"), (0, 3, "late", "y"), (0, 4, "final", "z")], True),
        ([(0, 1, "late", "x"), (0, 2, "final", "y"), (0, 3, "final", "y")], True),
        ([(0, 1, "on_time", "x"), (0, 1, "on_time", "y")], False),
        ([(0, 2, "on_time", "x")], False),
        ([(0, 1, "final", "x"), (0, 2, "late", "y")], False),
        ([(0, 2, "late", "x"), (0, 1, "late", "y")], False),
    ],
)
def test_revisions_have_one_content_and_kinds_an_order(written, right):
    oracle = Oracle(TIMING, [[Event(1, 0, "a", 1)]])
    oracle.revisions([Written(*one) for one in written])
    assert (oracle.problems == []) == right
