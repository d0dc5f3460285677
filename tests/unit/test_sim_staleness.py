"""Aion's experiments run tiny: rows, claims, the paper's counts."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from slackwater.cli import main
from slackwater.errors import ConfigurationError
from slackwater.sim import commands, lateness, staleness
from slackwater.sim.commands import EXPERIMENTS
from slackwater.sim.lateness_shapes import shapes
from slackwater.sim.options import Options

TINY = staleness.Plan(events=400, windows=2, events_per_window=200, batches=100)
TINY_LATENESS = lateness.Plan(trials=60, long_trials=2, shift_trials=1, before=1000, after=2000)


def test_the_papers_counts_come_out_and_the_trigger_keeps_its_bound():
    found = staleness.run(0, replace(TINY, events=10_000))
    row = next(
        row
        for row in found.rows
        if (row["what"], row["shape"], row["coverage"], row["bound"]) == ("executions", "log-normal", 0.998, 0.05)
    )
    assert (row["ours"], row["deltat"], row["deltaev"]) == (4, 13, 15)
    failed = [claim.claim for claim in found.claims if not claim.holds]
    assert all("covers 99 %" in words for words in failed)
    assert {row["what"] for row in found.rows} == {"staleness, 10 executions", "executions", "executions, live"}


def test_lateness_has_a_row_for_each_shape_and_length_and_change():
    found = lateness.run(0, TINY_LATENESS)
    assert len(found.rows) == 4 * (4 + 3)
    assert all(0 <= row["holds"] <= 1 < 3 * row["over_needed"] for row in found.rows)
    assert len(found.claims) == 8


@pytest.mark.parametrize(
    "run", [partial(staleness.run, plan=TINY), partial(lateness.run, plan=TINY_LATENESS)], ids=("staleness", "lateness")
)
def test_the_same_seed_gives_the_same_figures_and_another_one_others(run):
    first, again, other = run(1), run(1), run(2)
    assert first == again
    assert first.rows != other.rows


@pytest.mark.parametrize("shape", shapes().values(), ids=lambda shape: shape.name)
def test_shapes_draw_what_they_look_up(shape):
    drawn = shape.draw(np.random.default_rng(0), 20_000)
    assert drawn.min() >= 0
    for share in (0.1, 0.5, 0.9, 0.99):
        assert np.mean(drawn <= shape.quantile(share)) == pytest.approx(share, abs=0.012)
        assert shape.covered(shape.quantile(share)) == pytest.approx(share)


def test_the_command_prints_and_writes_them(monkeypatch, tmp_path, capsys):
    tiny = commands._alone(staleness.NAME, partial(staleness.run, plan=TINY))
    monkeypatch.setitem(EXPERIMENTS, staleness.NAME, tiny)
    file = tmp_path / "out.json"
    with contextlib.suppress(SystemExit):
        main(["sim", staleness.NAME, "--json", str(file), "--plot", str(tmp_path / "out.png")])
    assert (tmp_path / "out.png").stat().st_size > 0
    written = json.loads(file.read_text("utf-8"))
    assert written["experiment"] == "aion-staleness"
    assert len(written["rows"][0]["curve"]["ours"]) == 30
    assert "log-normal" in capsys.readouterr().out


def test_settings_that_they_do_not_have_are_refused():
    with pytest.raises(ConfigurationError, match="aion-lateness takes --seed"):
        EXPERIMENTS[lateness.NAME](0, Options(minutes=1.0))
