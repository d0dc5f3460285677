"""`microbatch`: Spark's micro-batch engine in virtual time, calibrated from one recorded run.

`slackwater bench ysb … --trace FILE` records every batch of a run. `calibrate` reads off what a batch costs and how
batches that run at once slow each other; `simulate` then runs any number of queries under any policy: the same engine
and policies as on Spark, over `slackwater.testing.ScriptedDriver`. `run` holds the simulated latencies against those of
live runs.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from slackwater.core.model import Window
from slackwater.errors import ConfigurationError
from slackwater.policies.assembly import engine_for
from slackwater.sim.calibration import Calibration, calibrate
from slackwater.sim.experiment import Claim, Experiment, claim
from slackwater.sim.options import Options
from slackwater.sim.trace import RunTrace, TracedQuery, read_trace
from slackwater.testing import START_WALL_TS, ScriptedDriver, SimulatedQuery, steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from slackwater.testing import Trace

    Floats = NDArray[np.float64]

NAME = "microbatch"
LARGEST_ERROR = 0.2


@dataclass(frozen=True)
class Protocol:
    """As a benchmark measures: queries start one by one, warm up, are measured, and may finish what was due."""

    start_gap_s: float = 2.0
    warmup_s: float = 40.0
    seconds: float = 60.0
    drain_s: float = 20.0


@dataclass(frozen=True)
class Prediction:
    """`latencies_s` has one figure for every window that was due; one that did not come out counts until the end."""

    latencies_s: tuple[float, ...]
    emitted: int
    batches: int
    batch_mean_s: float
    from_wall_ts: float
    to_wall_ts: float
    cpu: tuple[tuple[float, float], ...]  # wall time and CPU time so far, every second of the measured span
    trace: Trace = field(repr=False, compare=False)

    @property
    def cpu_cores(self) -> float:
        return (self.cpu[-1][1] - self.cpu[0][1]) / (self.to_wall_ts - self.from_wall_ts)

    @property
    def mean_s(self) -> float:
        return float(np.mean(self.latencies_s))

    @property
    def p99_s(self) -> float:
        return float(np.percentile(self.latencies_s, 99))


def simulate(
    calibration: Calibration,
    queries: Sequence[TracedQuery],
    policy: str,
    *,
    seed: int = 0,
    protocol: Protocol | None = None,
) -> Prediction:
    """Run queries under a policy, Slackwater's (`klink`, `klink:cost`, …) or Spark's own (`spark-…`, by the intervals
    that the queries name), and measure as the benchmark does.
    """
    protocol = protocol or Protocol()
    spark = policy.startswith("spark-")
    name, _, knob = policy.partition(":")
    engine = engine_for("observe") if spark else engine_for(name, knob=knob or "balanced")
    simulated = list(_simulated(calibration, queries, protocol, seed))
    driver = ScriptedDriver(
        simulated,
        cores=calibration.cores,
        background_cores=calibration.background_cores,
        crowding=calibration.crowding,
        grant_delay_s=0.0 if spark else calibration.grant_delay_s,
        task_order="name" if spark and policy != "spark-fifo" else "arrival",
        seed=seed,
    )
    from_ts = START_WALL_TS + len(queries) * protocol.start_gap_s + protocol.warmup_s
    to_ts = from_ts + protocol.seconds
    end_ts = to_ts + protocol.drain_s
    cpu = [(driver.clock.now(), driver.cpu_s)]
    cpu += [(driver.clock.now(), driver.cpu_s) for _ in steps(engine, driver, end_ts - START_WALL_TS)]
    trace = driver.trace
    out = {(e.query, round(e.window_end_event_ts, 3)): e.emitted_wall_ts for e in trace.emissions}
    due = [(query.name, end) for query in simulated for end in _due(query, from_ts, to_ts)]
    left = [out.get((query, round(end, 3)), math.inf) for query, end in due]
    lengths = [batch.duration_s for _, batch in trace.batches if from_ts <= batch.ended_wall_ts < to_ts]
    return Prediction(
        latencies_s=tuple(min(wall_ts, end_ts) - end for (_, end), wall_ts in zip(due, left, strict=True)),
        emitted=sum(wall_ts <= end_ts for wall_ts in left),
        batches=len(lengths),
        batch_mean_s=float(np.mean(lengths)) if lengths else 0.0,
        from_wall_ts=from_ts,
        to_wall_ts=to_ts,
        cpu=tuple(_every_second(cpu, from_ts, to_ts)),
        trace=trace,
    )


def _every_second(cpu: Sequence[tuple[float, float]], from_ts: float, to_ts: float) -> Iterator[tuple[float, float]]:
    wall_ts, cpu_s = np.array(cpu).T
    for at_ts in (*np.arange(from_ts, to_ts), to_ts):
        yield float(at_ts), float(np.interp(at_ts, wall_ts, cpu_s))


def _simulated(
    calibration: Calibration, queries: Sequence[TracedQuery], protocol: Protocol, seed: int
) -> Iterator[SimulatedQuery]:
    """The source of a query begins with it, and so do its clumps: when in a second is up to the seed."""
    draw = random.Random(f"starts-{seed}")
    for place, query in enumerate(queries):
        starts_at_s = place * protocol.start_gap_s + draw.random()
        yield SimulatedQuery(
            name=query.name,
            windows=(Window(query.window_s, query.slide_s or query.window_s, query.phase_ms / 1000),),
            delay_s=query.delay_s,
            rows_per_s=query.rate,
            step_s=calibration.step_s,
            step_phase_s=starts_at_s % (calibration.step_s or 1.0),
            lag_s=calibration.lag_s,
            batch_cost_s=calibration.batch_cost_s,
            row_cost_s=calibration.row_cost_s,
            empty_cost_s=calibration.empty_cost_s,
            cpu_share=calibration.cpu_share,
            cpu_demand=calibration.cpu_demand,
            task_share=calibration.task_share,
            factors=calibration.factors,
            interval_s=query.interval_s or 0.0,
            idle_s=((0.0, starts_at_s),),
            starts_at_s=starts_at_s,
        )


def _due(query: SimulatedQuery, from_ts: float, to_ts: float) -> Iterator[float]:
    """Ends of the windows whose deadline falls into the measured span."""
    delay_s = query.delay_s or 0.0
    for window in query.windows:
        end = window.next_end(from_ts - delay_s - 1e-6)
        while end + delay_s < to_ts:
            yield end
            end = window.next_end(end)


# ---- the experiment -----------------------------------------------------------------------------------------------


class _Latency(msgspec.Struct, frozen=True):
    mean: float | None
    p99: float | None


class _LiveQuery(msgspec.Struct, frozen=True):
    name: str
    phase_ms: int
    interval_s: float | None


class _LiveRun(msgspec.Struct, frozen=True):
    policy: str
    seed: int
    latency_s: _Latency
    per_query: list[_LiveQuery]
    warmup_s: float
    seconds: float
    steady: bool
    chosen: str | None = None


class _LiveSettings(msgspec.Struct, frozen=True):
    cores: int
    start_wait_s: float
    drain_s: float


class _LiveFile(msgspec.Struct, frozen=True):
    """What a prediction needs of a result of `slackwater bench`; other keys are left alone."""

    queries: int
    rate: float
    window_s: float
    delay_s: float
    phases: str
    settings: _LiveSettings
    runs: list[_LiveRun]
    slide_s: float | None = None


def run(trace_file: Path | None, against: Sequence[Path], seed: int, options: Options) -> Experiment:
    """Calibrate from the first run of a trace, predict every run of the results."""
    if options != Options():
        raise ConfigurationError(f"{NAME} takes --trace, --against, --seed and --json; leave the others out.")
    if trace_file is None or not against:
        raise ConfigurationError(
            f"{NAME} needs a recording and live results: slackwater sim {NAME} --trace FILE --against RESULT.json…"
        )
    trace = read_trace(trace_file).runs[0]
    calibration = calibrate(trace)
    rows = [row for path in against for row in _rows(calibration, _read_result(path), seed)]
    return Experiment(NAME, seed, rows, list(_claims(rows)), assumptions=_assumptions(trace, calibration))


def _read_result(path: Path) -> _LiveFile:
    advice = "Give files that `slackwater bench ysb --json FILE` wrote."
    try:
        return msgspec.json.decode(path.read_bytes(), type=_LiveFile)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}. {advice}") from error
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{path} is not a bench result: {error}. {advice}") from error


def _rows(calibration: Calibration, live: _LiveFile, seed: int) -> Iterator[dict[str, object]]:
    if live.settings.cores != calibration.cores:
        raise ConfigurationError(
            f"the trace was recorded on {calibration.cores} cores, and a result on {live.settings.cores}: how batches "
            "slow each other there is not known. Record a trace on as many."
        )
    seen = set()
    for found in live.runs:
        policy = found.chosen or found.policy
        # spark-tuned stands in the file twice: as the best of its sweep, and by its own name.
        if found.latency_s.mean is None or found.latency_s.p99 is None or (policy, found.seed) in seen:
            continue
        seen.add((policy, found.seed))
        queries = [
            TracedQuery(
                name=query.name,
                phase_ms=query.phase_ms,
                rate=live.rate,
                window_s=live.window_s,
                delay_s=live.delay_s,
                interval_s=query.interval_s,
                slide_s=live.slide_s,
            )
            for query in found.per_query
        ]
        settings = live.settings
        protocol = Protocol(settings.start_wait_s, found.warmup_s, found.seconds, settings.drain_s)
        predicted = simulate(calibration, queries, policy, seed=seed + found.seed, protocol=protocol)
        yield {
            "policy": policy,
            "queries": len(queries),
            "phases": live.phases,
            "seed": found.seed,
            "steady": found.steady,
            "live_mean_s": round(found.latency_s.mean, 2),
            "live_p99_s": round(found.latency_s.p99, 2),
            "simulated_mean_s": round(predicted.mean_s, 2),
            "simulated_p99_s": round(predicted.p99_s, 2),
            "error_pct": round(100 * (predicted.mean_s / found.latency_s.mean - 1), 1),
        }


def _claims(rows: Iterable[dict[str, object]]) -> Iterator[Claim]:
    for row in rows:
        text = f"{row['policy']}, {row['queries']} queries, {row['phases']}, seed {row['seed']}: error of the mean"
        yield claim(text, abs(float(str(row["error_pct"]))) / 100, "≤", LARGEST_ERROR)


def _assumptions(trace: RunTrace, found: Calibration) -> list[str]:
    costs = (
        f"a batch alone takes {found.batch_cost_s:.3f} s + {1e6 * found.row_cost_s:.2f} µs a row, without rows "
        f"{found.empty_cost_s:.3f} s; mean error of a batch's length {100 * found.error:.0f} %"
    )
    company = (
        f"{100 * found.cpu_share:.0f} % of a batch computes, on {found.cpu_demand:.2f} cores, of which "
        f"{100 * found.task_share:.0f} % in tasks; {found.background_cores:.2f} cores are busy besides; with all cores "
        f"busy computing takes {100 * found.crowding:.0f} % longer; a grant takes {1000 * found.grant_delay_s:.0f} ms"
    )
    return [
        f"calibrated from {len(trace.batches)} batches of {trace.policy} with {len(trace.queries)} queries",
        costs,
        company,
        "every query costs the same, and a batch's cost does not depend on how many queries there are",
        "when in a second a query's source offers its rows is drawn by the seed; results do not tell it",
        "first batches are as fast as later ones; queries start as far apart as the benchmark waits at most",
    ]
