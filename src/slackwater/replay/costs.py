"""What a batch of each query costs, read off a trace: alone on the cores, and how those that run at once slow it.

A batch's length is the time that it would take alone, stretched by its company. How much CPU time a second of batches
takes, and how much is used besides, follows from the samples of CPU time. How much of a batch computes, and how much
the cores hinder each other, is what makes the lengths of batches with more and with less company agree best with one
line a + b·rows for each query. Queries of the same shape lend each other what one alone has too few batches to tell.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from slackwater.errors import ConfigurationError
from slackwater.replay.company import Company, cpu_use, median_slope, speeds_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from slackwater.recording.reading import Trace, TracedQuery
    from slackwater.recording.records import Batch

    Floats = NDArray[np.float64]

_FACTORS = 50
_FITS = 5
_MOST_CROWDING = 0.6
_ALIKE = 1.02
_ROUNDS = 2
_MOST_BATCHES = 1500
_COLD_BATCHES = 2  # of a query: they compile code
_ENOUGH = 20
_SHRINK = 8
_CROWD = 2
_LEAST_CAPACITY = 0.2
_LEAST_PAIRS = 5
_SAME_SPELL_S = 0.5
_SAME_TURN_S = 0.15
_TASKS_OF_ADD_BATCH = 0.6  # what is left of it is planning and committing, in the driver
_TASK_SHARE = 0.4  # where a trace does not tell how long addBatch took
_PACE_BIN_S = 10.0
_PACE_FLOOR = 1.15
_LEAST_PACE_BATCHES = 3


@dataclass(frozen=True)
class QueryCost:
    """a + b·rows for a batch with rows, one figure for one without; alone on the cores."""

    batch_s: float
    row_s: float
    empty_s: float

    def alone_s(self, rows: Floats) -> Floats:
        found: Floats = np.where(rows > 0, self.batch_s + self.row_s * rows, self.empty_s)
        return found

    def scaled(self, times: float) -> QueryCost:
        return QueryCost(self.batch_s * times, self.row_s * times, self.empty_s * times)


@dataclass(frozen=True)
class Costs:
    """All that a trace tells of its machine and of what its queries cost; words as in `slackwater.testing`.

    capacity_cores: what the queries got of the cores, where others on the host took the rest.
    error: how far the model is from the recorded batches' lengths, as a mean share.
    pace: spans (from, to, times) in which batches took longer than later, as while code is compiled.
    """

    cores: int
    capacity_cores: float
    queries: Mapping[str, QueryCost]
    cpu_share: float
    cpu_demand: float
    task_share: float
    background_cores: float
    crowding: float
    grant_delay_s: float
    factors: tuple[float, ...]
    error: float
    pace: tuple[tuple[float, float, float], ...] = ()

    def pace_at(self, wall_ts: float) -> float:
        return next((times for begin, end, times in self.pace if begin <= wall_ts < end), 1.0)


@dataclass(frozen=True)
class _Sample:
    """The batches that costs are learnt from, as columns."""

    company: Company
    rows: Floats
    owners: tuple[str, ...]
    telling: NDArray[np.bool_]

    def alone_s(self, speeds: Floats) -> Floats:
        found: Floats = np.maximum(1e-4, self.company.seconds @ speeds)
        return found


def costs_of(trace: Trace, from_ts: float, to_ts: float) -> Costs:
    """Fit the model to the batches that ran within a span. Raises ConfigurationError where none had rows."""
    found = _newest(trace, from_ts, to_ts)
    if not any(batch.rows for _, batch in found):
        raise ConfigurationError(
            "the trace has no batch with rows in the span to be replayed, so nothing tells what they cost. Record for "
            "longer, while queries have data, or name another span."
        )
    from_ts = max(from_ts, min(batch.began_wall_ts for _, batch in found))
    sample = _sample(found, {query.about.key: query for query in trace.queries})
    shapes = {query.about.key: _shape(query) for query in trace.queries}
    cpu = [(host.wall_ts, host.cpu_s) for host in trace.hosts if host.cpu_s is not None]
    capacity = _capacity(sample.company, cpu, from_ts, to_ts, trace.cores)
    fit = _fit(sample, shapes, _row_shares(trace), cpu, from_ts, to_ts, capacity)
    ratios = sample.alone_s(fit.speeds) / _predicted(sample, fit.queries)
    every = {query.about.key: fit.queries.get(query.about.key, fit.usual) for query in trace.queries}
    return Costs(
        cores=trace.cores,
        capacity_cores=capacity,
        queries=every,
        cpu_share=fit.share,
        cpu_demand=fit.demand,
        task_share=_task_share(batch for _, batch in found),
        background_cores=fit.background,
        crowding=fit.crowding,
        grant_delay_s=_grant_delay_s(trace.queries),
        factors=_quantiles(ratios[sample.telling]),
        error=fit.error,
        pace=_pace(trace, every, fit.speeds, from_ts),
    )


@dataclass(frozen=True)
class _Fit:
    """One way to explain the batches' lengths, and by how much it is off."""

    error: float
    crowding: float
    share: float
    demand: float
    background: float
    queries: Mapping[str, QueryCost]
    usual: QueryCost
    speeds: Floats


