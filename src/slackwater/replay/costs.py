"""What a batch of each query costs, read off a trace: alone on the cores, and how those that run at once slow it.

A batch's length is the time that it would take alone, stretched by its company. How much CPU time a second of batches
takes, and how much is used besides, follows from the samples of CPU time. How much of a batch computes, and how much
the cores hinder each other, is what makes the lengths of batches with more and with less company agree best with one
line a + b·rows for each query. Queries of the same shape lend each other what one alone has too few batches to tell.

Under Spark's own scheduling a batch may spend most of its length waiting for the tasks of others, always the same ones
where pools are served by name. So where a trace tells the CPU time of each batch, that says how batches compare, and
their lengths only say what all of them take together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from slackwater.errors import ConfigurationError
from slackwater.replay.besides import Besides, besides, cpu_without_compiling
from slackwater.replay.company import Company, cpu_use, median_slope, speeds_of
from slackwater.replay.lines import QueryCost, factors_of, median_line, task_share
from slackwater.replay.streams import shape_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from slackwater.recording.reading import Trace, TracedQuery
    from slackwater.recording.records import Batch

    Floats = NDArray[np.float64]

_FITS = 5
_MOST_CROWDING = 0.6
_ALIKE = 1.02
_ROUNDS = 2
_MOST_BATCHES = 1500
_COLD_BATCHES = 2  # of a query: they compile code
_MOSTLY_TOLD = 0.8
_IN_SERIES = 0.5
_ENOUGH = 20
_SHRINK = 8
_LEAST_PAIRS = 5
_SAME_SPELL_S = 0.5
_SAME_TURN_S = 0.15
_PACE_BIN_S = 10.0
_PACE_FLOOR = 1.15
_LEAST_PACE_BATCHES = 3


@dataclass(frozen=True)
class Costs:
    """All that a trace tells of its machine and of what its queries cost; words as in `slackwater.testing`.

    error: how far the model is from the recorded batches' lengths, as a mean share.
    pace: spans (from, to, times) in which batches took longer than later, as while code is compiled.
    by_cpu: batches were compared by their CPU time, so what they take together is known and not to be scaled.
    """

    cores: int
    besides: Besides
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
    by_cpu: bool = False

    def pace_at(self, wall_ts: float) -> float:
        return next((times for begin, end, times in self.pace if begin <= wall_ts < end), 1.0)


@dataclass(frozen=True)
class _Sample:
    """The batches that costs are learnt from, as columns."""

    company: Company
    rows: Floats
    owners: tuple[str, ...]
    telling: NDArray[np.bool_]
    cpu_s: Floats  # NaN where nobody told
    ends_wall_ts: Floats
    from_ts: float
    to_ts: float

    @property
    def ended(self) -> int:
        """Within the span; batches that reach beyond it may be long, and who ran beside them there is not known."""
        return max(1, int(np.sum((self.ends_wall_ts > self.from_ts) & (self.ends_wall_ts <= self.to_ts))))

    def unhindered_s(self, speeds: Floats) -> Floats:
        """By its length, and who ran beside it."""
        found: Floats = np.maximum(1e-4, self.company.seconds @ speeds)
        return found

    @property
    def own_s(self) -> float | None:
        """CPU time of a batch's thread and tasks, on average; None where it is mostly not told."""
        return float(self.cpu_s[np.isfinite(self.cpu_s) & self.telling].mean()) if self.by_cpu else None

    @property
    def by_cpu(self) -> bool:
        """Whether batches are compared by their CPU time rather than by their lengths."""
        return bool(np.isfinite(self.cpu_s)[self.telling].mean() >= _MOSTLY_TOLD)

    def alone_s(self, speeds: Floats) -> Floats:
        """By its CPU time where that is told, and the same for all besides: together, the work done in the span."""
        found = self.unhindered_s(speeds)
        own_s = self.own_s
        if own_s is None:
            return found
        begun, done = self.company.work_s(speeds, np.array([self.from_ts, self.to_ts]))
        mean_s = float(done - begun) / self.ended
        return np.where(
            np.isfinite(self.cpu_s), min(1.0, mean_s / own_s) * self.cpu_s + max(0.0, mean_s - own_s), found
        )


