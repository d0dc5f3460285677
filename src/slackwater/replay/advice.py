"""What each change would bring, by replaying a trace with it: `advise(ready)`.

Every prediction comes with an interval: from the least to the greatest over the seeds, widened by what the replay of
the recorded policy was off by (at least 5 %). A change is recommended when it is worth it even at the cautious end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from slackwater.replay.delays import delay_suggestions
from slackwater.replay.scenario import Scenario, recorded_name
from slackwater.replay.suggestions import Predicted, Suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from slackwater.core.model import Knob
    from slackwater.replay.fidelity import Ready
    from slackwater.replay.run import Outcome
    from slackwater.replay.suggestions import Kind

WORTH_SHARE = 0.15
"""A change is worth it if the mean or the 99th percentile falls by this share, …"""
WORTH_S = 0.3
"""… and by so many seconds, at the cautious end of the interval; …"""
WORTH_CORES_SHARE = 0.1
"""… or if it frees this share of the cores, …"""
SCARCE_SHARE = 0.7
"""… where they were busier than this."""

_KNOBS: tuple[Knob, ...] = ("balanced", "cost", "latency")
_LEAST_ERROR = 0.05
_HEAVY_SHARE = 0.2
_MOST_MOVED = 2
_CLEARLY = 0.9
_MOST_CORES_TIMES = 4
_NEAR_FULL = 0.8
# The doctor's measurements on 2 cores: a small query's batch took 161 ms with 1 partition and 3018 ms with 200; with 2
# partitions 274 ms in memory and 222 ms on RocksDB.
_PARTITION_S = (3.018 - 0.161) / 199
_LEAST_BATCH_S = 0.161
_ROCKSDB_TIMES = 222 / 274
_HEAP_SCARCE = 0.6


@dataclass(frozen=True)
class Figures:
    """What was recorded."""

    mean_s: float
    p50_s: float
    p99_s: float
    cpu_cores: float | None
    cores: int
    due: int
    missing: int
    queries: int
    seconds: float


@dataclass(frozen=True)
class Advice:
    """`switch` is the change of policy that is recommended, None: leave things alone. The rest stands by itself."""

    recorded: str
    figures: Figures
    error_mean: float
    error_p99: float
    switch: Suggestion | None
    suggestions: tuple[Suggestion, ...]


def advise(ready: Ready, *, seeds: int = 3, told: Callable[[str], None] = lambda _: None) -> Advice:
    """Replay what could be changed. The same trace and seeds give the same advice."""
    return _Adviser(ready, seeds, told).advice()


class _Adviser:
    def __init__(self, ready: Ready, seeds: int, told: Callable[[str], None]) -> None:
        self._ready = ready
        self._seeds = range(max(1, seeds))
        self._told = told
        self._figures = figures_of(ready)
        self._triggers = any(query.about.interval_s > 0 for query in ready.trace.queries)

    def advice(self) -> Advice:
        policies = list(self._policies())
        best = _best(policies)
        found = [suggestion for suggestion, _ in policies]
        if best is not None:
            found += self._lanes(best[1], best[0])
        found += self._spark_triggers()
        found += self._partitions()
        found += delay_suggestions(self._ready, self._figures.mean_s)
        found += self._moved()
        if best is not None:
            found += self._cores(best[1])
        switch = best[0] if best is not None and best[0].worth else None
        return Advice(
            recorded=recorded_name(self._ready.trace),
            figures=self._figures,
            error_mean=self._ready.error_mean,
            error_p99=self._ready.error_p99,
            switch=switch,
            suggestions=tuple(found),
        )

    # ---- one change each ----------------------------------------------------------------------------------------

    def _policies(self) -> Iterator[tuple[Suggestion, Scenario]]:
        own = self._ready.scenario
        for knob in _KNOBS:
            if (own.policy, own.knob) == ("klink", knob):
                continue
            name = "klink" if knob == "balanced" else f"klink:{knob}"
            scenario = Scenario(name, policy="klink", knob=knob, interval_s=0.0 if self._triggers else None)
            words = f"attach(policy='klink', knob='{knob}')" if knob != "balanced" else "attach(policy='klink')"
            if self._triggers:
                words += ", and no trigger on the queries"
            kind: Kind = "knob" if own.policy == "klink" else "policy"
            yield self._suggestion(kind, words, scenario), scenario
            if self._triggers and knob == "balanced":
                kept = scenario.but(name=f"{name}, triggers kept", interval_s=None)
                yield self._suggestion("policy", "attach(policy='klink'), triggers as they are", kept), kept

    def _lanes(self, scenario: Scenario, best: Suggestion) -> Iterator[Suggestion]:
        cores = self._ready.costs.cores
        for lanes in sorted({1, cores, 2 * cores}):
            found = self._suggestion("lanes", f"the same with lanes={lanes}", scenario.but(lanes=lanes), seeds=1)
            if best.mean_s is not None and found.mean_s is not None:
                better = found.mean_s.value < (1 - WORTH_SHARE) * best.mean_s.value
                yield replace(found, worth=better, note="" if better else "no better than lanes='auto'")

    def _spark_triggers(self) -> Iterator[Suggestion]:
        """For whoever stays with plain Spark: staggered, about as often as the cores can take and less often."""
        if self._ready.scenario.policy:
            return
        costs = self._ready.costs
        work_s = (
            sum(cost.batch_s + cost.empty_s for cost in costs.queries.values()) * costs.cpu_share * costs.cpu_demand
        )
        for interval_s in sorted(
            {max(1.0, round(times * work_s / costs.besides.left_cores)) for times in (0.9, 1.25, 2.0)}
        ):
            scenario = Scenario(
                f"spark-staggered-{interval_s:g}s", interval_s=interval_s, staggered=True, task_order="name"
            )
            yield self._suggestion(
                "triggers", f"plain Spark, staggered triggers of {interval_s:g} s ± 6 %", scenario, seeds=1
            )

    def _partitions(self) -> Iterator[Suggestion]:
        ready = self._ready
        counts = [
            batch.state_partitions for query in ready.trace.queries for batch in query.batches if batch.state_partitions
        ]
        most, cores = max(counts, default=0), ready.costs.cores
        if most > cores:
            usual_s = sum(cost.batch_s for cost in ready.costs.queries.values()) / len(ready.costs.queries)
            saved_s = _PARTITION_S * (most - cores)
            times = max(min(1.0, _LEAST_BATCH_S / usual_s), 1 - saved_s / usual_s)
            yield self._suggestion(
                "partitions",
                f"{cores} shuffle partitions instead of {most}, in new checkpoints",
                ready.scenario.but(name="fewer partitions", cost_times=times),
                seeds=1,
                note=f"by {1000 * _PARTITION_S:.0f} ms for each partition of a batch, as measured by the doctor; a "
                "stateful query keeps the number that its checkpoint began with",
            )
        heaps = [host for host in ready.trace.hosts if host.heap_max_bytes > 0]
        in_memory = "HDFSBacked" in str(ready.trace.head.session.get("state_store_provider", ""))
        full = median([host.heap_live_bytes / host.heap_max_bytes for host in heaps]) if heaps else 0.0
        if in_memory and full > _HEAP_SCARCE:
            yield self._suggestion(
                "state store",
                "RocksDB instead of the state store in memory, in new checkpoints",
                ready.scenario.but(name="rocksdb", cost_times=_ROCKSDB_TIMES),
                seeds=1,
                note=f"state lives outside the heap, of which {100 * full:.0f} % were taken after collections; a small "
                "batch took 222 ms instead of 274 ms where the doctor measured it",
            )

    def _moved(self) -> Iterator[Suggestion]:
        """Those that take most, elsewhere: what does it bring the others?"""
        queries = self._ready.recorded.queries
        whole = sum(query.cpu_s for query in queries)
        heavy = [query for query in queries if whole > 0 and query.cpu_s / whole > _HEAVY_SHARE]
        for query in sorted(heavy, key=lambda one: (-one.cpu_s, one.name))[:_MOST_MOVED]:
            if len(queries) > 1:
                others = [one for one in queries if one.name != query.name]
                latencies = [latency for one in others for latency in one.latency.latencies_s]
                yield self._suggestion(
                    "move a query",
                    f"{query.name} on another cluster",
                    self._ready.scenario.but(name=f"without {query.name}", without=frozenset({query.name})),
                    seeds=1,
                    against_s=sum(latencies) / len(latencies) if latencies else None,
                    note=f"it takes {100 * query.cpu_s / whole:.0f} % of what batches compute; figures are the others'",
                )

    def _cores(self, scenario: Scenario) -> Iterator[Suggestion]:
        """The fewest that keep the recorded latency under the best policy; and how many plain Spark would need."""
        cores, aim_s = self._ready.costs.cores, self._figures.mean_s
        for fewer in range(1, cores):
            found = self._ready.replay(scenario.but(cores=fewer))
            if found.mean_s is not None and found.mean_s <= aim_s and found.left == found.due:
                yield self._suggestion(
                    "cores", f"{scenario.name} on {fewer} of {cores} cores", scenario.but(cores=fewer), seeds=1
                )
                break
        own = self._ready.scenario
        best = self._ready.replay(scenario)
        if own.policy or best.mean_s is None or best.mean_s > aim_s / (1 + WORTH_SHARE):
            return
        more = own
        for times in range(2, _MOST_CORES_TIMES + 1):
            more = own.but(name=f"{times * cores} cores", cores=times * cores)
            found = self._ready.replay(more)
            if found.mean_s is not None and found.mean_s <= 1.1 * best.mean_s:
                note = f"what {scenario.name} brings on {cores}"
                yield self._suggestion("cores", f"{times * cores} cores, all else as it is", more, seeds=1, note=note)
                return
        note = f"still not what {scenario.name} brings on {cores}"
        yield self._suggestion("cores", f"{more.name}, all else as it is", more, seeds=1, note=note)

    # ---- figures ------------------------------------------------------------------------------------------------

    def _suggestion(
        self,
        kind: Kind,
        change: str,
        scenario: Scenario,
        *,
        seeds: int | None = None,
        against_s: float | None = None,
        note: str = "",
    ) -> Suggestion:
        self._told(change)
        outcomes = [self._ready.replay(scenario, seed) for seed in (self._seeds if seeds is None else range(seeds))]
        mean = predicted([one.mean_s for one in outcomes], self._ready.error_mean)
        p99 = predicted([one.percentile_s(99) for one in outcomes], self._ready.error_p99)
        cpu = [one.cpu_cores for one in outcomes if one.cpu_cores is not None]
        first: Outcome = outcomes[0]
        cpu_cores = sum(cpu) / len(cpu) if cpu else None
        return Suggestion(
            kind=kind,
            change=change,
            worth=self._worth(mean, p99, cpu_cores, against_s) and first.left >= first.due - self._figures.missing,
            mean_s=mean,
            p99_s=p99,
            cpu_cores=cpu_cores,
            state_bytes=first.state_bytes_max,
            late_rows=first.late_rows,
            windows_missing=first.due - first.left,
            note="; ".join(filter(None, (note, self._near_full(cpu_cores, scenario)))),
        )

    def _near_full(self, cpu_cores: float | None, scenario: Scenario) -> str:
        """Latency near full cores follows the cost of batches many times over, and that differs from hour to hour."""
        cores = scenario.cores or self._ready.costs.besides.capacity_cores
        if cpu_cores is None or cpu_cores < _NEAR_FULL * cores:
            return ""
        return f"{cpu_cores:.1f} of {cores:.1f} cores: so near to full cores, latency is a sign rather than a figure"

    def _worth(
        self, mean: Predicted | None, p99: Predicted | None, cpu_cores: float | None, against_s: float | None
    ) -> bool:
        figures = self._figures
        before_s = figures.mean_s if against_s is None else against_s
        if mean is None or p99 is None:
            return False
        falls = [(before_s, mean.high)] if against_s is not None else [(before_s, mean.high), (figures.p99_s, p99.high)]
        rises = mean.value > before_s or (against_s is None and p99.value > figures.p99_s)
        worth = any(before - after >= max(WORTH_S, WORTH_SHARE * before) for before, after in falls)
        # Neither figure may be bought with the other, nor cores with either.
        return not rises and (worth or self._frees(cpu_cores))

    def _frees(self, cpu_cores: float | None) -> bool:
        figures = self._figures
        if cpu_cores is None or figures.cpu_cores is None or figures.cpu_cores < SCARCE_SHARE * figures.cores:
            return False
        return figures.cpu_cores - cpu_cores >= WORTH_CORES_SHARE * figures.cores


def figures_of(ready: Ready) -> Figures:
    recorded = ready.recorded
    return Figures(
        mean_s=recorded.mean_s or 0.0,
        p50_s=recorded.percentile_s(50) or 0.0,
        p99_s=recorded.percentile_s(99) or 0.0,
        cpu_cores=recorded.cpu_cores,
        cores=ready.costs.cores,
        due=recorded.due,
        missing=recorded.due - recorded.left,
        queries=len(recorded.queries),
        seconds=ready.span.seconds,
    )


def predicted(values: Sequence[float | None], error: float) -> Predicted | None:
    """From the least to the greatest, widened by the share that the replay is known to be off by."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    widened = 1 + max(_LEAST_ERROR, error)
    return Predicted(sum(known) / len(known), min(known) / widened, max(known) * widened)


def _best(found: Sequence[tuple[Suggestion, Scenario]]) -> tuple[Suggestion, Scenario] | None:
    """The least mean; the first one, which is the usual knob, unless another is a tenth better."""
    if not found:
        return None
    least = min(found, key=_mean_of)
    return least if _mean_of(least) < _CLEARLY * _mean_of(found[0]) else found[0]


def _mean_of(found: tuple[Suggestion, Scenario]) -> float:
    return found[0].mean_s.value if found[0].mean_s is not None else float("inf")
