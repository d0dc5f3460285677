"""The demo, tiny, on a real Spark: it runs both halves, compares them and says where the report lies."""

from __future__ import annotations

import pytest

from slackwater.demo import DemoPlan, run_demo


@pytest.mark.spark
def test_the_demo_compares_spark_alone_with_slackwater_and_writes_its_report(tmp_path, capsys):
    times = DemoPlan(rate=100, window_s=2.0, seconds=4.0, warmup_min_s=2.0, warmup_max_s=2.0, drain_s=15.0)
    run_demo(fast=True, queries=2, out=tmp_path / "demo", serve=True, times=times)
    said = capsys.readouterr().out
    assert "Spark alone" in said
    assert "With Slackwater results leave after" in said
    assert "windows wrong" in said
    assert "Live page: http://127.0.0.1:" in said
    assert (tmp_path / "demo" / "result.json").exists()
    assert (tmp_path / "demo" / "report.html").exists()
