"""How an experiment is printed: nothing of a row is cut off."""

from __future__ import annotations

import pytest

from slackwater.sim.experiment import Experiment, claim
from slackwater.sim.show import show

ROW = {f"a long heading {number}": f"value {number}" for number in range(12)}


@pytest.mark.parametrize("terminal", [False, True])
def test_rows_that_are_wider_than_the_screen_are_shown_whole(terminal, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR" if terminal else "NO_COLOR", "1")
    show(Experiment("wide", 0, [ROW, ROW | {"told by one": True}], [claim("it is small", 0.5, "≤", 1)]), None)
    said = capsys.readouterr().out
    for heading, value in ROW.items():
        assert heading in said
        assert said.count(value + " ") == 2
    assert "told by one" in said
    assert "…" not in said
    widest = max(len(line) for line in said.splitlines() if heading in line)
    assert (widest <= 80) == terminal