def costs_of(trace: Trace, from_ts: float, to_ts: float) -> Costs:
    """Fit the model to the batches that ran within a span. Raises ConfigurationError where none had rows."""
    found = _newest(trace, from_ts, to_ts)
    if not any(batch.rows for _, batch in found):
        raise ConfigurationError(
            "the trace has no batch with rows in the span to be replayed, so nothing tells what they cost. Record for "
            "longer, while queries have data, or name another span."
        )
    from_ts = max(from_ts, min(batch.began_wall_ts for _, batch in found))
    sample = _sample(found, {query.about.key: query for query in trace.queries}, from_ts, to_ts)
    shapes = {query.about.key: shape_of(query) for query in trace.queries}
    others = besides(trace, sample.company, from_ts, to_ts, sample.own_s)
    fit = _fit(sample, shapes, _row_shares(trace), cpu_without_compiling(trace, others), others)
    ratios = sample.alone_s(fit.speeds) / _predicted(sample, fit.queries)
    every = {query.about.key: fit.queries.get(query.about.key, fit.usual) for query in trace.queries}
    return Costs(
        cores=trace.cores,
        besides=others,
        queries=every,
        cpu_share=fit.share,
        cpu_demand=fit.demand,
        task_share=task_share(
            [
                batch.parts_ms["addBatch"] / 1000 / batch.duration_s
                for _, batch in found
                if "addBatch" in batch.parts_ms and batch.duration_s > 0
            ]
        ),
        background_cores=fit.background,
        crowding=fit.crowding,
        grant_delay_s=_grant_delay_s(trace.queries),
        factors=factors_of(ratios[sample.telling]),
        error=fit.error,
        pace=_pace(trace, every, fit.speeds, from_ts),
        by_cpu=sample.by_cpu,
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
    others: Besides,
) -> _Fit:
    """cpu: what was used so far, without compiling."""
    most, cores, garbage = sample.company.seconds.shape[1], others.left_cores, others.garbage
    more = np.array([garbage.more(k) for k in range(1, most + 1)])
    first = _first_use(sample, cpu)
    speeds = speeds_of(most, min(1.0, first), max(1.0, first), background=0.0, crowding=0.0, cores=cores)
    use, background = _use(sample, speeds, cpu)
    best: _Fit | None = None
    for _ in range(_ROUNDS):
        least = min(1.0, use / max(1.0, cores - background))
        fits = []
        for crowding in np.linspace(0.0, _MOST_CROWDING, _FITS):
            for share in np.linspace(max(least, min(1.0, use)), least, _FITS):
                speeds = speeds_of(most, float(share), use / share, background, float(crowding), cores, garbage)
                queries, usual = _lines(sample, sample.alone_s(speeds), shapes, row_shares)
                ratios = sample.unhindered_s(speeds) / _predicted(sample, queries)
                error = float(np.mean(np.abs(np.log(ratios[sample.telling]))))
                fits.append(_Fit(error, float(crowding), float(share), use / share, background, queries, usual, speeds))
        # Where several explain the lengths about alike, the simplest does: least crowding, most of it computing.
        least_error = min(fit.error for fit in fits)
        best = next(fit for fit in fits if fit.error <= _ALIKE * least_error)
        use, background = _use(sample, best.speeds * more, cpu)
    assert best is not None  # noqa: S101  # there is at least one round
    return best


def _first_use(sample: _Sample, cpu: Sequence[tuple[float, float]]) -> float:
    """CPU seconds for each second of a batch alone, to begin with.

    Where batches have run alone, their lengths decide what it is in the end. Where so many ran at all times that the
    cores were never free, nothing tells: any figure explains the lengths, a greater one by shorter batches that keep
    more cores busy. Then it stays at what is usual for Spark: what a batch's thread and tasks compute is done one after
    the other, and of what the JVM does for it besides (scheduling, collecting garbage, compiling), half is done beside.
    """
    inside = [one for one in cpu if sample.from_ts <= one[0] <= sample.to_ts]
    own_s = sample.own_s
    if len(inside) < 2 or own_s is None:
        return 1.0
    seconds = inside[-1][0] - inside[0][0]
    whole_s = (inside[-1][1] - inside[0][1]) / seconds * (sample.to_ts - sample.from_ts) / sample.ended
    return whole_s / (own_s + _IN_SERIES * max(0.0, whole_s - own_s))


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


def _sample(
    found: Sequence[tuple[str, Batch]], queries: Mapping[str, TracedQuery], from_ts: float, to_ts: float
) -> _Sample:
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
        ends_wall_ts=ends,
        from_ts=from_ts,
        to_ts=to_ts,
        cpu_s=np.array([_cpu_s(queries[key], batch) for key, batch in found]),
        # Where nobody is warm yet, the cold ones must do.
        telling=np.array(telling) if any(telling) else np.full(len(found), fill_value=True),
    )


def _cpu_s(query: TracedQuery, batch: Batch) -> float:
    """Of its tasks and of the query's thread, as far as that is told."""
    worked = query.worked.get(batch.batch_id)
    return float("nan") if worked is None or batch.driver_cpu_s is None else worked.cpu_s + batch.driver_cpu_s


def _use(sample: _Sample, speeds: Floats, cpu: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """One core a batch where nobody told how much CPU time was used. speeds: of computing, that of collectors too."""
    inside = [one for one in cpu if sample.from_ts <= one[0] <= sample.to_ts]
    if len(inside) < 2 or inside[-1][1] <= inside[0][1]:
        return 1.0, 0.0
    first, last = inside[0], inside[-1]
    return cpu_use(sample.company, speeds, inside, first[0], last[0], last[1] - first[1])


def _lines(
    sample: _Sample, alone_s: Floats, shapes: Mapping[str, object], row_shares: Mapping[object, float]
) -> tuple[dict[str, QueryCost], QueryCost]:
    """A line for each query; for one without batches, the usual one."""
    owners = np.array(sample.owners)
    keys = sorted(set(sample.owners))
    groups: dict[object, list[str]] = defaultdict(list)
    for key in keys:
        groups[shapes[key]].append(key)
    most_row_s = math.inf
    if not sample.by_cpu:
        most_row_s = _most_row_s(sample, alone_s, sample.telling, max(row_shares.values(), default=None))
    usual = median_line(sample.rows[sample.telling], alone_s[sample.telling], None, most_row_s)
    found = {}
    for shape, members in groups.items():
        inside = np.isin(owners, members) & sample.telling
        if not sample.by_cpu:
            most_row_s = _most_row_s(sample, alone_s, inside, row_shares.get(shape))
        shared = median_line(sample.rows[inside], alone_s[inside], usual, most_row_s) if inside.any() else usual
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
        shape = shape_of(query)
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
