"""What goes into a benchmark and what comes out: settings, the policies' names, and the result file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from slackwater.bench.mix_model import Group, Mix  # noqa: TC001  # msgspec
from slackwater.core.model import Knob
from slackwater.errors import ConfigurationError, unknown_name
from slackwater.sim.experiment import Claim  # noqa: TC001  # msgspec
from slackwater.workloads.base import PayloadKind, Phases  # noqa: TC001  # msgspec reads the annotations

TUNED = "spark-tuned"
STAGGER = 0.06
_CLUSTER_START_S = 120.0
_KAFKA_START_S = 180.0

Collector = Literal["g1", "parallel"]
Network = Literal["none", "uniform", "zipf"]
ContenderKind = Literal["fifo", "fair", "fixed", "slackwater"]


@dataclass(frozen=True)
class RunSettings:
    """What every policy gets alike: Spark's settings, tuned for small queries, and the run's protocol."""

    cores: int = 2
    heap: str = "2g"
    partitions: int = 1
    source_partitions: int = 1
    collector: Collector = "g1"
    state_versions: int = 2  # that the in-memory state store keeps; Spark's default
    start_wait_s: float = 2.0
    first_start_wait_s: float = 30.0
    warmup_min_s: float | None = None  # None: two windows, at least 20 s
    warmup_max_s: float = 90.0
    steady_span_s: float = 10.0
    steady_tolerance: float = 0.15
    kept_up_tolerance: float = 0.2
    drain_s: float | None = None  # None: two windows, at least 20 s
    grace_s: float = 120.0
    stall_max_s: float = 5.0  # a scheduler silent for longer was not the one that scheduled
    recent_progress: int = 100_000
    live: bool = False  # say every second where each query stands


@dataclass(frozen=True)
class Beside:
    """A query with late handling that runs beside the measured ones; staleness None: late windows wait to the end."""

    rate: int = 1_000
    payload_bytes: int = 1_000
    window_s: float = 10.0
    past_windows: int = 6
    staleness: float | None = None


@dataclass(frozen=True)
class Doomed:
    """One more query of the workload, under supervision, that is killed every so often; None: never."""

    every_s: float | None = None


@dataclass(frozen=True)
class OnCluster:
    """Spark runs on a standalone cluster of the run's own; one worker may be killed in the measured span."""

    workers: int
    cores_per_worker: int = 1
    memory: str = "1g"
    kill_worker_after_s: float | None = None
    back_after_s: float = 10.0  # after it was killed, it is started again

    @property
    def cores(self) -> int:
        return self.workers * self.cores_per_worker


@dataclass(frozen=True)
class OnKafka:
    """Rows come from topics of a broker of the run's own, filled by a process of its own.

    network: the law of the rows' delays on their way to the broker, and the longest of them. A row that takes longer
    than the watermark waits may be left out by Spark, so it must be shorter for results to be known.
    """

    network: Network = "uniform"
    longest_s: float = 0.5


@dataclass(frozen=True)
class KafkaRun:
    """How the topics were filled: how late the producer was at worst, with its schedule and the broker's appending."""

    topics: int
    partitions: int
    producer_behind_s: float


@dataclass(frozen=True)
class RunSpec:
    """One run of one policy: what the worker process reads."""

    workload: str
    policy: str
    seed: int
    queries: int
    rate: int
    window_s: float
    delay_s: float
    seconds: float
    phases: Phases
    payload: PayloadKind
    slide_s: float | None = None  # None: windows tumble
    body_bytes: int = 400  # of an event that is kept until its window leaves
    high: int = 0  # so many of the queries are of the class HIGH
    memory_bound: float = 0.75  # share of the heap from which on klink frees memory first
    beside: Beside | None = None
    doomed: Doomed | None = None
    serve: bool = False  # let others read it: the middleware, or a browser
    cluster: OnCluster | None = None  # None: the driver runs the tasks itself
    kafka: OnKafka | None = None  # None: Spark's rate source
    settings: RunSettings = RunSettings()
    scratch: str | None = None
    trace: bool = False  # record every batch, and the CPU time every second
    record: str | None = None  # a file for a trace as attach(record=…) writes it; plain Spark is then watched
    groups: tuple[Group, ...] = ()  # of a mix; what they say goes before what is said for all queries above

    def parts(self) -> tuple[RunSpec, ...]:
        """The run itself; of a mix, one for each group, with seeds that no other group has."""
        return tuple(
            replace(
                self,
                workload=group.workload,
                seed=100 * self.seed + place,
                queries=group.queries,
                rate=group.rate,
                window_s=group.window_s,
                slide_s=group.slide_s,
                delay_s=group.delay_s,
                phases=group.phases,
                payload=group.payload,
                groups=(),
            )
            for place, group in enumerate(self.groups)
        ) or (self,)

    @property
    def warmup_min_s(self) -> float:
        asked = self.settings.warmup_min_s
        return max(2 * self.window_s, 20.0) if asked is None else asked

    @property
    def drain_s(self) -> float:
        asked = self.settings.drain_s
        return max(2 * self.window_s, 20.0) if asked is None else asked

    @property
    def timeout_s(self) -> float:
        """After this a run hangs: every phase at its longest, and grace for Spark to start and stop."""
        settings = self.settings
        starting = settings.first_start_wait_s + self.queries * (settings.start_wait_s + 3.0)
        warming = max(self.warmup_min_s, settings.warmup_max_s)
        cluster = 0.0 if self.cluster is None else _CLUSTER_START_S
        kafka = 0.0 if self.kafka is None else _KAFKA_START_S
        return cluster + kafka + starting + warming + self.seconds + self.drain_s + settings.grace_s