def _fit(
    sample: _Sample,
    shapes: Mapping[str, object],
    row_shares: Mapping[object, float],
    cpu: Sequence[tuple[float, float]],
    from_ts: float,
    to_ts: float,
    cores: float,
) -> _Fit:
    most = sample.company.seconds.shape[1]
    speeds = np.array([min(1.0, cores / k) for k in range(1, most + 1)])
    use, background = _use(sample.company, speeds, cpu, from_ts, to_ts)
    best: _Fit | None = None
    for _ in range(_ROUNDS):
        least = min(1.0, use / max(1.0, cores - background))
        fits = []
        for crowding in np.linspace(0.0, _MOST_CROWDING, _FITS):
            for share in np.linspace(max(least, min(1.0, use)), least, _FITS):
                speeds = speeds_of(most, float(share), use / share, background, float(crowding), cores)
                queries, usual = _lines(sample, sample.alone_s(speeds), shapes, row_shares)
                ratios = sample.alone_s(speeds) / _predicted(sample, queries)
                error = float(np.mean(np.abs(np.log(ratios[sample.telling]))))
                fits.append(_Fit(error, float(crowding), float(share), use / share, background, queries, usual, speeds))
        # Where several explain the lengths about alike, the simplest does: least crowding, most of it computing.
        least_error = min(fit.error for fit in fits)
        best = next(fit for fit in fits if fit.error <= _ALIKE * least_error)
        use, background = _use(sample.company, best.speeds, cpu, from_ts, to_ts)
    assert best is not None  # noqa: S101  # there is at least one round
    return best


def _capacity(company: Company, cpu: Sequence[tuple[float, float]], from_ts: float, to_ts: float, cores: int) -> float:
    """All cores, unless more batches ran than there are cores and still left some unused: then others had those."""
    inside = [sample for sample in cpu if from_ts <= sample[0] <= to_ts]
    lengths = np.diff(company.edges)
    abreast = float(np.dot(company.counts, lengths) / max(1e-9, lengths.sum()))
    if len(inside) < _ENOUGH or abreast < _CROWD * cores:
        return float(cores)
    at, used = np.array(inside).T
    busy = np.diff(used) / np.maximum(1e-3, np.diff(at))
    return float(min(cores, max(_LEAST_CAPACITY, np.quantile(busy, 0.75))))


def _newest(trace: Trace, from_ts: float, to_ts: float) -> list[tuple[str, Batch]]:
    """The last batches of a span, all queries', in order of time: how they ran beside each other must be whole."""
    found = [
        (query.about.key, batch)
        for query in trace.queries
        for batch in query.batches
        if batch.ended_wall_ts > from_ts and batch.began_wall_ts < to_ts and batch.duration_s > 0
    ]
    found.sort(key=lambda one: one[1].began_wall_ts)
    return found[-_MOST_BATCHES:]


def _sample(found: Sequence[tuple[str, Batch]], queries: Mapping[str, TracedQuery]) -> _Sample:
    first = {
        key: query.batches[min(_COLD_BATCHES, len(query.batches)) - 1]
        for key, query in queries.items()
        if query.batches
    }
    telling = [batch.offsets_wall_ts > first[key].offsets_wall_ts for key, batch in found]
    starts = np.array([batch.began_wall_ts for _, batch in found])
    ends = starts + np.array([max(0.001, batch.duration_s) for _, batch in found])
    return _Sample(
        company=Company(starts, ends),
        rows=np.array([batch.rows for _, batch in found], dtype=np.float64),
        owners=tuple(key for key, _ in found),
        # Where nobody is warm yet, the cold ones must do.
        telling=np.array(telling) if any(telling) else np.full(len(found), fill_value=True),
    )


def _shape(query: TracedQuery) -> object:
    """Queries that look alike in their plans, as far as a trace tells."""
    about = query.about
    sizes = tuple((size, slide) for size, slide, _ in about.windows)
    return sizes, about.input_delays_s, about.stateful, about.emits_at_sweep


