"""Two engines on one host: what Flink printed against the oracle, the middleware's configuration, and the claims."""

from __future__ import annotations

import subprocess
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from slackwater.bench.engines import (
    CONTENDERS,
    OS,
    EngineResult,
    Outcome,
    _claims,
    _rows,
    at_load,
    middleware_config,
    most_units_set,
)
from slackwater.bench.flink_distribution import FlinkNotFoundError, cached, fetched
from slackwater.bench.flink_measure import measure_query
from slackwater.bench.flink_ysb import Emitted, Printed, read_output, statements
from slackwater.bench.measure import distribution
from slackwater.bench.model import WindowCounts
from slackwater.middleware.config import parse
from slackwater.workloads.base import QuerySpec
from slackwater.workloads.ysb import YsbOracle

if TYPE_CHECKING:
    from pathlib import Path

SPEC = QuerySpec("ysb_0", rate=300, window_s=2.0, delay_s=0.5, phase_ms=250, seed=7)
CREATED_MS = 1_794_749_915_501


def rows_of(start_ms: int, written_ms: int) -> list[Emitted]:
    expected = YsbOracle(SPEC, CREATED_MS).expected(start_ms)
    return [Emitted(start_ms, campaign, count, written_ms) for campaign, count in expected]


def due(from_ms: int, to_ms: int) -> list[int]:
    return [window.start_ms for window in YsbOracle(SPEC, CREATED_MS).windows_due(from_ms, to_ms)]


def test_windows_are_right_wrong_or_missing_and_each_has_a_latency():
    from_ms, to_ms = CREATED_MS + 4000, CREATED_MS + 10_000
    first, second, third = due(from_ms, to_ms)
    wrong = rows_of(second, second + 2900)
    wrong[0] = replace(wrong[0], count=wrong[0].count + 1)
    printed = Printed(CREATED_MS, (*rows_of(first, first + 2800), *wrong))
    found = measure_query(SPEC, printed, from_ms, to_ms, ended_ms=third + 9000)
    assert found.windows == WindowCounts(expected=3, emitted=2, wrong=1, wrong_outside=0)
    assert found.latencies_s == pytest.approx([0.8, 0.9, 7.0])


def test_a_job_that_never_began_has_nothing_due():
    assert measure_query(SPEC, Printed(None, ()), 0, 10_000, 20_000).windows.expected == 0


def test_output_of_several_jobs_is_told_apart_and_half_a_line_left_out():
    text = (
        "created ysb_1 1794749917199\ncreated ysb_0 1794749915501\n"
        "ysb_0> +I[2026-11-15T13:38:35.250Z, 94, 667, 2026-11-15T13:38:38.298Z]\n"
        "ysb_1> +I[2026-11-15T13:38:35Z, 3, 5, 2026-11-15T13:38:38Z]\n"
        "ysb_0> +I[2026-11-15T13:38:35.250Z, 95, 6"
    )
    found = read_output(text, "ysb_0")
    assert found == Printed(CREATED_MS, (Emitted(1_794_749_915_250, 94, 667, 1_794_749_918_298),))
    assert read_output(text, "ysb_1").rows[0].written_ms == 1_794_749_918_000


def test_windows_have_their_size_and_phase_in_flinks_sql():
    query = statements(replace(SPEC, window_s=90.5))[-1]
    assert "INTERVAL '00:01:30.500' HOUR TO SECOND, INTERVAL '00:00:00.250' HOUR TO SECOND" in query


@pytest.mark.parametrize("contender", [name for name in CONTENDERS if name != OS])
def test_the_middleware_takes_every_contenders_configuration(contender: str, tmp_path: Path):
    text = middleware_config(contender, "http://127.0.0.1:8081", tmp_path / "run", tmp_path)
    config = parse(tomllib.loads(text), "test")
    assert [driver.kind for driver in config.drivers] == ["flink", "slackwater"]


def result(engine: str, rows_per_s: float, latency_s: float, wrong: int = 0) -> EngineResult:
    windows = WindowCounts(expected=1, emitted=1, wrong=wrong, wrong_outside=0)
    return EngineResult(engine, 2, 1000.0, rows_per_s, distribution([latency_s]), windows)


def test_claims_compare_each_engine_with_the_os_at_the_same_load():
    found = [
        Outcome(OS, 80.0, 0, (result("spark", 900, 4.0), result("flink", 1000, 2.0))),
        Outcome("qs-nice", 80.0, 0, (result("spark", 990, 2.0), result("flink", 900, 3.0, wrong=1)), 0.9),
        Outcome("qs-nice", 100.0, 0, (result("spark", 990, 2.0), result("flink", 900, 3.0)), 1.1),
    ]
    claims = {claim.claim: (claim.measured, claim.holds) for claim in _claims(found)}
    assert claims == {
        "qs-nice, flink at 80 %: throughput over the OS's": (0.9, False),
        "qs-nice, flink at 80 %: mean latency over the OS's": (1.5, False),
        "qs-nice, spark at 80 %: throughput over the OS's": (1.1, True),
        "qs-nice, spark at 80 %: mean latency over the OS's": (0.5, True),
        "windows with a wrong result": (1, False),
        "CPU of the middleware, % of a core, its start included": (1.1, True),
    }


def test_a_run_that_failed_is_a_row_and_no_claim():
    found = [
        Outcome(OS, 80.0, 0, (result("flink", 1000, 2.0),)),
        Outcome("qs-nice", 80.0, 0, error="Flink did not start."),
    ]
    assert [row.get("failed") for outcome in found for row in _rows(outcome)] == [None, "Flink did not start."]
    assert [claim.claim for claim in _claims(found)] == ["windows with a wrong result"]


def test_units_that_the_middleware_set_are_counted_by_engine():
    applications = [
        {"engine": "flink", "units": [{"key": "a"}, {"key": "b"}]},
        {"engine": "flink", "units": [{"key": "c"}]},
        {"engine": "spark", "units": [{"key": "d"}]},
    ]
    rounds: list[dict[str, Any]] = [
        {"applications": applications, "nice": {"a": 0, "c": 19}, "groups": {}},
        {"applications": applications[:1], "nice": {}, "groups": {"g": {"members": ["a", "b", "d"]}}},
        {"applications": [], "nice": {}, "groups": {}},
    ]
    assert most_units_set(rounds) == {"flink": 2, "spark": 0}


def test_loads_are_shares_of_the_full_rate():
    assert [at_load(10_000, load) for load in (60, 80, 100, 0.001)] == [6000, 8000, 10_000, 1]


def test_a_folder_that_is_no_flink_is_refused(tmp_path: Path):
    with pytest.raises(FlinkNotFoundError, match="Name the folder of a whole distribution"):
        cached({"SLACKWATER_FLINK_HOME": str(tmp_path)})


def test_an_index_out_of_reach_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def offline(command: Any, **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "ERROR: no matching distribution")

    monkeypatch.setattr(subprocess, "run", offline)
    with pytest.raises(FlinkNotFoundError, match=r"no matching distribution.*set SLACKWATER_FLINK_HOME"):
        fetched({"XDG_CACHE_HOME": str(tmp_path)})
    assert list((tmp_path / "slackwater").iterdir()) == []