@dataclass(frozen=True)
class BenchPlan:
    """A whole benchmark: one workload, several policies and seeds."""

    run: RunSpec  # its policy and seed are filled in for each run
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    sweep_s: tuple[float, ...] = (3.0, 4.0, 5.0)
    sweep_x: tuple[float, ...] = ()  # as shares of each query's own time from result to result
    mix: Mix | None = None  # that `run` has the groups of

    @property
    def sweep(self) -> tuple[str, ...]:
        """The policies that spark-tuned tries."""
        return (*map(staggered_name, self.sweep_s), *(f"spark-staggered-{share:g}x" for share in self.sweep_x))

    def spec(self, policy: str, seed: int) -> RunSpec:
        return replace(self.run, policy=policy, seed=seed)


@dataclass(frozen=True)
class Contender:
    """What a policy's name in a benchmark stands for."""

    name: str
    kind: ContenderKind
    interval_s: float | None = None
    interval_x: float | None = None
    staggered: bool = False
    policy: str = ""  # Slackwater's; empty for Spark's own
    knob: Knob = "balanced"

    def interval_ms(self, index: int, count: int, every_s: float) -> int | None:
        """The fixed trigger of query `index`, whose results are `every_s` apart.

        None: as soon as possible, or as the scheduler says.
        """
        usual_s = self.interval_s if self.interval_x is None else self.interval_x * every_s
        if usual_s is None:
            return None
        place = 2 * index / (count - 1) - 1 if self.staggered and count > 1 else 0.0
        return round(1000 * usual_s * (1 + STAGGER * place))


_FIXED = re.compile(r"spark-(every|staggered)-(\d+(?:\.\d+)?)([sx])")


def contender(name: str) -> Contender:
    """What the policy `name` stands for; `spark-tuned` is a sweep of others and has no meaning of its own."""
    if name == "spark-fifo":
        return Contender(name, "fifo")
    if name == "spark-fair":
        return Contender(name, "fair")
    if fixed := _FIXED.fullmatch(name):
        interval = float(fixed[2])
        if interval <= 0:
            raise ConfigurationError(f"the interval in {name!r} must be greater than 0.")
        staggered = fixed[1] == "staggered"
        if fixed[3] == "x":
            return Contender(name, "fixed", interval_x=interval, staggered=staggered)
        return Contender(name, "fixed", interval_s=interval, staggered=staggered)
    return _slackwater(name)


def _slackwater(name: str) -> Contender:
    from slackwater.policies.registry import known_policies  # noqa: PLC0415  # not needed for Spark's own

    policy, _, knob = name.partition(":")
    ours = known_policies()
    if policy not in ours:
        spark = ["spark-fifo", "spark-fair", "spark-every-5s", "spark-staggered-5s", "spark-staggered-0.5x", TUNED]
        raise unknown_name("policy", policy, [*spark, *ours])
    for known in get_args(Knob):
        if (knob or "balanced") == known:
            return Contender(name, "slackwater", policy=policy, knob=known)
    raise unknown_name(f"knob in {name!r}", knob, get_args(Knob))


def staggered_name(interval_s: float) -> str:
    return f"spark-staggered-{interval_s:g}s"


@dataclass(frozen=True)
class Distribution:
    """Percentiles, with the number of samples that they rest on; all None without samples."""

    count: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None


@dataclass(frozen=True)
class WindowCounts:
    """Windows that were due in the measured span; `wrong` ones came out and differ from the oracle's."""

    expected: int
    emitted: int
    wrong: int
    wrong_outside: int = 0  # emitted and wrong, due before or after the span


@dataclass(frozen=True)
class Heap:
    mean: float | None
    p90: float | None
    max: float | None
    after_gc_mean: float | None
    after_gc_max: float | None
    count: int
    live_mean: float | None = None  # after the old generation had been cleared
    live_max: float | None = None
    paused_pct: float | None = None  # share of the span in which collections held everything up


@dataclass(frozen=True)
class SchedulerCost:
    decision_ms_p99: float | None = None
    overhead_pct: float | None = None
    decisions: int | None = None  # within the span
    stalled_s: float | None = None  # longest time in the span without a decision
    gates_opened: int | None = None  # how often the JVM side gave up on the scheduler in the span


