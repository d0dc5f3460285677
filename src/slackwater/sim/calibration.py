"""What a recorded run tells: what a batch costs, and how batches that run at once slow each other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from slackwater.errors import ConfigurationError
from slackwater.testing import cpu_speed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from slackwater.sim.trace import RunTrace, TracedBatch

    Floats = NDArray[np.float64]

_FACTORS = 50
_FITS = 7
_MOST_CROWDING = 0.6
_ALIKE = 1.02
_ROUNDS = 2
_LEAST_CORRELATION = 0.5
_MOST_SAMPLES = 500
_RATE_STEP_S = 1.0
_STEP_TOLERANCE_S = 0.025
_SAME_TURN_S = 0.15
_TASKS_OF_ADD_BATCH = 0.6  # what is left of it is planning and committing, in the driver
_TASK_SHARE = 0.4  # where a trace does not tell how long addBatch took


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
    task_share: float = _TASK_SHARE
    background_cores: float = 0.0
    crowding: float = 0.0
    grant_delay_s: float = 0.0
    step_s: float | None = _RATE_STEP_S
    lag_s: float = 0.0
    factors: tuple[float, ...] = ()
    error: float = 0.0


@dataclass(frozen=True)
class _Costs:
    """a + b·rows for batches with rows, one figure for those without."""

    batch_s: float
    row_s: float
    empty_s: float

    def alone_s(self, rows: Floats) -> Floats:
        found: Floats = np.where(rows > 0, self.batch_s + self.row_s * rows, self.empty_s)
        return found


@dataclass(frozen=True)
class _Fit:
    """One way to explain the batches' lengths, and by how much it is off."""

    error: float
    crowding: float
    share: float
    demand: float
    background: float
    costs: _Costs
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
    company = _Company(batches)
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
                speeds = _speeds(most, float(share), use / share, background, float(crowding), trace.cores)
                costs = _costs(rows, company.seconds @ speeds)
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
        task_share=_task_share(batches),
        background_cores=fit.background,
        crowding=fit.crowding,
        grant_delay_s=_grant_delay_s(trace, batches),
        step_s=_step_s(trace),
        lag_s=_lag_s(batches),
        factors=_factors(company.seconds @ fit.speeds / fit.costs.alone_s(rows)),
        error=fit.error,
    )


class _Company:
    """How long each batch ran with how many running at once, itself included."""

    def __init__(self, batches: Sequence[TracedBatch]) -> None:
        starts = np.array([batch.start_ms for batch in batches], dtype=np.float64) / 1000
        ends = starts + np.array([max(1, batch.duration_ms) for batch in batches]) / 1000
        self.edges = np.unique(np.concatenate([starts, ends]))
        running = (starts[:, None] <= self.edges[None, :-1]) & (ends[:, None] > self.edges[None, :-1])
        self.counts = running.sum(axis=0)
        lengths = np.diff(self.edges)
        self.seconds = np.column_stack(
            [running @ (lengths * (self.counts == k)) for k in range(1, int(self.counts.max()) + 1)]
        )

    def work_s(self, speeds: Floats, wall_ts: Floats) -> Floats:
        """Seconds of batches alone that were done by each of these times."""
        rates = np.concatenate([[0.0], speeds])[self.counts] * self.counts
        done = np.concatenate([[0.0], np.cumsum(rates * np.diff(self.edges))])
        found: Floats = np.interp(wall_ts, self.edges, done)
        return found


def _speeds(most: int, share: float, demand: float, background: float, crowding: float, cores: int) -> Floats:
    """How fast each of k batches goes when k run at once, for k = 1 … most, against one alone.

    Batches alternate between waiting, where nobody slows them, and computing, where they share the cores: a closed
    network of a delay and a processor-sharing station, whose product form holds for any distribution of the lengths.
    """
    alone = background + demand

    def speed(computing: int) -> float:
        return cpu_speed(background + computing * demand, alone, cores=cores, crowding=crowding)

    found = []
    for k in range(1, most + 1):
        if share >= 1:
            found.append(speed(k))
            continue
        weight, weights, done = 1.0, [1.0], [0.0]
        for n in range(1, k + 1):
            # One more computes, one fewer waits.
            weight *= (k - n + 1) / (1 - share) * share / (n * speed(n))
            weights.append(weight)
            done.append(n * speed(n) / share)
        found.append(float(np.dot(weights, done) / sum(weights) / k))
    return np.array(found)


def _cpu_use(trace: RunTrace, company: _Company, speeds: Floats) -> tuple[float, float]:
    """CPU seconds for each second of a batch alone, and the cores that are busy when no batch runs."""
    seconds = (trace.to_ms - trace.from_ms) / 1000
    span = company.work_s(speeds, np.array([trace.from_ms, trace.to_ms]) / 1000)
    work_per_s, cpu_per_s = float(span[1] - span[0]) / seconds, trace.cpu_s / seconds
    samples = np.array([sample for sample in trace.cpu if trace.from_ms <= sample[0] <= trace.to_ms], dtype=np.float64)
    background = 0.0
    if len(samples) > 10:
        lengths = np.diff(samples[:, 0]) / 1000
        work = np.diff(company.work_s(speeds, samples[:, 0] / 1000)) / lengths
        used = np.diff(samples[:, 1]) / lengths
        # Both are known with errors, so neither is regressed on the other. On cores that are always busy nothing tells
        # the background apart.
        if np.ptp(work) > 0 and np.ptp(used) > 0 and np.corrcoef(work, used)[0, 1] > _LEAST_CORRELATION:
            background = cpu_per_s - float(np.std(used) / np.std(work)) * work_per_s
    background = min(max(0.0, background), cpu_per_s / 2)
    return (cpu_per_s - background) / work_per_s, background


def _costs(rows: Floats, alone_s: Floats) -> _Costs:
    """A median line through the batches with rows (Theil and Sen), and the median of those without."""
    with_rows = rows > 0
    n, t = rows[with_rows], alone_s[with_rows]
    empty_s = float(np.median(alone_s[~with_rows])) if (~with_rows).any() else None
    if np.ptp(n) >= np.median(n) / 10:
        row_s = max(0.0, _slope(n, t))
    else:
        # All alike: where the line starts is known from the empty ones alone.
        row_s = max(0.0, float((np.median(t) - empty_s) / np.median(n))) if empty_s is not None else 0.0
    batch_s = max(float(np.min(t)) / 2, float(np.median(t - row_s * n)))
    return _Costs(batch_s, row_s, batch_s if empty_s is None else empty_s)


def _slope(x: Floats, y: Floats) -> float:
    """The median slope over pairs that lie apart by a quarter of the range at least."""
    stride = max(1, len(x) // _MOST_SAMPLES)
    x, y = x[::stride], y[::stride]
    first, second = np.triu_indices(len(x), 1)
    dx, dy = x[second] - x[first], y[second] - y[first]
    apart = (np.abs(dx) >= np.ptp(x) / 4) & (dx != 0)
    return float(np.median(dy[apart] / dx[apart])) if apart.any() else 0.0


def _factors(ratios: Floats) -> tuple[float, ...]:
    places = (np.arange(_FACTORS) + 0.5) / _FACTORS
    return tuple(round(float(factor), 4) for factor in np.quantile(ratios, places))


def _task_share(batches: Iterable[TracedBatch]) -> float:
    told = [batch for batch in batches if "addBatch" in batch.parts_ms and batch.duration_ms > 0]
    if not told:
        return _TASK_SHARE
    share = float(np.median([batch.parts_ms["addBatch"] / batch.duration_ms for batch in told]))
    return _TASKS_OF_ADD_BATCH * min(1.0, share)


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
