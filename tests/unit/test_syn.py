"""SYN's chains: what is drawn, what is kept, who blocks."""

from __future__ import annotations

import math
from hashlib import md5

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.errors import ConfigurationError
from slackwater.workloads import syn_oracle
from slackwater.workloads.finite import check_stages
from slackwater.workloads.syn import PARTS, Operator, Syn, blocking


def rows_of(*ids):
    return [{"id": number, "event_ms": 5} for number in ids]


def test_a_row_is_hashed_as_often_as_the_operators_cost_and_its_digest_leaves():
    # By md5sum.
    once, twice = "72bf1a33e317013586ecf1d4ba8ffe98", "38aea9a42e8dad0166a23091aab0320a"
    assert syn_oracle.survivors(rows_of(7), [Operator("s", 1, PARTS)], 0) == [(7, 5, once, 0)]
    assert syn_oracle.survivors(rows_of(7), [Operator("s", 2, PARTS)], 0) == [(7, 5, twice, 0)]
    below = int(twice[:8], 16)
    assert syn_oracle.survivors(rows_of(7), [Operator("s", 2, below)], 0) == []
    assert syn_oracle.survivors(rows_of(7), [Operator("s", 2, below + 1)], 0) == [(7, 5, twice, 0)]
    assert syn_oracle.survivors(rows_of(7), [Operator("s", 1, PARTS), Operator("t", 1, PARTS)], 0) == [
        (7, 5, md5(f"t:{once}".encode(), usedforsecurity=False).hexdigest(), 0)
    ]


def test_a_blocking_operator_holds_the_rows_that_their_digests_choose():
    found = syn_oracle.survivors(rows_of(*range(400)), [Operator("s", 1, PARTS, blocks=True)], 500)
    held = [held_ms for *_, held_ms in found if held_ms]
    assert 150 < len(held) < 250
    assert 150 < max(held) <= 200
    assert {held_ms for *_, held_ms in syn_oracle.survivors(rows_of(*range(400)), [Operator("s", 1, PARTS)], 500)} == {
        0
    }


def test_a_chain_keeps_the_share_of_rows_that_was_asked_for():
    workload = Syn(length=4, selectivity=0.25, rounds=1)
    assert {operator.rounds for operator in workload.operators[0]} == {1}
    rows = workload.generate(1, 4000)
    (answer,) = workload.expected(rows).values()
    assert len(answer) == pytest.approx(1000, abs=3 * (4000 * 0.25 * 0.75) ** 0.5)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_drawn_chains_stay_within_the_definitions_bounds(seed):
    workload = Syn(chains=4, length=12, base_rounds=100, seed=seed)
    for chain in workload.operators:
        (cost_class,) = {round(math.log2(operator.rounds / 100)) for operator in chain}
        assert 0 <= cost_class <= 4
        for operator in chain:
            assert 0.899 <= operator.rounds / (100 * 2**cost_class) <= 1.101
            assert 0.9 * 0.01 ** (1 / 12) - 1e-6 <= operator.keeps_below / PARTS <= 1
    assert workload.operators == Syn(chains=4, length=12, base_rounds=100, seed=seed).operators


def test_one_operator_in_ten_blocks_and_one_at_least():
    many = Syn(chains=20, length=5, blocking=True)
    assert sum(operator.blocks for chain in many.operators for operator in chain) == 10
    assert sum(operator.blocks for chain in blocking().operators for operator in chain) == 1
    assert not any(operator.blocks for operator in Syn().operators[0])


@pytest.mark.parametrize(("length", "per_stage", "names"), [(3, 1, 3), (5, 2, 3), (4, 4, 1), (2, 9, 1)])
def test_a_chain_becomes_as_many_queries_as_its_operators_need(length, per_stage, names):
    workload = Syn(chains=2, length=length, per_stage=per_stage)
    check_stages(workload)
    assert len(workload.stages) == 2 * names
    assert workload.outputs == (f"chain0_{names - 1}", f"chain1_{names - 1}")
    assert set(workload.expected(workload.generate(0, 5))) == set(workload.outputs)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"length": 0}, "1 or more"),
        ({"per_stage": 0}, "1 or more"),
        ({"selectivity": 0.0}, "more than 0"),
        ({"rounds": 0}, "at least once"),
        ({"holds_in_1000": 1001}, "0 to 1000"),
    ],
)
def test_settings_that_make_no_chain_are_refused(wrong, said):
    with pytest.raises(ConfigurationError, match=said):
        Syn(**wrong)