@dataclass(frozen=True)
class Accuracy:
    """Share of sweeping watermarks that became ingestible within the range named before, and its mean width."""

    confidence: float
    count: int
    inside: float | None
    range_s: float | None


@dataclass(frozen=True)
class Backlog:
    """The watermarks' mean age over the queries, at the start and the end of the measured span and over its thirds."""

    start_s: float | None
    end_s: float | None
    first_third_s: float | None = None
    last_third_s: float | None = None


@dataclass(frozen=True)
class QueryResult:
    name: str
    phase_ms: int
    interval_s: float | None
    latency_mean_s: float | None
    batches: int
    windows: WindowCounts
    priority_class: int = 0
    latencies_s: list[float] = field(default_factory=list)
    group: str = ""  # of a mix
    every_s: float | None = None  # from one of its results to the next


@dataclass(frozen=True)
class GroupResult:
    """How a group or a class of a mix fared; slowdown is latency over the query's time from result to result."""

    name: str
    queries: int
    windows: WindowCounts
    latency_s: Distribution
    slowdown: Distribution


@dataclass(frozen=True)
class ClusterEvent:
    at_s: float  # of the measured span
    what: str


@dataclass(frozen=True)
class CapacityChange:
    """From then on the scheduler saw so many cores, and let so many turns run at once."""

    at_s: float
    cores: int
    lanes: int


@dataclass(frozen=True)
class ClusterRun:
    """The cluster that a run had, and what happened to it."""

    master: str
    workers: int
    cores_per_worker: int
    memory: str
    events: list[ClusterEvent] = field(default_factory=list)
    capacity: list[CapacityChange] = field(default_factory=list)  # empty for Spark's own policies


@dataclass(frozen=True)
class RunResult:
    policy: str
    seed: int
    latency_s: Distribution
    propagation_s: Distribution
    windows: WindowCounts
    events_per_s: float
    offered_events_per_s: float
    cpu_cores: float
    batches: int
    batch_s: Distribution
    heap_mb: Heap
    scheduler: SchedulerCost
    steady: bool  # every due window came out, and the lag did not grow or shrink within the measured span
    warmed_up: bool  # batch times and lag had settled before it
    warmup_s: float
    drain_s: float
    seconds: float
    backlog: Backlog
    per_query: list[QueryResult]
    latencies_s: list[float]
    estimates: list[Accuracy] = field(default_factory=list)  # of the scheduler, against the generator
    warnings: list[str] = field(default_factory=list)  # what Slackwater logged
    sweep_of: str | None = None
    chosen: str | None = None
    cluster: ClusterRun | None = None
    kafka: KafkaRun | None = None
    beside: dict[str, Any] | None = None  # what the query beside the measured ones did
    doomed: dict[str, Any] | None = None  # what the one did that was killed
    recording: dict[str, Any] | None = None  # how large the trace became, and what it took
    slowdown: Distribution | None = None  # of a mix, as are the next two
    per_group: list[GroupResult] = field(default_factory=list)
    per_class: list[GroupResult] = field(default_factory=list)


@dataclass(frozen=True)
class WorkerResult:
    """What the worker writes: the run, facts that only it could see, and its trace, a `sim.trace.RunTrace`."""

    run: RunResult
    spark: str
    java: str
    trace: dict[str, Any] | None = None


@dataclass(frozen=True)
class Failure:
    policy: str
    seed: int
    error: str


@dataclass(frozen=True)
class Interval:
    """A mean over seeds, and half the width of its 95 % interval (None with one seed)."""

    mean: float
    half_width_95: float | None
    count: int


@dataclass(frozen=True)
class PolicySummary:
    policy: str
    steady_runs: int
    runs: int
    latency_mean_s: Interval | None
    latency_p50_s: Interval | None
    latency_p90_s: Interval | None
    latency_p99_s: Interval | None
    propagation_mean_s: Interval | None
    cpu_cores: Interval
    slowdown_mean: Interval | None = None  # of a mix
    slowdown_p99: Interval | None = None


@dataclass(frozen=True)
class Machine:
    cores: int
    cpu: str
    memory_gb: float
    os: str
    python: str
    java: str | None


@dataclass(frozen=True)
class BenchResult:
    """What a benchmark found. Of a mix, `rate` is the mean over its queries and `window_s` the longest window."""

    workload: str
    queries: int
    rate: int
    window_s: float
    delay_s: float
    seconds: float
    phases: str
    payload: str
    seed: int
    seeds: list[int]
    commit: str | None
    spark: str | None
    machine: Machine
    settings: RunSettings
    cluster: OnCluster | None = None
    kafka: OnKafka | None = None
    slide_s: float | None = None  # None: windows tumble
    mix: Mix | None = None
    claims: list[Claim] = field(default_factory=list)  # that a mix tests
    runs: list[RunResult] = field(default_factory=list)
    summary: list[PolicySummary] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    complete: bool = False
