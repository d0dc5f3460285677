"""How batches that run at once slow each other, and what one would take alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from slackwater.testing import NO_GARBAGE, Garbage, cpu_speed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_LEAST_CORRELATION = 0.5
_LEAST_SAMPLES = 10
_MOST_SAMPLES = 500


class Company:
    """How long each batch ran with how many running at once, itself included."""

    def __init__(self, starts: Floats, ends: Floats) -> None:
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


def speeds_of(
    most: int,
    share: float,
    demand: float,
    background: float,
    crowding: float,
    cores: float,
    garbage: Garbage = NO_GARBAGE,
) -> Floats:
    """How fast each of k batches goes when k run at once, for k = 1 … most, against one alone.

    Batches alternate between waiting, where nobody slows them, and computing, where they share the cores: a closed
    network of a delay and a processor-sharing station, whose product form holds for any distribution of the lengths.
    """
    alone = background + demand

    def speed(computing: int, slower: float) -> float:
        return cpu_speed(background + computing * demand, alone, cores=cores, crowding=crowding) / slower

    found = []
    for k in range(1, most + 1):
        slower = garbage.more(k)
        if share >= 1:
            found.append(speed(k, slower))
            continue
        weight, weights, done = 1.0, [1.0], [0.0]
        for n in range(1, k + 1):
            # One more computes, one fewer waits.
            weight *= (k - n + 1) / (1 - share) * share / (n * speed(n, slower))
            weights.append(weight)
            done.append(n * speed(n, slower) / share)
        found.append(float(np.dot(weights, done) / sum(weights) / k))
    return np.array(found)


def cpu_use(
    company: Company, speeds: Floats, samples: Sequence[tuple[float, float]], from_ts: float, to_ts: float, cpu_s: float
) -> tuple[float, float]:
    """CPU seconds for each second of a batch alone, and the cores that are busy when no batch runs.

    samples: wall time and CPU time so far; cpu_s is what was used from from_ts to to_ts.
    """
    seconds = to_ts - from_ts
    span = company.work_s(speeds, np.array([from_ts, to_ts]))
    work_per_s, cpu_per_s = float(span[1] - span[0]) / seconds, cpu_s / seconds
    if work_per_s <= 0:
        return 1.0, 0.0
    known = np.array([sample for sample in samples if from_ts <= sample[0] <= to_ts], dtype=np.float64)
    background = 0.0
    if len(known) > _LEAST_SAMPLES:
        lengths = np.diff(known[:, 0])
        work = np.diff(company.work_s(speeds, known[:, 0])) / lengths
        used = np.diff(known[:, 1]) / lengths
        # Both are known with errors, so neither is regressed on the other. On cores that are always busy nothing tells
        # the background apart.
        if np.ptp(work) > 0 and np.ptp(used) > 0 and np.corrcoef(work, used)[0, 1] > _LEAST_CORRELATION:
            background = cpu_per_s - float(np.std(used) / np.std(work)) * work_per_s
    background = min(max(0.0, background), cpu_per_s / 2)
    return (cpu_per_s - background) / work_per_s, background


def median_slope(x: Floats, y: Floats) -> float:
    """The median slope over pairs that lie apart by a quarter of the range at least (Theil and Sen)."""
    stride = max(1, len(x) // _MOST_SAMPLES)
    x, y = x[::stride], y[::stride]
    first, second = np.triu_indices(len(x), 1)
    dx, dy = x[second] - x[first], y[second] - y[first]
    apart = (np.abs(dx) >= np.ptp(x) / 4) & (dx != 0)
    return float(np.median(dy[apart] / dx[apart])) if apart.any() else 0.0