def _use(
    company: Company, speeds: Floats, cpu: Sequence[tuple[float, float]], from_ts: float, to_ts: float
) -> tuple[float, float]:
    """One core a batch where nobody told how much CPU time was used."""
    inside = [sample for sample in cpu if from_ts <= sample[0] <= to_ts]
    if len(inside) < 2 or inside[-1][1] <= inside[0][1]:
        return 1.0, 0.0
    first, last = inside[0], inside[-1]
    return cpu_use(company, speeds, inside, first[0], last[0], last[1] - first[1])


def _lines(
    sample: _Sample, alone_s: Floats, shapes: Mapping[str, object], row_shares: Mapping[object, float]
) -> tuple[dict[str, QueryCost], QueryCost]:
    """A line for each query; for one without batches, the usual one."""
    owners = np.array(sample.owners)
    keys = sorted(set(sample.owners))
    groups: dict[object, list[str]] = defaultdict(list)
    for key in keys:
        groups[shapes[key]].append(key)
    most_row_s = _most_row_s(sample, alone_s, sample.telling, max(row_shares.values(), default=None))
    usual = _line(sample.rows[sample.telling], alone_s[sample.telling], None, most_row_s)
    found = {}
    for shape, members in groups.items():
        inside = np.isin(owners, members) & sample.telling
        most_row_s = _most_row_s(sample, alone_s, inside, row_shares.get(shape))
        shared = _line(sample.rows[inside], alone_s[inside], usual, most_row_s) if inside.any() else usual
        for key in members:
            own = (owners == key) & sample.telling
            found[key] = _own_line(sample.rows[own], alone_s[own], shared, most_row_s)
    return found, usual


def _row_shares(trace: Trace) -> dict[object, float]:
    """The most that a row can cost, as a share of a usual batch, for queries of each shape; none where nothing tells.

    As soon as a batch is over the next one takes what came meanwhile, so a slow spell makes batches long and large, and
    a line through them too steep. Two things are slowed alike: a batch without rows right behind one with rows, and the
    parts of a batch that have nothing to do with rows (planning, logs). What differs from them is the rows' doing.
    """
    pairs: dict[object, list[float]] = defaultdict(list)
    parts: dict[object, list[tuple[float, float, float]]] = defaultdict(list)
    for query in trace.queries:
        shape = _shape(query)
        for before, after in pairwise(query.batches[_COLD_BATCHES:]):
            if before.rows > 0 and after.rows == 0 and after.began_wall_ts - before.ended_wall_ts < _SAME_SPELL_S:
                pairs[shape].append((1 - after.duration_s / before.duration_s) / before.rows)
        parts[shape] += [
            (batch.rows, batch.parts_ms["addBatch"] / 1000, batch.duration_s)
            for batch in query.batches[_COLD_BATCHES:]
            if batch.rows > 0 and 0 < batch.parts_ms.get("addBatch", 0) / 1000 < batch.duration_s
        ]
    found = {shape: max(0.0, float(np.median(told))) for shape, told in pairs.items() if len(told) >= _LEAST_PAIRS}
    for shape, told in parts.items():
        if shape not in found and len(told) >= _ENOUGH:
            rows, adding_s, whole_s = np.array(told).T
            others_s = whole_s - adding_s
            slope = max(0.0, median_slope(rows, adding_s / others_s))
            found[shape] = slope * float(np.median(others_s)) / float(np.median(whole_s))
    return found


def _most_row_s(sample: _Sample, alone_s: Floats, inside: NDArray[np.bool_], share: float | None) -> float:
    """What a row costs at most; where nothing tells, as if half of a batch were its rows'."""
    with_rows = inside & (sample.rows > 0)
    if not with_rows.any():
        return 0.0
    usual_s = float(np.median(alone_s[with_rows]))
    return usual_s * (share if share is not None else 1 / (2 * float(np.median(sample.rows[with_rows]))))


def _line(rows: Floats, alone_s: Floats, usual: QueryCost | None, most_row_s: float) -> QueryCost:
    """A median line through the batches with rows, and the median of those without."""
    with_rows = rows > 0
    n, t = rows[with_rows], alone_s[with_rows]
    empty_s = float(np.median(alone_s[~with_rows])) if (~with_rows).any() else None
    if not len(n):
        if usual is not None:
            return QueryCost(usual.batch_s, usual.row_s, usual.empty_s if empty_s is None else empty_s)
        return QueryCost(empty_s or 0.1, 0.0, empty_s or 0.1)
    if np.ptp(n) >= np.median(n) / 10:
        row_s = max(0.0, median_slope(n, t))
    else:
        # All alike: where the line starts is known from the empty ones alone.
        row_s = max(0.0, float((np.median(t) - empty_s) / np.median(n))) if empty_s is not None else 0.0
    row_s = min(row_s, most_row_s)
    batch_s = max(float(np.min(t)) / 2, float(np.median(t - row_s * n)))
    return QueryCost(batch_s, row_s, batch_s if empty_s is None else empty_s)


