"""What the demo says where nobody watches a terminal. That it runs is in tests/spark/test_demo_tiny.py."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from slackwater import demo
from slackwater.errors import ConfigurationError, SlackwaterError


def test_a_log_gets_a_line_for_each_phase_and_the_place_of_the_page(tmp_path, capsys, monkeypatch):
    def told(plan, listener):
        spec = replace(plan.run, policy=demo.OURS)
        for state in ("warming up", "warming up", "measuring", "measuring"):
            listener.state(spec, {"state": state, "queries": []})
        listener.state(spec, {"state": "serving", "url": "http://127.0.0.1:1/", "token_file": "the-token"})
        raise SlackwaterError("that is enough")

    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(demo, "run_bench", told)
    monkeypatch.setattr(demo, "ensure_java", lambda: SimpleNamespace(version=17, origin="here"))
    with pytest.raises(SlackwaterError, match="that is enough"):
        demo.run_demo(fast=True, queries=2, out=tmp_path)
    said = capsys.readouterr().out.splitlines()
    halves = [line for line in said if line.startswith("2 of 2")]
    assert halves == [f"2 of 2: the same queries with Slackwater: {state}" for state in ("warming up", "measuring")]
    assert said[-1].startswith("Live page: http://127.0.0.1:1/ while this half runs.")
    assert said[-1].endswith("asks for the token in the-token.")


@pytest.mark.parametrize("queries", [0, 65])
def test_a_demo_has_from_1_to_64_queries(queries, tmp_path):
    with pytest.raises(ConfigurationError, match=rf"--queries {queries}: from 1 to 64"):
        demo.run_demo(fast=True, queries=queries, out=tmp_path)
