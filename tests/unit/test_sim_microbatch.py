"""The micro-batch simulator: what it is calibrated with comes back, and other loads are predicted from it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from slackwater.cli import main
from slackwater.errors import ConfigurationError
from slackwater.replay.company import speeds_of
from slackwater.sim.calibration import Calibration, calibrate
from slackwater.sim.microbatch import NAME, Prediction, Protocol, run, simulate
from slackwater.sim.options import Options
from slackwater.sim.trace import RunTrace, TracedBatch, TracedQuery, TraceFile
from slackwater.workloads.base import window_phases_ms

TRUTH = Calibration(
    cores=2,
    batch_cost_s=0.2,
    row_cost_s=1.2e-6,
    empty_cost_s=0.12,
    cpu_share=0.9,
    cpu_demand=1.4,
    background_cores=0.2,
    grant_delay_s=0.015,
    factors=(0.8, 0.85, 0.9, 0.95, 1.0, 1.0, 1.05, 1.1, 1.3),
)
SHORT = Protocol(start_gap_s=0.5, warmup_s=12.0, seconds=40.0, drain_s=10.0)
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def _queries(count: int, interval_s: float | None = None, seed: int = 0) -> list[TracedQuery]:
    return [
        TracedQuery(
            name=f"q{place:02d}",
            phase_ms=phase_ms,
            rate=10_000,
            window_s=10.0,
            delay_s=1.0,
            interval_s=None if interval_s is None else interval_s * (0.94 + 0.12 * place / (count - 1)),
        )
        for place, phase_ms in enumerate(window_phases_ms(count, 10_000, "spread", seed))
    ]


def _recorded(found: Prediction, queries: list[TracedQuery], policy: str = "klink") -> RunTrace:
    """A simulated run as the benchmark would have recorded it."""
    batches = []
    for name, batch in found.trace.batches:
        if batch.ended_wall_ts > found.from_wall_ts and batch.offsets_wall_ts < found.to_wall_ts:
            largest = batch.inputs[0].max_event_ts
            batches.append(
                TracedBatch(
                    query=name,
                    batch_id=batch.batch_id,
                    start_ms=round(1000 * batch.offsets_wall_ts),
                    duration_ms=round(1000 * batch.duration_s),
                    rows=batch.rows,
                    watermark_ms=round(1000 * batch.watermark_event_ts),
                    event_max_ms=None if largest is None else round(1000 * largest),
                )
            )
    return RunTrace(
        policy=policy,
        seed=0,
        cores=2,
        lanes=None if policy.startswith("spark-") else 2,
        from_ms=round(1000 * found.from_wall_ts),
        to_ms=round(1000 * found.to_wall_ts),
        cpu_s=found.cpu[-1][1] - found.cpu[0][1],
        queries=queries,
        batches=batches,
        cpu=[(round(1000 * wall_ts), cpu_s) for wall_ts, cpu_s in found.cpu],
    )


@pytest.fixture(scope="module")
def recorded() -> RunTrace:
    queries = _queries(12)
    return _recorded(simulate(TRUTH, queries, "klink", protocol=SHORT), queries)


@pytest.fixture(scope="module")
def calibrated(recorded: RunTrace) -> Calibration:
    return calibrate(recorded)


def test_the_costs_of_a_batch_come_back_from_a_recorded_run(calibrated):
    assert calibrated.batch_cost_s == pytest.approx(TRUTH.batch_cost_s, rel=0.15)
    assert calibrated.empty_cost_s == pytest.approx(TRUTH.empty_cost_s, rel=0.15)
    of_a_window_s = calibrated.batch_cost_s + 100_000 * calibrated.row_cost_s
    assert of_a_window_s == pytest.approx(0.32, rel=0.1)
    assert np.median(calibrated.factors) == pytest.approx(1.0, abs=0.05)
    assert calibrated.factors[0] < 0.9
    assert calibrated.factors[-1] > 1.1


def test_the_cpu_time_of_a_batch_comes_back_apart_from_the_background(calibrated):
    assert calibrated.cpu_share * calibrated.cpu_demand == pytest.approx(0.9 * 1.4, rel=0.15)
    assert calibrated.background_cores == pytest.approx(0.2, abs=0.15)


def test_clumps_and_delays_of_source_and_grants_come_back(calibrated):
    assert calibrated.step_s == 1.0
    assert calibrated.lag_s < 0.1
    assert calibrated.grant_delay_s == pytest.approx(0.015, abs=0.003)


def test_rows_that_come_one_by_one_are_no_clumps():
    truth = replace(TRUTH, step_s=None, lag_s=0.3)
    queries = _queries(6)
    found = calibrate(_recorded(simulate(truth, queries, "klink", protocol=SHORT), queries))
    assert found.step_s is None
    assert found.lag_s == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize(
    ("policy", "count", "interval_s"), [("klink", 16, None), ("round-robin", 10, None), ("spark-staggered-4s", 16, 4.0)]
)
def test_other_loads_and_policies_are_predicted_within_a_fifth(calibrated, policy, count, interval_s):
    queries = _queries(count, interval_s, seed=7)
    real = simulate(TRUTH, queries, policy, seed=5, protocol=SHORT)
    predicted = simulate(calibrated, queries, policy, seed=6, protocol=SHORT)
    assert predicted.mean_s == pytest.approx(real.mean_s, rel=0.2)


def test_a_plain_trigger_is_recorded_and_calibrated_from_as_well():
    queries = _queries(12, 4.0)
    found = simulate(TRUTH, queries, "spark-staggered-4s", protocol=SHORT)
    calibration = calibrate(_recorded(found, queries, "spark-staggered-4s"))
    assert calibration.batch_cost_s + 40_000 * calibration.row_cost_s == pytest.approx(0.248, rel=0.15)
    assert calibration.grant_delay_s == 0.0


def test_the_same_seed_gives_the_same_latencies_and_another_one_others():
    queries = _queries(4)
    first = simulate(TRUTH, queries, "klink", seed=1, protocol=SHORT)
    assert first == simulate(TRUTH, queries, "klink", seed=1, protocol=SHORT)
    assert first.latencies_s != simulate(TRUTH, queries, "klink", seed=2, protocol=SHORT).latencies_s


def test_windows_that_never_come_out_count_until_the_end():
    slow = replace(TRUTH, batch_cost_s=30.0, empty_cost_s=30.0)
    found = simulate(slow, _queries(3), "klink", protocol=SHORT)
    assert found.emitted < len(found.latencies_s)
    assert max(found.latencies_s) > SHORT.drain_s


def test_a_pool_for_each_query_starves_the_last_names_and_one_shared_pool_does_not():
    crowded = replace(TRUTH, batch_cost_s=0.4, task_share=0.7)
    protocol = replace(SHORT, seconds=15.0)

    def batches(policy: str) -> tuple[int, int]:
        trace = simulate(crowded, _queries(8), policy, protocol=protocol).trace
        return len(trace.batches_of("q00")), len(trace.batches_of("q07"))

    first, last = batches("spark-fair")
    assert first > 3 * last
    first, last = batches("spark-fifo")
    assert first < 1.5 * last


def test_speeds_fall_with_company_and_only_as_far_as_batches_compute():
    computing = speeds_of(4, 1.0, 1.0, 0.0, 0.0, 2)
    waiting = speeds_of(4, 0.5, 1.0, 0.0, 0.0, 2)
    assert computing == pytest.approx([1.0, 1.0, 2 / 3, 0.5])
    assert waiting[0] == pytest.approx(1.0)
    assert all(waiting >= computing - 1e-9)
    assert all(np.diff(waiting) <= 1e-9)
    assert speeds_of(2, 1.0, 1.0, 0.0, 0.5, 2)[1] == pytest.approx(1 / 1.5)


def test_a_run_without_data_cannot_calibrate(recorded):
    empty = msgspec.structs.replace(recorded, batches=[b for b in recorded.batches if not b.rows])
    with pytest.raises(ConfigurationError, match="no batch with rows"):
        calibrate(empty)


def test_the_experiment_predicts_every_live_run_once_and_says_how_far_off_it_is(tmp_path, recorded, capsys):
    trace = tmp_path / "trace.json"
    trace.write_bytes(msgspec.json.encode(TraceFile(workload="ysb", commit=None, runs=[recorded])))
    live = json.loads((RESULTS / "ysb-8.json").read_text("utf-8"))
    # The row of the sweep that was chosen stands there twice; a short one is enough here.
    names = {"klink", "spark-staggered-2s", "spark-tuned"}
    kept = [run for run in live["runs"] if run["seed"] == 0 and run["policy"] in names]
    assert [run["chosen"] for run in kept if run["policy"] == "spark-tuned"] == ["spark-staggered-2s"]
    for found in kept:
        found["seconds"], found["warmup_s"] = 20.0, 10.0
    result = tmp_path / "live.json"
    result.write_text(json.dumps(live | {"runs": kept}), "utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["sim", NAME, "--trace", str(trace), "--against", str(result), "--json", str(tmp_path / "out.json")])
    assert not ended.value.code
    written = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert [row["policy"] for row in written["rows"]] == ["spark-staggered-2s", "klink"]
    assert len(written["claims"]) == 2
    (klink,) = [row for row in written["rows"] if row["policy"] == "klink"]
    (measured,) = [run for run in kept if run["policy"] == "klink"]
    assert klink["live_mean_s"] == round(measured["latency_s"]["mean"], 2)
    assert abs(klink["error_pct"]) < 30
    assert "calibrated from" in capsys.readouterr().out


def test_the_experiment_refuses_what_it_cannot_use(tmp_path, recorded):
    with pytest.raises(ConfigurationError, match="--trace FILE --against"):
        run(None, (), 0, Options())
    trace = tmp_path / "trace.json"
    trace.write_bytes(msgspec.json.encode(TraceFile(workload="ysb", commit=None, runs=[recorded])))
    with pytest.raises(ConfigurationError, match="not a bench result"):
        run(trace, [trace], 0, Options())
    with pytest.raises(ConfigurationError, match="leave the others out"):
        run(trace, [trace], 0, Options(minutes=3.0))
    on_more = msgspec.structs.replace(recorded, cores=4)
    trace.write_bytes(msgspec.json.encode(TraceFile(workload="ysb", commit=None, runs=[on_more])))
    with pytest.raises(ConfigurationError, match="4 cores"):
        run(trace, [RESULTS / "ysb-8.json"], 0, Options())


def test_a_recording_is_for_this_experiment_alone(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["sim", "klink-estimator", "--trace", "trace.json"])
    assert ended.value.code == 2
    assert "microbatch" in capsys.readouterr().err
