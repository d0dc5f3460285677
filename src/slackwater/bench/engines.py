"""`slackwater bench engines`: Spark and Flink on one host, under the OS alone and under one middleware (Lachesis 6.6).

YSB on both, the same events and oracle. Flink's jobs run with chaining off, so that every operator is a thread;
Spark's queries are one attached application. Each run has a Flink cluster, a Spark and a middleware of its own. Spark's
run says when it begins and ends to measure, and Flink is measured in the same span.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from slackwater.bench.flink_cluster import ClusterSettings, FlinkCluster
from slackwater.bench.flink_measure import measure_query
from slackwater.bench.flink_ysb import java_sources, read_output, submit
from slackwater.bench.harness import run_in_subprocess
from slackwater.bench.measure import distribution, total
from slackwater.bench.model import Failure
from slackwater.bench.neighbours import RunningMiddleware
from slackwater.errors import SlackwaterError, UnreachableError
from slackwater.middleware.drivers.flink_rest import FlinkRest
from slackwater.sim.experiment import Claim, Experiment, claim
from slackwater.workloads.rate_source import require_exact_event_times
from slackwater.workloads.ysb import specs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from slackwater.bench.harness import Listener
    from slackwater.bench.model import Distribution, RunSpec, WindowCounts
    from slackwater.workloads.base import QuerySpec

ENGINES: Final = "bench-engines"
OS: Final = "os"
CONTENDERS: Final[dict[str, str]] = {
    OS: "",
    "random-nice": 'policy = "random"\nmechanism = "nice"',
    "qs-nice": 'policy = "qs"\nmechanism = "nice"',
    "groups-cgroup": 'policy = "qs"\nmechanism = "cgroup"\ngroup_by = "application"\nrule = "sum"',
}

log = logging.getLogger(__name__)

_ASK_EVERY_S = 1.0
_AS_IT_SHOULD = frozenset({"INITIALIZING", "CREATED", "RUNNING"})
_LEAST_THROUGHPUT = 0.98
_MOST_LATENCY = 1.0
_MOST_CPU_PCT = 5.0


@dataclass(frozen=True)
class FlinkLoad:
    """Jobs on Flink; `rate` events a second each, at full load."""

    jobs: int = 2
    rate: int = 10_000
    heap_mb: int = 768


@dataclass(frozen=True)
class EngineResult:
    engine: str
    queries: int
    offered_rows_per_s: float
    rows_per_s: float
    latency_s: Distribution
    windows: WindowCounts


@dataclass(frozen=True)
class Outcome:
    contender: str
    load_pct: float
    seed: int
    results: tuple[EngineResult, ...] = ()
    middleware_cpu_pct: float | None = None
    units_set: Mapping[str, int] = field(default_factory=dict)
    error: str = ""


def engines(
    base: RunSpec,
    flink: FlinkLoad,
    contenders: Sequence[str],
    loads_pct: Sequence[float],
    seeds: Sequence[int],
    listener: Listener,
) -> Experiment:
    """`base` is Spark's run at full load. Contenders take turns, so that what drifts drifts for all of them."""
    for load_pct in loads_pct:
        for rate in (base.rate, flink.rate):
            require_exact_event_times(at_load(rate, load_pct))
    listener.planned(len(contenders) * len(loads_pct) * len(seeds))
    found = [
        _run(base, flink, contender, load_pct, seed, listener)
        for seed in seeds
        for load_pct in loads_pct
        for contender in contenders
    ]
    rows = [row for outcome in found for row in _rows(outcome)]
    return Experiment(ENGINES, seeds[0], rows, list(_claims(found)), assumptions=_ASSUMPTIONS)


_ASSUMPTIONS = [
    "the load is a share of the given rates; 100 % is what the OS sustains only if its rows at 100 % keep up",
    "latency is from a window's end to its last row: on Flink at the sink, on Spark when its batch was committed",
    "Flink without chaining, as in Lachesis; its sources tell what is due and has not left, as Kafka's do",
    "groups: one for each Flink job (its operators' threads) and one for the Spark application",
]


def at_load(rate: int, load_pct: float) -> int:
    return max(1, round(rate * load_pct / 100.0))


def middleware_config(contender: str, flink_url: str, runtime: Path, folder: Path) -> str:
    """What `slackwater middleware` gets in a run."""
    return f"""
period_s = 1.0
journal = "{folder / "journal"}"
cgroup_parent = "slackwater-bench"

[[driver]]
kind = "flink"
url = "{flink_url}"

[[driver]]
kind = "slackwater"
folder = "{runtime}"

[[policy]]
{CONTENDERS[contender]}
"""


