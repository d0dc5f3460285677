"""Answers are compared row by row, and whatever differs is found; every workload keeps its promises."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slackwater.errors import ConfigurationError
from slackwater.verify.commands import lines, write
from slackwater.verify.compare import compare, places
from slackwater.verify.doomed import Doomed
from slackwater.verify.feed import Feed
from slackwater.verify.model import Differences, Outcome, Settings, Trial, Verdict
from slackwater.workloads.finite import Stage, check_stages, window_starts_ms
from slackwater.workloads.finite_registry import FINITE, finite_workload

VALUES = st.one_of(
    st.integers(-5, 5),
    st.none(),
    st.text("ab", max_size=2),
    st.floats(allow_nan=True, width=32),
    st.booleans(),
    st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-9, max_value=9),
    st.lists(st.integers(0, 2), max_size=2),
    st.dictionaries(st.sampled_from("xy"), st.integers(0, 2), max_size=2),
)
ROWS = st.lists(st.tuples(VALUES, VALUES, VALUES), max_size=12)
SOME = st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=12)


# ---- comparing ---------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(ROWS, st.randoms())
def test_an_answer_equals_itself_in_any_order(rows, order):
    shuffled = list(rows)
    order.shuffle(shuffled)
    found = compare(rows, shuffled)
    assert found.equal
    assert (found.expected_rows, found.found_rows) == (len(rows), len(rows))


@settings(deadline=None)
@given(SOME, st.data())
def test_a_row_that_is_missing_is_found(rows, data):
    place = data.draw(st.integers(0, len(rows) - 1))
    found = compare(rows, rows[:place] + rows[place + 1 :], data.draw(st.sampled_from([(), (0,)])))
    assert (len(found.missing), len(found.surplus), len(found.different)) == (1, 0, 0)


@settings(deadline=None)
@given(SOME, st.data())
def test_a_row_that_came_twice_is_found(rows, data):
    found = compare(rows, [*rows, data.draw(st.sampled_from(rows))], data.draw(st.sampled_from([(), (0,)])))
    assert (len(found.missing), len(found.surplus), len(found.different)) == (0, 1, 0)


@settings(deadline=None)
@given(SOME, VALUES, st.data())
def test_a_row_with_another_value_is_found(rows, other, data):
    place = data.draw(st.integers(0, len(rows) - 1))
    first, second, third = rows[place]
    assume(not compare([(third,)], [(other,)]).equal)
    changed = [*rows[:place], (first, second, other), *rows[place + 1 :]]
    found = compare(rows, changed)
    assert (len(found.missing), len(found.surplus)) == (1, 1)
    with_key = compare(rows, changed, (0, 1))
    assert (len(with_key.missing), len(with_key.surplus), len(with_key.different)) == (0, 0, 1)


@settings(deadline=None)
@given(ROWS, ROWS)
def test_what_is_told_turns_one_answer_into_the_other(expected, found):
    told = compare(expected, found)
    assert len(expected) - len(told.missing) + len(told.surplus) == len(found)
    back = compare(found, expected)
    assert (len(back.missing), len(back.surplus)) == (len(told.surplus), len(told.missing))


@settings(deadline=None)
@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=8), st.randoms())
def test_sums_in_another_order_are_equal_and_others_are_not(numbers, order):
    shuffled = list(numbers)
    order.shuffle(shuffled)
    total = sum(numbers)
    assert compare([("k", total)], [("k", sum(shuffled))]).equal
    assert not compare([("k", total)], [("k", total * (1 + 1e-6))]).equal


def test_every_close_number_is_matched_once():
    assert compare([(1.0,), (1.0,)], [(1.0 + 1e-12,), (1.0 - 1e-12,)]).equal
    found = compare([(1.0,), (1.0,)], [(1.0 + 1e-12,), (2.0,)])
    assert found.missing == ((1.0,),)
    assert found.surplus == ((2.0,),)


def test_numbers_of_different_types_are_equal_when_their_values_are():
    assert compare([(1, Decimal("2.50"), None)], [(1.0, Decimal("2.5"), None)]).equal


def test_a_key_that_is_no_column_is_refused():
    assert places(("b",), ("a", "b")) == [1]
    with pytest.raises(ConfigurationError, match="'c' is no column of the answer, which has a, b"):
        places(("c",), ("a", "b"))


# ---- telling -----------------------------------------------------------------------------------------------------


def outcome(**differences):
    found = Differences(20, 20, **differences)
    return Outcome(Trial("klink", restarts=True), {"sums": found}, 3.2, {"sums": 5}, 7, restarted_after=2)


def test_the_first_ten_rows_of_each_kind_are_told_with_their_counts():
    rows = tuple((number, "k") for number in range(12))
    text = "\n".join(lines(outcome(missing=rows, surplus=rows[:1], different=((rows[0], rows[1]),))))
    assert "klink" in text
    assert "DIFFERS" in text
    assert "restarted after 2 batches" in text
    assert "missing: 12" in text
    assert "(9, k)" in text
    assert "(10, k)" not in text
    assert "and 2 more" in text
    assert "expected (0, k), found (1, k)" in text


def test_equal_answers_take_one_line():
    (line,) = lines(outcome())
    assert "equal" in line
    assert "20 rows" in line


def test_a_trial_that_failed_is_not_equal_and_says_why():
    failed = Outcome(Trial(None), error="query q failed: deliberate")
    assert not failed.equal
    assert "deliberate" in "\n".join(lines(failed))


def test_the_file_has_a_claim_for_every_run(tmp_path):
    bad = outcome(missing=((1, "k"),))
    failed = Outcome(Trial("klink"), error="deliberate")
    verdict = Verdict("toy", 3, {"events": 9}, (outcome(), bad, failed))
    assert not verdict.equal
    write([verdict], tmp_path / "verify.json")
    told = json.loads((tmp_path / "verify.json").read_text())
    assert [claim["holds"] for claim in told["claims"]] == [True, False, False]
    assert [claim["measured"] for claim in told["claims"]] == [0, 1, "deliberate"]
    assert told["rows"][1]["first_missing"] == ["(1, k)"]
    assert told["rows"][2]["error"] == "deliberate"
    assert told["seed"] == 3


# ---- feeding -----------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 20), st.integers(1, 6))
def test_files_hold_all_rows_in_order_and_the_closing_ones_last(tmp_path_factory, rows, files):
    folder = tmp_path_factory.mktemp("feed")
    given_rows = {"a": [{"n": number} for number in range(rows)], "b": []}
    feed = Feed(folder / "feed", given_rows, {"a": [{"n": -1}], "b": [{"n": -2}]}, files)
    feed.arrive(1)
    assert len(list(feed.inbox("a").iterdir())) == 1
    feed.arrive()
    found = sorted(feed.inbox("a").iterdir(), key=lambda file: file.stat().st_mtime)
    assert len(found) == files + 1
    assert [json.loads(line)["n"] for file in found for line in file.read_text().splitlines()] == [*range(rows), -1]
    assert found[-1].read_text() == '{"n": -1}\n'
    times = [file.stat().st_mtime for file in found]
    assert [after - before for before, after in pairwise(times)] == [1.0] * files
    assert [file.read_text() for file in sorted(feed.inbox("b").iterdir())][-1] == '{"n": -2}\n'


def test_one_file_has_no_middle():
    with pytest.raises(ConfigurationError, match="2 or more"):
        Settings(files=1)


class Patient:
    name = "patient"
    enforces = True
    period_s = 3.0

    def decide(self, snapshot):
        return [snapshot]


def test_a_doomed_policy_is_its_policy_until_it_is_told_to_die():
    policy: Any = Doomed(Patient())
    assert (policy.name, policy.enforces, policy.period_s) == ("patient", True, 3.0)
    assert not hasattr(policy, "needs")
    assert policy.decide("snapshot") == ["snapshot"]
    assert not policy.await_death(0)
    policy.die()
    with pytest.raises(SystemExit):
        policy.decide("snapshot")
    assert policy.await_death(0)


# ---- workloads ---------------------------------------------------------------------------------------------------


def columns(ddl):
    return [column.split()[0] for column in ddl.split(", ")]


# Their stages have no windows.
WAIT_FOR_NOTHING = {"riot-etl", "riot-stats", "voip", "syn", "syn-blocking"}


@pytest.mark.parametrize("name", FINITE)
def test_a_workload_gives_the_same_rows_for_the_same_seed_and_answers_for_every_output(name):
    workload = finite_workload(name)
    check_stages(workload)
    rows = workload.generate(7, 800)
    assert rows == workload.generate(7, 800)
    assert rows != workload.generate(8, 800)
    closing = workload.closing(rows)
    assert set(rows) == set(closing) == set(workload.tables)
    for table, ddl in workload.tables.items():
        assert {tuple(row) for row in (*rows[table], *closing[table])} == {tuple(columns(ddl))}
        assert bool(closing[table]) is (name not in WAIT_FOR_NOTHING)
    answers = workload.expected(rows)
    assert set(answers) == set(workload.outputs)
    assert sum(map(len, answers.values())) > 20
    # What is asked for is plain JSON.
    assert json.loads(json.dumps(rows)) == rows


@pytest.mark.parametrize("name", FINITE)
def test_at_the_usual_size_no_answer_is_empty(name):
    workload = finite_workload(name)
    assert [key for key, answer in workload.expected(workload.generate(1, 5000)).items() if not answer] == []


def test_an_unknown_workload_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigurationError, match="Did you mean 'nexmark'"):
        finite_workload("nextmark")


@settings(deadline=None)
@given(st.integers(-(10**6), 10**6), st.integers(1, 50), st.integers(1, 50), st.integers(0, 100))
def test_a_time_is_in_exactly_the_windows_that_hold_it(event_ms, length_ms, slide_ms, phase_ms):
    found = window_starts_ms(event_ms, length_ms, slide_ms, phase_ms)
    near = range(event_ms - length_ms - slide_ms, event_ms + slide_ms)
    assert sorted(found) == [
        start for start in near if (start - phase_ms) % slide_ms == 0 and start <= event_ms < start + length_ms
    ]


class Chained:
    name = "chained"
    tables = {"events": "n BIGINT"}  # noqa: RUF012
    outputs = ("last",)

    def __init__(self, *stages):
        self.stages = stages


def nothing(frames):
    return frames


def test_stages_read_what_is_there_before_them():
    first = Stage("first", ("events",), nothing, "n BIGINT")
    last = Stage("last", ("first", "events"), nothing, "n BIGINT")
    check: Any = check_stages
    check(Chained(first, last))
    with pytest.raises(ConfigurationError, match="reads first, which is neither an input nor an earlier stage"):
        check(Chained(last, first))
    with pytest.raises(ConfigurationError, match="two tables or stages named 'last'"):
        check(Chained(first, last, last))
    with pytest.raises(ConfigurationError, match="names last as output"):
        check(Chained(first))
