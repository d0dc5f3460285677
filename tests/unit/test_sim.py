"""Experiments: the same figures from the same seed, and files that tell the truth about claims."""

from __future__ import annotations

import json

import numpy as np
import pytest

from slackwater.cli import main
from slackwater.sim.delays import Uniform, Zipf
from slackwater.sim.estimator import Plan, run
from slackwater.sim.experiment import Experiment, claim

TINY = Plan(queries=2, epochs=120, events_per_epoch=50)


def test_the_same_seed_gives_the_same_figures_and_another_one_others():
    assert run(seed=3, plan=TINY) == run(seed=3, plan=TINY)
    assert run(seed=3, plan=TINY).rows != run(seed=4, plan=TINY).rows


def test_the_estimator_covers_what_it_claims_even_in_a_tiny_run():
    inside = {(row["estimator"], row["delays"]): row["inside"] for row in run(seed=0, plan=TINY).rows}
    assert inside["klink-95", "uniform"] >= 0.98
    assert inside["klink-95", "zipf"] >= 0.92
    assert inside["klink-90", "uniform"] > inside["lr", "uniform"]


@pytest.mark.parametrize("delays", [Uniform(2.0), Zipf(longest_s=2.0)])
def test_delays_are_positive_and_bounded(delays):
    drawn = delays.draw(np.random.default_rng(0), 10_000)
    assert drawn.min() >= 0
    assert drawn.max() <= 2.0


def test_zipf_delays_are_mostly_short():
    drawn = Zipf().draw(np.random.default_rng(0), 10_000)
    assert np.median(drawn) < 0.1
    assert drawn.mean() > 0.1


def test_a_claim_that_does_not_hold_is_said_so(tmp_path):
    found = Experiment("x", 0, [{"a": 1}], [claim("too much", 2.0, "≤", 1.0), claim("enough", 2.0, "≥", 1.0)])
    found.write(tmp_path / "x.json")
    written = json.loads((tmp_path / "x.json").read_text("utf-8"))
    assert [entry["holds"] for entry in written["claims"]] == [False, True]
    assert set(written) >= {"experiment", "seed", "commit", "rows", "claims"}


def test_an_unknown_experiment_ends_with_two(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["sim", "klink-estimatr"])
    assert ended.value.code == 2
    assert "klink-estimator" in capsys.readouterr().err