def _run(base: RunSpec, flink: FlinkLoad, contender: str, load_pct: float, seed: int, listener: Listener) -> Outcome:
    spec = replace(base, seed=seed, serve=True, rate=at_load(base.rate, load_pct))
    queries = specs(
        flink.jobs,
        rate=at_load(flink.rate, load_pct),
        window_s=base.window_s,
        delay_s=base.delay_s,
        phases=base.phases,
        # Other events than Spark's queries of the same seed get.
        seed=seed + 1000,
    )
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="slackwater-engines-")))
        try:
            cluster = running.enter_context(
                FlinkCluster(ClusterSettings(slots=flink.jobs, heap_mb=flink.heap_mb), java_sources=java_sources())
            )
            jobs = {query.name: submit(cluster, query) for query in queries}
            span = _Span(cluster.url, jobs)
            running.callback(span.close)
            runtime = folder / "run"
            middleware = None
            if contender != OS:
                config = folder / "middleware.toml"
                config.write_text(middleware_config(contender, cluster.url, runtime, folder), "utf-8")
                middleware = running.enter_context(RunningMiddleware(config))

            def state(said: dict[str, Any]) -> None:
                span.state(said)
                listener.state(spec, {**said, "setting": f"{contender} at {load_pct:g} %"})

            os.environ["SLACKWATER_RUNTIME_DIR"] = str(runtime)
            run = run_in_subprocess(spec, state).run
            if middleware is not None:
                middleware.check()
            listener.finished(run)
            spark = EngineResult(
                "spark", spec.queries, run.offered_events_per_s, run.events_per_s, run.latency_s, run.windows
            )
            return Outcome(
                contender,
                load_pct,
                seed,
                (spark, _flink_result(cluster, queries, span)),
                None if middleware is None else round(100 * middleware.cpu_share(), 3),
                {} if middleware is None else most_units_set(middleware.rounds),
            )
        except SlackwaterError as error:
            listener.failed(Failure(f"{contender} at {load_pct:g} %", seed, str(error)))
            return Outcome(contender, load_pct, seed, error=str(error))
        finally:
            os.environ.pop("SLACKWATER_RUNTIME_DIR", None)


