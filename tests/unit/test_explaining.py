"""Explanations: what is said in each case, and that the parts of a latency are all of it."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.control.account import Account, Running, account_of
from slackwater.control.breakdown import breakdown
from slackwater.control.explaining import duration, explain
from slackwater.control.plain import plain
from slackwater.core.history import Entry
from slackwater.core.model import Stage
from slackwater.core.records import Left, Ran
from slackwater.endpoint.overview import QueryOverview
from tests.unit.control_support import Steered

if TYPE_CHECKING:
    from slackwater.core.history import Kind

NOW = 1_200_000.0  # 21:20:00 UTC


def query(**changes: Any) -> QueryOverview:
    given_ = QueryOverview(
        key="q",
        name="clicks",
        stage="waiting",
        reason="waits for a watermark in 3.0 s",
        priority_class=0,
        batches=5,
        slack_s=2.0,
        watermark_lag_s=1.0,
        window_end_ts=NOW + 2,
        swm_wall_ts=NOW + 3,
        swm_low_wall_ts=NOW + 2.5,
        swm_high_wall_ts=NOW + 3.5,
        last_latency_s=None,
        waiting_since_wall_ts=NOW - 4,
        last_turn_wall_ts=NOW - 5,
        backlog_rows=1200.0,
        head_age_s=0.0,
        rows_per_s=100.0,
        row_cost_s=0.0,
        batch_cost_s=0.5,
        sweep_cost_s=0.3,
        selectivity=1.0,
        state_bytes=0,
    )
    return msgspec.structs.replace(given_, **changes)


def account(asked: QueryOverview | None = None, **changes: Any) -> Account:
    known = Account(
        now_wall_ts=NOW,
        query=asked or query(),
        policy="klink",
        enforces=True,
        gates_open=False,
        confidence=0.95,
        lanes=2,
        windowed=True,
    )
    return replace(known, **changes)


def ran(key: str, began_s: float, ended_s: float, stage: Stage = Stage.DATA, **changes: Any) -> Ran:
    batch = Ran(key, f"name of {key}", stage, 0, f"reason of {key}", 1, NOW + began_s, NOW + ended_s, 10, 0.0)
    return replace(batch, **changes)


def said(known: Account) -> str:
    return "\n".join(explain(known, UTC))


def told(kind: Kind, at_s: float, what: str = "a turn: because", key: str = "q") -> Entry:
    return Entry(NOW + at_s, kind, key, what)


def test_a_query_that_waits_for_its_watermark_says_until_when_and_how_sure():
    text = said(account())
    assert "“clicks” waits at its gate since 21:19:56 (4.0 s ago). It waits for the watermark" in text
    assert "The policy “klink” says: waits for a watermark in 3.0 s." in text
    assert "Its next window ends at 21:20:02." in text
    assert "should be there in 3.0 s, at 21:20:03" in text
    assert "with 95 % confidence between 21:20:02.5 and 21:20:03.5" in text
    assert "takes about 0.8 s" in text


def test_who_ran_instead_is_told_with_the_reason_once_a_turn_was_wanted():
    others = (
        ran("a", -8, -6.5, lane=1),  # before it wanted one
        ran("b", -3.0, -1.5),
        ran("b", -1.5, -1.0, Stage.SWEEP, reason="the watermark has passed a window: emit it"),
        ran("c", -1.0, -0.5, lane=None, reason="nobody held it"),
    )
    running = (Running("d", "slow", Stage.DATA, 1, "waited 31 s", NOW - 2.0),)
    text = said(account(wanted_since_wall_ts=NOW - 2.0, ran=others, others=running))
    assert "A turn has been wanted for it since 21:19:58 (2.0 s ago), but all 2 lanes are taken." in text
    assert "Instead of it ran: “slow” (2.0 s, still running: waited 31 s); " in text
    assert "“name of b” (2 batches, 1.0 s: reason of b)." in text
    assert "Beside them ran 1 batch that nobody held." in text
    assert "name of a" not in text


def test_those_that_ran_while_it_wanted_nothing_did_not_take_its_place():
    text = said(account(ran=(ran("b", -3, -1),)))
    assert "It has not wanted a turn yet, so nobody took its place. Meanwhile ran: “name of b”" in text


def test_of_many_others_those_that_took_most_time_are_named():
    others = tuple(ran(f"k{n}", -3 + 0.1 * n, -1) for n in range(8))
    text = said(account(wanted_since_wall_ts=NOW - 4, ran=others))
    assert "“name of k0”" in text
    assert "“name of k7”" not in text
    assert "; and 3 others." in text


def test_a_running_query_says_why_and_how_long_it_had_waited():
    turn = Running("q", "clicks", Stage.SWEEP, 1, "the watermark has passed a window", NOW - 0.2, 3.0)
    text = said(account(query(stage="sweep batch"), turn=turn, ran=(ran("b", -2, -1),)))
    assert "is running: its sweep batch, which emits a window, was granted at 21:19:59 (0.2 s ago) in lane 1" in text
    assert "Before that it had waited 3.0 s at its gate." in text
    assert "While it waited ran: “name of b”" in text


@pytest.mark.parametrize(
    ("changes", "asked", "expected"),
    [
        (
            {"paused_wall_ts": NOW - 95},
            query(stage="paused"),
            "is paused since 21:18:25 (95 s ago) and gets no turn until it is resumed. About 1,200 rows wait for it.",
        ),
        ({}, query(stage="not gated"), "its trigger is of a kind that no gate can hold"),
        ({"enforces": False, "policy": "observe"}, query(), "the policy “observe” only watches"),
        ({"gates_open": True}, query(), "the gates are open"),
        ({}, query(batches=0), "Nothing is known of it yet"),
        ({"pending_end_event_ts": NOW - 1}, query(), "ended at 21:19:59 is ready: one more batch emits it"),
        ({"awaited": True}, query(), "Somebody awaits all its available data"),
        ({"eligible_from_wall_ts": NOW + 1}, query(), "Its last turn found nothing new; it may have the next one at"),
        (
            {"eligible_from_wall_ts": NOW + 5, "min_interval_s": 10.0},
            query(),
            "Its own trigger, every 10 s, allows the next turn at 21:20:05.",
        ),
        ({"windowed": False}, query(window_end_ts=None), "Its rows may wait until 21:20:03."),
        ({"windowed": False}, query(window_end_ts=None, swm_wall_ts=NOW - 1), "It waits for its turn."),
        ({"windowed": False}, query(window_end_ts=None), "It has no windows that wait for a watermark."),
        ({"windowed": False}, query(), "It has no windows itself; the one that its readers wait for ends at"),
        ({}, query(window_end_ts=None, swm_wall_ts=None), "nobody can say when its next window closes"),
        ({}, query(swm_low_wall_ts=None), "how sure that is, is not known yet"),
        ({}, query(swm_wall_ts=NOW - 2), "has been due since 21:19:58"),
        ({}, query(), "No window of it has left since the scheduler knows it."),
        ({"wanted_since_wall_ts": NOW - 1, "lanes": 1}, query(), "but the only lane is taken"),
        ({"wanted_since_wall_ts": NOW - 1}, query(), "Nobody ran in its place."),
        ({"story": (told("ordered", -60, "paused"),)}, query(), "Ordered by hand: 21:19:00 paused."),
        ({"story": (told("trouble", -60, "X: y", ""),)}, query(), "The policy failed, and round-robin decided"),
        ({"story": (told("switched", -60, "from a to b", ""),)}, query(), "The policy was switched: 21:19:00 from a"),
    ],
)
def test_each_case_has_its_words(changes, asked, expected):
    assert expected in said(account(asked, **changes))


def test_what_was_ordered_long_ago_is_not_told():
    assert "Ordered" not in said(account(story=(told("ordered", -3600, "paused"),)))


def test_the_last_windows_latency_is_told_in_its_parts():
    left = (Left("q", "clicks", NOW - 20, NOW - 17.0), Left("q", "clicks", NOW - 10, NOW - 5.0))
    batches = (
        ran("q", -12, -11, Stage.SWEEP),
        ran("q", -7.5, -6.0),
        ran("q", -5.8, -5.0, Stage.SWEEP),
        ran("q", -2.0, -1.0),
    )
    text = said(account(left=left, ran=batches, story=(told("planned", -8.5),)))
    assert "The last window that left ended at 21:19:50 and left at 21:19:55, 5.0 s after its end: " in text
    assert (
        "1.5 s until a turn was wanted for it, 1.0 s waiting for that turn, 1.5 s data batch, "
        "0.2 s between the batches, 0.8 s sweep batch." in text
    )


def test_where_nobody_knows_when_a_turn_was_wanted_both_waits_are_told_as_one():
    left = (Left("q", "clicks", NOW - 10, NOW - 5.0),)
    text = said(account(left=left, ran=(ran("q", -7.5, -5.0),)))
    assert "5.0 s after its end: 2.5 s until its turn, 2.5 s in the batch that emitted it." in text
    assert said(account(left=left)).count("5.0 s after its end.") == 1


times = st.floats(-100, 100, allow_nan=False)


@settings(deadline=None)
@given(
    end=times,
    out=times,
    spans=st.lists(st.tuples(times, times, st.sampled_from([Stage.DATA, Stage.SWEEP, Stage.UNGATED])), max_size=6),
    emitting=st.floats(0, 50),
    wanted=st.lists(times, max_size=4),
)
def test_the_parts_of_a_latency_are_all_of_it_and_none_is_negative(end, out, spans, emitting, wanted):
    left = Left("q", "q", NOW + end, NOW + out)
    batches = [ran("q", min(a, b), max(a, b), stage) for a, b, stage in spans]
    batches.append(ran("q", out - emitting, out, Stage.SWEEP))
    parts = breakdown(left, batches, [NOW + ts for ts in wanted])
    if left.latency_s < 0:
        assert parts is None
        return
    assert parts is not None
    assert parts.total_s == pytest.approx(left.latency_s, abs=1e-6)
    for part in (parts.unwanted_s, parts.turn_s, parts.data_s, parts.between_s, parts.emitting_s):
        assert part is None or part >= 0


maybe = st.none() | st.floats(NOW - 1e5, NOW + 1e5)


@settings(deadline=None)
@given(
    stage=st.sampled_from([str(stage) for stage in Stage]),
    name=st.text(max_size=30),
    reason=st.text(max_size=30),
    ts=st.tuples(maybe, maybe, maybe, maybe, maybe),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
    batches=st.integers(0, 2),
    others=st.lists(st.tuples(st.text(max_size=5), times, times), max_size=5),
)
def test_every_account_can_be_told_without_control_characters(stage, name, reason, ts, flags, batches, others):
    enforces, gates_open, windowed, awaited = flags
    asked = query(
        stage=stage,
        name=name,
        reason=reason,
        batches=batches,
        window_end_ts=ts[0],
        swm_wall_ts=ts[1],
        swm_low_wall_ts=ts[2],
        waiting_since_wall_ts=ts[3],
    )
    known = account(
        asked,
        enforces=enforces,
        gates_open=gates_open,
        windowed=windowed,
        awaited=awaited,
        paused_wall_ts=ts[4],
        ran=tuple(ran(key, min(a, b), max(a, b), name=key) for key, a, b in others),
    )
    paragraphs = explain(known, UTC)
    assert paragraphs
    assert all(text == plain(text) and text for text in paragraphs)


@settings(deadline=None)
@given(st.text())
def test_plain_text_is_printable_and_what_was_plain_stays(text):
    made = plain(text)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]", made)
    if text.isascii() and text.isprintable():
        assert made == text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0 s"),
        (0.042, "42 ms"),
        (0.42, "0.4 s"),
        (9.94, "9.9 s"),
        (12.3, "12 s"),
        (185, "3 min 5 s"),
        (7380, "2 h 3 min"),
    ],
)
def test_durations_are_for_people(seconds, words):
    assert duration(seconds) == words


def test_an_engine_that_ran_for_a_while_explains_every_query():
    steered = Steered("klink", "a", "b", "c", "d", lanes=1)
    steered.run(65)
    overview = steered.overview()
    texts = {}
    for asked in overview.queries:
        state = steered.engine.state(asked.key)
        assert state is not None
        known = account_of(steered.engine, state, asked, steered.now, open_=False)
        texts[asked.name] = said(known)
    assert all("The last window that left ended at" in text for text in texts.values())
    assert all("data batch" in text for text in texts.values())
    assert any("ran: “" in text for text in texts.values())
