"""VoipStream's calls and scores, worked out by hand; what streams cut apart; and scores in windows."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter, defaultdict
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.workloads.base import QuerySpec
from slackwater.workloads.finite import check_stages
from slackwater.workloads.voip import Voip, oracle, query
from slackwater.workloads.voip.calls import calls
from slackwater.workloads.voip.windows import VoipWindowsOracle, score, weight


def call(call_id, calling, called, at_s, duration_s=60, *, established=True):
    return {
        "call_id": call_id,
        "calling": calling,
        "called": called,
        "answer_ms": 1000 * at_s,
        "duration_s": duration_s,
        "established": established,
    }


def test_calls_are_fixed_by_the_seed_in_the_order_of_their_answers_and_mostly_established():
    rows = calls(seed=4, size=2000)
    assert rows == calls(seed=4, size=2000)
    assert rows != calls(seed=5, size=2000)
    assert [row["answer_ms"] for row in rows] == sorted(row["answer_ms"] for row in rows)
    assert 0.93 < sum(row["established"] for row in rows) / len(rows) < 0.97
    assert all(row["calling"] != row["called"] for row in rows)


def test_scores_are_those_worked_out_by_hand():
    rows = [
        call(0, "A", "B", 100),
        call(1, "A", "C", 105, established=False),
        call(2, "B", "A", 110, 30),
        call(3, "A", "B", 120),
    ]
    first, second, third = oracle.scores(rows)
    # Nobody called A: FoFiR is 1. B is new: URL is 1. It talks as long as all do: ACD is 1, a tenth of 10.
    assert first == (0, "A", 100_000, 1.0, 1.0, pytest.approx(0.1), pytest.approx(5.3))
    # B was called 10 s before: ECR / RCR = 1 / .9672^10 = 1.39585. The mean duration is 45 s.
    assert second[3:] == pytest.approx((0.139585, 1.0, 30 / 45 / 10, 0.27917 + 3 + 0.2), abs=2e-5)
    # A: ECR = 1 + .9672^20 = 1.51324, RCR = .9672^10 = .71641, ENCR = .51324; durations are 60 s of a mean of 50 s.
    assert third[3:] == pytest.approx((0.211226, 0.339166, 0.12, 1.79995), abs=2e-5)


def test_telemarketers_call_far_more_often_than_they_are_called():
    ratios = defaultdict(list)
    for _, number, _, fofir, *_ in oracle.scores(calls(seed=2, size=3000))[500:]:
        ratios[number].append(fofir)
    means = {number: sum(found) / len(found) for number, found in ratios.items()}
    first = sorted(means, key=means.__getitem__, reverse=True)[:3]
    assert sorted(first) == [f"+49-30-{place:05d}" for place in range(3)]


def test_a_number_called_again_after_64_others_is_new_once_more():
    known = [call(place, "A", f"n{place}", 100) for place in range(64)]
    again = call(99, "A", "n0", 100)
    url = oracle.scores([*known, again])[-1][4]
    assert url == pytest.approx(64 / 65)
    other = call(64, "A", "n64", 100)
    assert oracle.scores([*known, other, again])[-1][4] == 1.0


class End(NamedTuple):
    call_id: int
    number: str
    called: str
    answer_ms: int
    duration_s: int
    mean_duration_s: float
    outgoing: bool


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("ABC"), st.sampled_from("ABC"), st.integers(0, 40), st.integers(1, 900)),
        min_size=1,
        max_size=30,
    ),
    st.lists(st.integers(0, 60), max_size=3),
)
def test_calls_give_the_oracles_scores_wherever_batches_end(made, cuts):
    at_s, rows = 50, []
    for place, (calling, called, later_s, duration_s) in enumerate(made):
        at_s += later_s
        rows.append(call(place, calling, called, at_s, duration_s))
    _, compared = query.follow_mean(None, [Call(**row) for row in rows])
    found = []
    for number in "ABC":
        ends = []
        for call_id, calling, called, answer_ms, duration_s, mean_s in compared:
            talk = (call_id, number, called, answer_ms, duration_s, mean_s)
            ends += [End(*talk, outgoing=False)] * (called == number)
            ends += [End(*talk, outgoing=True)] * (calling == number)
        kept = None
        places = [0, *sorted(cuts), len(ends)]
        for start, end in itertools.pairwise(places):
            if ends[start:end]:
                kept, emitted = query.follow_number(json.loads(json.dumps(kept)), ends[start:end])
                found += emitted
    assert sorted(found) == oracle.scores(rows)


class Call(NamedTuple):
    call_id: int
    calling: str
    called: str
    answer_ms: int
    duration_s: int
    established: bool


def test_the_stages_fit_together_and_nothing_closes_them():
    check_stages(Voip())
    rows = Voip().generate(1, 10)
    assert Voip().closing(rows) == {"calls": ()}
    assert len(Voip().expected(rows)["scores"]) == sum(row["established"] for row in rows["calls"])


def test_a_score_at_the_end_of_a_window_is_the_one_worked_out_by_hand():
    # Two calls to 7, 3 and 1 s before the end, and one to 8 at the end; received one, 2 s before it.
    made = [(7, 10, 3), (7, 20, 1), (8, 30, 0)]
    slow, fast = 0.9917, 0.9672
    ecr = fast**3 + fast + 1
    fofir = ecr / fast**2 / 10
    url = (fast**3 + 1) / ecr
    acd = (10 * slow**3 + 20 * slow + 30) / (slow**3 + slow + 1) / 15 / 10
    assert score(made, weight(fast, 2), 15.0) == pytest.approx(2 * fofir + 3 * url + 3 * acd, rel=1e-6)
    assert score(made, 0, 15.0) == pytest.approx(2 + 3 * url + 3 * acd, rel=1e-6)
    assert weight(fast, 0) == round(1e9 * math.log(1 / fast)) == 33_349_980


def test_telemarketers_score_higher_than_others_in_the_benchmarks_windows():
    rows = VoipWindowsOracle(QuerySpec("q", 2000, 10.0, 1.0, 0, 7), creation_ms=1_000_000).expected(1_010_000)
    assert 18_600 < sum(count for _, count, _ in rows) < 19_400
    assert Counter(number < 20 for number, _, _ in rows) == {True: 20, False: 480}
    selling = [found for number, _, found in rows if number < 20]
    others = [found for number, _, found in rows if number >= 20]
    assert min(selling) > sum(others) / len(others)
