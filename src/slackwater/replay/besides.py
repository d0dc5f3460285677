"""What computes besides batches: others on the host, the JVM's compilers, and its collectors.

Compilers take what they take whoever orders the batches: they follow from how long the application has run. Collectors
take more the more batches are under way at once, since what these hold is copied each time. So neither is a batch's own
cost: a policy that runs fewer batches at once, or more in the same time, pays less for each.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from slackwater.testing import NO_GARBAGE, Garbage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slackwater.recording.reading import Trace
    from slackwater.replay.company import Company

_ENOUGH = 20
_CROWD = 1.75
_LEAST_CAPACITY = 0.2
_FULL = 0.95  # of the samples: where cores also rest now and then, only the fullest tell how much could be had
_BIN_S = 10.0
# What a batch holds goes with what it allocates, and so with what it computes; the application itself holds as much as
# batches that compute for so long (decision 16).
_HELD_ALWAYS_S = 1.25
_LEAST_OTHER = 0.2  # of the CPU time: more than the rest went into garbage where a heap is too small for its state


@dataclass(frozen=True)
class Besides:
    """capacity_cores: what the application got of the cores, where others on the host took the rest.

    compiling: what compilers keep busy of it, in steps (since when, cores); compiling_cores: on average.
    Nothing is compiled or collected where the trace does not tell.
    """

    capacity_cores: float
    compiling: tuple[tuple[float, float], ...] = ()
    compiling_cores: float = 0.0
    garbage: Garbage = NO_GARBAGE

    def compiling_at(self, wall_ts: float) -> float:
        place = bisect_right(self.compiling, wall_ts, key=lambda step: step[0])
        return self.compiling[place - 1][1] if place else self.compiling_cores

    @property
    def left_cores(self) -> float:
        """What compilers leave of the capacity, on average."""
        return max(_LEAST_CAPACITY, self.capacity_cores - self.compiling_cores)


def besides(trace: Trace, company: Company, from_ts: float, to_ts: float, own_s: float | None) -> Besides:
    """Read it off the samples of CPU time within a span. own_s: what a batch's thread and tasks compute, on average."""
    hosts = [host for host in trace.hosts if host.cpu_s is not None and from_ts <= host.wall_ts <= to_ts]
    capacity = _capacity(company, [(host.wall_ts, host.cpu_s or 0.0) for host in hosts], trace.cores)
    told = [
        (host.wall_ts, host.cpu_s, host.compiling_cpu_s, host.collecting_cpu_s)
        for host in hosts
        if host.compiling_cpu_s is not None and host.collecting_cpu_s is not None
    ]
    if len(told) < _ENOUGH:
        return Besides(capacity)
    at, cpu_s, compiling_s, collecting_s = np.array(told, dtype=np.float64).T
    edges = np.append(np.arange(at[0], at[-1] - _BIN_S / 2, _BIN_S), at[-1])
    rates = np.diff(np.interp(edges, at, compiling_s)) / np.diff(edges)
    used, compiled, collected = (float(so_far[-1] - so_far[0]) for so_far in (cpu_s, compiling_s, collecting_s))
    other = max(_LEAST_OTHER * used, used - compiled - collected)
    share = max(0.0, collected) / other if other > 0 else 0.0
    return Besides(
        capacity,
        compiling=tuple(
            (round(float(begin), 3), round(float(rate), 4)) for begin, rate in zip(edges, rates, strict=False)
        ),
        compiling_cores=compiled / float(at[-1] - at[0]),
        garbage=_garbage(share, _abreast(company, trace.cores), own_s),
    )


def cpu_without_compiling(trace: Trace, found: Besides) -> list[tuple[float, float]]:
    """Samples of when and how much CPU time was used so far; all of it where compiling is not told apart."""
    if not found.compiling:
        return [(host.wall_ts, host.cpu_s) for host in trace.hosts if host.cpu_s is not None]
    return [
        (host.wall_ts, host.cpu_s - host.compiling_cpu_s)
        for host in trace.hosts
        if host.cpu_s is not None and host.compiling_cpu_s is not None
    ]


def _garbage(share: float, abreast: float, own_s: float | None) -> Garbage:
    """With so many batches under way on average, collecting took that share of what all else did."""
    if own_s is None:
        return NO_GARBAGE
    each = own_s / _HELD_ALWAYS_S
    always = share / (1 + each * abreast)
    return Garbage(always, always * each)


def _abreast(company: Company, cores: int) -> float:
    """How many batches were under way while something was computed."""
    weights = np.minimum(company.counts, cores) * np.diff(company.edges)
    return max(1.0, float(np.dot(company.counts, weights) / max(1e-9, weights.sum())))


def _capacity(company: Company, cpu: Sequence[tuple[float, float]], cores: int) -> float:
    """All cores, unless more batches ran than there are cores and still left some unused: then others had those."""
    lengths = np.diff(company.edges)
    abreast = float(np.dot(company.counts, lengths) / max(1e-9, lengths.sum()))
    if len(cpu) < _ENOUGH or abreast < _CROWD * cores:
        return float(cores)
    at, used = np.array(cpu).T
    busy = np.diff(used) / np.maximum(1e-3, np.diff(at))
    return float(min(cores, max(_LEAST_CAPACITY, np.quantile(busy, _FULL))))
