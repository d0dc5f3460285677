"""What a recorded run tells: what a batch costs, and how batches that run at once slow each other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from slackwater.errors import ConfigurationError
from slackwater.replay.company import Company, cpu_use, speeds_of
from slackwater.replay.lines import TASK_SHARE, QueryCost, factors_of, median_line, task_share

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from slackwater.sim.trace import RunTrace, TracedBatch

    Floats = NDArray[np.float64]

_FITS = 7
_MOST_CROWDING = 0.6
_ALIKE = 1.02
_ROUNDS = 2
_RATE_STEP_S = 1.0
_STEP_TOLERANCE_S = 0.025
_SAME_TURN_S = 0.15


@dataclass(frozen=True)
class Calibration:
    """What a run tells of its machine and its queries; the words are those of `SimulatedQuery` and `ScriptedDriver`.

    error: how far the model is from the recorded batches' lengths, as a mean share.
    """

    cores: int
    batch_cost_s: float
    row_cost_s: float
    empty_cost_s: float
    cpu_share: float = 1.0
    cpu_demand: float = 1.0
    task_share: float = TASK_SHARE
    background_cores: float = 0.0
    crowding: float = 0.0
    grant_delay_s: float = 0.0
    step_s: float | None = _RATE_STEP_S
    lag_s: float = 0.0
    factors: tuple[float, ...] = ()
    error: float = 0.0


@dataclass(frozen=True)
class _Fit:
    """One way to explain the batches' lengths, and by how much it is off."""

    error: float
    crowding: float
    share: float
    demand: float
    background: float
    costs: QueryCost
    speeds: Floats


def calibrate(trace: RunTrace) -> Calibration:
    """Fit the model to a recorded run.

    A batch's length is the time that it would take alone, stretched by those that ran beside it. How much CPU time a
    second of batches takes, and how much is used besides, follows from the samples of CPU time. How much of a batch
    computes, and how much the cores hinder each other, is what makes the lengths of batches with and without company
    agree best with one cost for all of them.
    """
    batches = sorted(trace.batches, key=lambda batch: batch.start_ms)
    if not any(batch.rows for batch in batches):
        raise ConfigurationError(f"the trace of {trace.policy} has no batch with rows: nothing to calibrate from.")
    company = _company(batches)
    rows = np.array([batch.rows for batch in batches], dtype=np.float64)
    most = company.seconds.shape[1]
    speeds = np.array([min(1.0, trace.cores / k) for k in range(1, most + 1)])
    use, background = _cpu_use(trace, company, speeds)
    for _ in range(_ROUNDS):
        free = max(1.0, trace.cores - background)
        least = min(1.0, use / free)
        shares = np.linspace(max(least, min(1.0, use)), least, _FITS)
        fits = []
        for crowding in np.linspace(0.0, _MOST_CROWDING, _FITS):
            for share in shares:
                speeds = speeds_of(most, float(share), use / share, background, float(crowding), trace.cores)
                costs = median_line(rows, company.seconds @ speeds)
                error = float(np.mean(np.abs(np.log(company.seconds @ speeds / costs.alone_s(rows)))))
                fits.append(_Fit(error, float(crowding), float(share), use / share, background, costs, speeds))
        # Where several explain the lengths about alike, the simplest does: least crowding, most of it computing.
        best = min(fit.error for fit in fits)
        fit = next(fit for fit in fits if fit.error <= _ALIKE * best)
        use, background = _cpu_use(trace, company, fit.speeds)
    return Calibration(
        cores=trace.cores,
        batch_cost_s=fit.costs.batch_s,
        row_cost_s=fit.costs.row_s,
        empty_cost_s=fit.costs.empty_s,
        cpu_share=fit.share,
        cpu_demand=fit.demand,
        task_share=task_share(
            [b.parts_ms["addBatch"] / b.duration_ms for b in batches if "addBatch" in b.parts_ms and b.duration_ms > 0]
        ),
        background_cores=fit.background,
        crowding=fit.crowding,
        grant_delay_s=_grant_delay_s(trace, batches),
        step_s=_step_s(trace),
        lag_s=_lag_s(batches),
        factors=factors_of(company.seconds @ fit.speeds / fit.costs.alone_s(rows)),
        error=fit.error,
    )


def _company(batches: Sequence[TracedBatch]) -> Company:
    starts = np.array([batch.start_ms for batch in batches], dtype=np.float64) / 1000
    return Company(starts, starts + np.array([max(1, batch.duration_ms) for batch in batches]) / 1000)


def _cpu_use(trace: RunTrace, company: Company, speeds: Floats) -> tuple[float, float]:
    samples = [(wall_ms / 1000, cpu_s) for wall_ms, cpu_s in trace.cpu]
    return cpu_use(company, speeds, samples, trace.from_ms / 1000, trace.to_ms / 1000, trace.cpu_s)


def _by_query(batches: Iterable[TracedBatch]) -> dict[str, list[TracedBatch]]:
    found: dict[str, list[TracedBatch]] = {}
    for batch in batches:
        found.setdefault(batch.query, []).append(batch)
    return found


def _grant_delay_s(trace: RunTrace, batches: Iterable[TracedBatch]) -> float:
    """From the end of a batch to the start of the next one of the same turn; 0 where nobody grants."""
    if trace.lanes is None:
        return 0.0
    gaps = [
        (after.start_ms - before.start_ms - before.duration_ms) / 1000
        for found in _by_query(batches).values()
        for before, after in pairwise(found)
    ]
    near = [gap for gap in gaps if 0 <= gap < _SAME_TURN_S]
    return float(np.median(near)) if near else 0.0


def _step_s(trace: RunTrace) -> float | None:
    """Whether rows come a second at a time, as from Spark's rate source: then all maxima end at one place in it."""
    for found in _by_query(trace.batches).values():
        places = np.array([b.event_max_ms for b in found if b.event_max_ms is not None], dtype=np.float64) / 1000
        if len(places) > 1:
            off = (places - places[0] + _RATE_STEP_S / 2) % _RATE_STEP_S - _RATE_STEP_S / 2
            if float(np.quantile(np.abs(off), 0.9)) > _STEP_TOLERANCE_S:
                return None
    return _RATE_STEP_S


def _lag_s(batches: Iterable[TracedBatch]) -> float:
    """How soon after its event time a row was read at the soonest: it cannot take longer to be readable."""
    ages = [(b.start_ms - b.event_max_ms) / 1000 for b in batches if b.event_max_ms is not None]
    return max(0.0, min(ages, default=0.0))
