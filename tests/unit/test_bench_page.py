"""`make bench-page`, tiny: it counts what readers got and what serving them took."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "page.py"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SLACKWATER_RUNTIME_DIR", str(tmp_path / "run"))
    spec = importlib.util.spec_from_file_location("bench_page", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_bench_counts_frames_and_the_processor_time_of_those_who_serve(bench: Any) -> None:
    found = bench.experiment(queries=8, readers=(2,), seconds=2.0)
    (row,) = found.rows
    assert row["ticks"] >= 2
    assert 0 < row["tick_bytes_mean"] <= row["tick_bytes_max"]
    assert row["whole_bytes"] > row["tick_bytes_mean"]
    assert row["server_cpu_share"] > 0
    assert [one.claim.split(": ")[1] for one in found.claims] == [
        "share of a core to serve them",
        "bytes of the largest tick",
    ]