def most_units_set(rounds: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """By engine, how many units the middleware set at once at most: that it did something at all."""
    most: dict[str, int] = {}
    for done in rounds:
        touched = {*done["nice"], *(unit for group in done["groups"].values() for unit in group["members"])}
        now: dict[str, int] = {}
        for application in done["applications"]:
            there = sum(unit["key"] in touched for unit in application["units"])
            now[application["engine"]] = now.get(application["engine"], 0) + there
        most = {engine: max(most.get(engine, 0), now.get(engine, 0)) for engine in (*most, *now)}
    return most


class _Span:
    """The measured span, by the states that Spark's run tells, and what Flink's sources let out meanwhile.

    Asked all the time, under every contender alike: Flink renews its metrics only for somebody who asks, and its first
    answer is an old one.
    """

    def __init__(self, url: str, jobs: Mapping[str, str]) -> None:
        self.at_wall_ts: list[float] = []
        self._jobs = tuple(jobs.values())
        self._told: list[tuple[float, float]] = []
        self._error = ""
        self._rest = FlinkRest(url, timeout_s=20.0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="flink-rows", daemon=True)
        self._thread.start()

    def state(self, state: dict[str, Any]) -> None:
        begins = state.get("state") == "measuring" and not self.at_wall_ts
        ends = state.get("state") in ("draining", "stopping") and len(self.at_wall_ts) == 1
        if begins or ends:
            self.at_wall_ts.append(time.time())

    def rows_per_s(self) -> float:
        """The pace within the span, by what was known at its ends."""
        if self._error:
            raise SlackwaterError(self._error)
        before, after = ([one for one in self._told if one[0] <= wall_ts] for wall_ts in self.at_wall_ts)
        if not before or after[-1][0] <= before[-1][0]:
            raise SlackwaterError("Flink told its rows too seldom within the measured span. Measure for longer.")
        return (after[-1][1] - before[-1][1]) / (after[-1][0] - before[-1][0])

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._rest.close()

    def _ask(self) -> None:
        while not self._stop.wait(_ASK_EVERY_S):
            try:
                rows = self._rows()
            except UnreachableError as error:
                log.debug("Flink's rows: %s", error)
            else:
                if rows is not None:
                    self._told.append((time.time(), rows))

    def _rows(self) -> float | None:
        """What the sources have let out; None before all tell. The source of the table of ads has ended."""
        out = 0.0
        for id_ in self._jobs:
            job = self._rest.job(id_)
            if job is None or job.state not in _AS_IT_SHOULD:
                self._error = f"the Flink job {id_} did not run to the end: {job.state if job else 'it is unknown'}."
                return None
            inputs = job.inputs()
            for vertex in job.vertices:
                if not inputs.get(vertex.id) and vertex.status == "RUNNING":
                    found = self._rest.metrics(id_, vertex.id, ["numRecordsOut"]) or {}
                    if "numRecordsOut" not in found:
                        return None
                    out += found["numRecordsOut"]
        return out


def _flink_result(cluster: FlinkCluster, queries: Sequence[QuerySpec], span: _Span) -> EngineResult:
    if len(span.at_wall_ts) != 2:
        raise SlackwaterError("Spark's run did not tell when it began and ended to measure; nothing can be compared.")
    from_s, to_s = span.at_wall_ts
    text, ended_ms = cluster.output.read_text("utf-8", "replace"), round(time.time() * 1000)
    found = [
        measure_query(query, read_output(text, query.name), round(from_s * 1000), round(to_s * 1000), ended_ms)
        for query in queries
    ]
    return EngineResult(
        "flink",
        len(queries),
        float(sum(query.rate for query in queries)),
        round(span.rows_per_s(), 1),
        distribution([value for one in found for value in one.latencies_s]),
        total(one.windows for one in found),
    )


def _rows(outcome: Outcome) -> Iterator[dict[str, Any]]:
    row: dict[str, Any] = {"contender": outcome.contender, "load %": outcome.load_pct, "seed": outcome.seed}
    if outcome.error:
        yield {**row, "failed": outcome.error}
    for result in outcome.results:
        yield {
            **row,
            "engine": result.engine,
            "queries": result.queries,
            "offered rows/s": result.offered_rows_per_s,
            "rows/s": result.rows_per_s,
            "latency mean s": result.latency_s.mean,
            "latency p99 s": result.latency_s.p99,
            "windows": result.windows.emitted,
            "windows missing": result.windows.expected - result.windows.emitted,
            "windows wrong": result.windows.wrong + result.windows.wrong_outside,
            "units set": outcome.units_set.get(result.engine, 0),
            "middleware CPU %": outcome.middleware_cpu_pct,
        }


def _claims(found: Sequence[Outcome]) -> Iterator[Claim]:
    """Lachesis' direction: throughput the same or more, latency less."""
    for contender in dict.fromkeys(outcome.contender for outcome in found):
        if contender in (OS, "random-nice"):
            continue
        for load_pct in dict.fromkeys(outcome.load_pct for outcome in found):
            for engine in ("flink", "spark"):
                here, there = (_means(found, name, load_pct, engine) for name in (contender, OS))
                if here and there and there.rows_per_s and there.latency_s:
                    what = f"{contender}, {engine} at {load_pct:g} %"
                    ratio = here.rows_per_s / there.rows_per_s
                    yield claim(f"{what}: throughput over the OS's", ratio, "≥", _LEAST_THROUGHPUT)
                    ratio = here.latency_s / there.latency_s
                    yield claim(f"{what}: mean latency over the OS's", ratio, "≤", _MOST_LATENCY)
    wrong = sum(one.windows.wrong + one.windows.wrong_outside for outcome in found for one in outcome.results)
    yield claim("windows with a wrong result", wrong, "≤", 0)
    used = [outcome.middleware_cpu_pct for outcome in found if outcome.middleware_cpu_pct is not None]
    if used:
        yield claim("CPU of the middleware, % of a core, its start included", max(used), "≤", _MOST_CPU_PCT)


@dataclass(frozen=True)
class _Means:
    rows_per_s: float
    latency_s: float


def _means(found: Sequence[Outcome], contender: str, load_pct: float, engine: str) -> _Means | None:
    """Over seeds; None unless every one came to an end."""
    runs = [one for one in found if (one.contender, one.load_pct) == (contender, load_pct)]
    results = [result for one in runs for result in one.results if result.engine == engine]
    latencies = [result.latency_s.mean for result in results if result.latency_s.mean is not None]
    if not results or len(results) < len(runs) or len(latencies) < len(runs):
        return None
    return _Means(sum(result.rows_per_s for result in results) / len(results), sum(latencies) / len(latencies))