def _own_line(rows: Floats, alone_s: Floats, shared: QueryCost, most_row_s: float) -> QueryCost:
    """A query's own line as far as it has enough batches; the less it has, the more those of its shape count."""
    with_rows = rows > 0
    row_s = shared.row_s
    if with_rows.sum() >= _ENOUGH and np.ptp(rows[with_rows]) >= np.median(rows[with_rows]):
        row_s = min(most_row_s, max(0.0, median_slope(rows[with_rows], alone_s[with_rows])))
    batch_s = _shrunk(alone_s[with_rows] - row_s * rows[with_rows], shared.batch_s)
    return QueryCost(max(shared.batch_s / 10, batch_s), row_s, _shrunk(alone_s[~with_rows], shared.empty_s))


def _shrunk(own: Floats, shared: float) -> float:
    if not len(own):
        return shared
    weight = len(own) / (len(own) + _SHRINK)
    return weight * float(np.median(own)) + (1 - weight) * shared


def _predicted(sample: _Sample, queries: Mapping[str, QueryCost]) -> Floats:
    batch, row, empty = (
        np.array([getattr(queries[key], name) for key in sample.owners]) for name in ("batch_s", "row_s", "empty_s")
    )
    found: Floats = np.maximum(1e-4, np.where(sample.rows > 0, batch + row * sample.rows, empty))
    return found


def _quantiles(ratios: Floats) -> tuple[float, ...]:
    places = (np.arange(_FACTORS) + 0.5) / _FACTORS
    return tuple(round(float(factor), 4) for factor in np.quantile(ratios, places))


def _task_share(batches: Iterable[Batch]) -> float:
    told = [batch for batch in batches if "addBatch" in batch.parts_ms and batch.duration_s > 0]
    if not told:
        return _TASK_SHARE
    share = float(np.median([batch.parts_ms["addBatch"] / 1000 / batch.duration_s for batch in told]))
    return _TASKS_OF_ADD_BATCH * min(1.0, share)


def _grant_delay_s(queries: Iterable[TracedQuery]) -> float:
    """From the end of a batch to the start of the sweep that was granted behind it; 0 where nobody granted any."""
    gaps = [
        after.began_wall_ts - before.ended_wall_ts
        for query in queries
        for before, after in pairwise(query.batches)
        if after.stage == "sweep batch"
    ]
    near = [gap for gap in gaps if 0 <= gap < _SAME_TURN_S]
    return float(np.median(near)) if near else 0.0


def _pace(
    trace: Trace, queries: Mapping[str, QueryCost], speeds: Floats, until_ts: float
) -> tuple[tuple[float, float, float], ...]:
    """How much slower batches were before the span that costs were learnt from: a cold JVM is."""
    before = [
        (query.about.key, batch)
        for query in trace.queries
        for batch in query.batches
        if batch.ended_wall_ts <= until_ts and batch.duration_s > 0
    ][:_MOST_BATCHES]
    if not before:
        return ()
    starts = np.array([batch.began_wall_ts for _, batch in before])
    ends = starts + np.array([max(0.001, batch.duration_s) for _, batch in before])
    seconds = Company(starts, ends).seconds
    # More at once than the fit has seen: each goes as fast as the cores allow.
    extra = [speeds[-1] * len(speeds) / k for k in range(len(speeds) + 1, seconds.shape[1] + 1)]
    alone_s = seconds @ np.concatenate([speeds, extra])[: seconds.shape[1]]
    ratios = [
        taken / float(queries[key].alone_s(np.array([batch.rows], dtype=np.float64))[0])
        for taken, (key, batch) in zip(alone_s, before, strict=True)
    ]
    found = []
    for begin in np.arange(trace.from_wall_ts, until_ts, _PACE_BIN_S):
        inside = [ratio for ratio, start in zip(ratios, starts, strict=True) if begin <= start < begin + _PACE_BIN_S]
        if len(inside) >= _LEAST_PACE_BATCHES and (times := float(np.median(inside))) > _PACE_FLOOR:
            found.append((float(begin), float(min(begin + _PACE_BIN_S, until_ts)), round(min(times, 10.0), 3)))
    return tuple(found)
