"""A batch's cost, a + b·rows, from what batches took."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.core.cost import CostModel, RowCost


def test_a_query_that_has_not_run_costs_something():
    model = CostModel()
    assert model.batch_s(0) > 0
    assert model.row_s == 0


def test_an_exact_line_is_recovered():
    model = CostModel()
    for rows in (0, 10_000, 50_000, 20_000, 80_000, 5_000, 30_000):
        model.observe(rows, 0.3 + 2e-5 * rows)
    assert model.fixed_s == pytest.approx(0.3)
    assert model.row_s == pytest.approx(2e-5)
    assert model.batch_s(100_000) == pytest.approx(2.3)


@pytest.mark.parametrize("seed", range(20))
def test_noise_and_outliers_and_slow_first_batches_do_not_bend_the_line(seed: int):
    chance = random.Random(seed)
    model = CostModel()
    model.observe(100_000, 9.0)
    model.observe(1_000, 4.0)
    for batch in range(30):
        rows = chance.randrange(0, 100_000)
        pause_s = chance.uniform(2, 8) if batch % 10 == 7 else 0.0
        model.observe(rows, 0.3 + 2e-5 * rows + chance.gauss(0, 0.02) + pause_s)
    assert model.fixed_s == pytest.approx(0.3, abs=0.1)
    assert model.row_s == pytest.approx(2e-5, rel=0.2)


def test_slow_first_batches_are_forgotten_once_there_are_others():
    model = CostModel()
    model.observe(1000, 8.0)
    model.observe(1000, 5.0)
    assert model.fixed_s > 2
    model.observe(1000, 0.4)
    assert model.fixed_s == pytest.approx(0.4)


def test_equal_batches_are_all_fixed_cost():
    model = CostModel()
    for _ in range(5):
        model.observe(1000, 0.4)
    assert model.fixed_s == pytest.approx(0.4)
    assert model.row_s == 0


def test_larger_batches_that_happen_to_be_faster_give_no_negative_row_cost():
    model = CostModel()
    for rows, duration_s in ((0, 0.6), (0, 0.6), (1000, 0.6), (50_000, 0.5), (1000, 0.6), (50_000, 0.5)):
        model.observe(rows, duration_s)
    assert model.row_s == 0
    assert model.fixed_s > 0


def test_a_sweep_costs_what_batches_with_few_rows_cost():
    model = CostModel()
    for _ in range(6):
        model.observe(100_000, 2.3)
        model.observe(0, 0.25)
    assert model.sweep_s == pytest.approx(0.25)


def test_a_query_that_became_heavier_is_learnt_anew():
    model = CostModel(history=16)
    for rows in range(0, 20_000, 1000):
        model.observe(rows, 0.3)
    for rows in range(0, 20_000, 1000):
        model.observe(rows, 1.3)
    assert model.fixed_s == pytest.approx(1.3)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 1e5)), max_size=40), st.integers(0, 10**9))
def test_costs_are_finite_and_never_negative(samples: list[tuple[int, float]], rows: int):
    model = CostModel()
    for seen, duration_s in samples:
        model.observe(seen, duration_s)
    for cost_s in (model.fixed_s, model.row_s, model.sweep_s, model.batch_s(rows)):
        assert math.isfinite(cost_s)
        assert cost_s >= 0


def test_without_a_fixed_cost_all_is_the_rows():
    cost = RowCost()
    assert cost.batch_s(100) == 0
    for rows in (1000, 10, 0, 500):
        cost.observe(rows, 2e-4 * rows)
    assert cost.row_s == pytest.approx(2e-4)
    assert (cost.fixed_s, cost.sweep_s) == (0, 0)
    assert cost.batch_s(100) == pytest.approx(0.02)
