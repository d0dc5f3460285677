"""What goes into `slackwater bench late` and what comes out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Literal

from slackwater.bench.model import Collector, Distribution, Machine  # noqa: TC001  # msgspec reads the annotations
from slackwater.errors import ConfigurationError, unknown_name
from slackwater.workloads.late_events import LateSpec
from slackwater.workloads.late_workloads import LATE_WORKLOADS
from slackwater.workloads.rate_source import require_exact_event_times

Kind = Literal["rows", "aggregates"]
Outcome = Literal["ok", "behind", "died"]

OURS = "ours"
# By name: fields of `slackwater.late.run.Options` that differ from their defaults.
OUR_OPTIONS: dict[str, dict[str, Any]] = {
    OURS: {},
    "ours-no-prestage": {"prestage": "off"},
    "ours-one-writer": {"parallel_writes": False},
    "ours-unordered-io": {"ordered_io": False},
}
_STATE = "org.apache.spark.sql.execution.streaming.state"
# By name: the state store of plain Spark.
_MEMORY, _ROCKSDB = f"{_STATE}.HDFSBackedStateStoreProvider", f"{_STATE}.RocksDBStateStoreProvider"
STATE_STORES = {
    "spark-memory": _MEMORY,
    "spark-rocksdb": _ROCKSDB,
    "spark-memory-salted": _MEMORY,
    "spark-rocksdb-salted": _ROCKSDB,
    "spark-pandas-salted": _MEMORY,
    "spark-pandas-rocksdb-salted": _ROCKSDB,
}
# Those that keep rows with applyInPandasWithState rather than collect_list.
PANDAS_STATE = frozenset(name for name in STATE_STORES if "-pandas-" in name)
# A window without keys is one row of state, written anew in every batch; salted, it is so many smaller ones.
SALTS = 64
CONTENDERS = (*OUR_OPTIONS, *STATE_STORES)

LATENESS_MARGIN_S = 2.0
# What two cores can generate, keep and compute; a bigrams row costs its function 160 µs.
DEFAULT_RATES = {"bigrams": 1500}
DEFAULT_RATE = 5000
_WARMUP_S = 10.0
_SPAN_WINDOWS = 3
_SPAN_LEAST_S = 30.0


@dataclass(frozen=True)
class LateSettings:
    """What every contender gets alike."""

    cores: int = 2
    heap: str = "1g"
    memory: str | None = None  # bound on what ours keeps in memory; None: its own default
    partitions: int = 2
    source_partitions: int = 2
    collector: Collector = "g1"  # what Java gives Spark by default
    live_every_s: float = 10.0  # between full collections that are asked for, so that there are such figures
    grace_s: float = 120.0


@dataclass(frozen=True)
class LateRunSpec:
    """One run of one contender: what the worker process reads."""

    workload: str
    contender: str
    kind: Kind
    past_windows: int
    rate: int
    window_s: float
    payload_bytes: int
    seed: int
    seconds: float
    watermark_s: float = 1.0
    staleness: float = 0.1
    trigger_s: float = 2.0
    bursts: bool = False
    settings: LateSettings = LateSettings()
    warmup_s: float | None = None  # None: until a window is full, past ones too, and 10 s
    drain_s: float | None = None  # None: two windows, at least 20 s
    scratch: str | None = None

    @property
    def events(self) -> LateSpec:
        return LateSpec(
            name=self.workload,
            rate=self.rate,
            window_s=self.window_s,
            past_windows=self.past_windows,
            payload_bytes=self.payload_bytes,
            seed=self.seed,
            bursts=self.bursts,
        )

    @property
    def is_ours(self) -> bool:
        return self.contender in OUR_OPTIONS

    @property
    def pandas_state(self) -> bool:
        return self.contender in PANDAS_STATE

    @property
    def salts(self) -> int:
        """Into so many rows of state plain Spark splits a window and key; 0: none."""
        return SALTS if self.contender.endswith("-salted") else 0

    @property
    def allowed_lateness_s(self) -> float:
        return self.past_windows * self.window_s + LATENESS_MARGIN_S

    @property
    def delay_s(self) -> float:
        """How far the watermark is behind: with plain Spark so far that no row is too late."""
        return self.watermark_s + (0.0 if self.is_ours else self.past_windows * self.window_s)

    @property
    def warming_s(self) -> float:
        asked = self.warmup_s
        return (self.past_windows + 1) * self.window_s + _WARMUP_S if asked is None else asked

    @property
    def draining_s(self) -> float:
        return max(2 * self.window_s, 20.0) if self.drain_s is None else self.drain_s

    @property
    def usual_s(self) -> float:
        """What a run takes, from Spark's start to its end."""
        return self.warming_s + self.seconds + 25.0

    @property
    def timeout_s(self) -> float:
        return self.warming_s + self.seconds + self.draining_s + self.settings.grace_s


def span_s(window_s: float) -> float:
    """The measured span when none is given: whole windows."""
    return window_s * max(_SPAN_WINDOWS, ceil(_SPAN_LEAST_S / window_s))


def default_rate(workload: str) -> int:
    return DEFAULT_RATES.get(workload, DEFAULT_RATE)


@dataclass(frozen=True)
class LatePlan:
    """Every contender with every number of past windows."""

    run: LateRunSpec  # its contender and past windows are filled in for each run
    contenders: tuple[str, ...]
    past_windows: tuple[int, ...]

    def specs(self) -> list[LateRunSpec]:
        return [
            replace(self.run, contender=contender, past_windows=past)
            for past in self.past_windows
            for contender in self.contenders
        ]


def check(plan: LatePlan) -> None:
    """Raise ConfigurationError for a plan that cannot be run, before anything is started."""
    run = plan.run
    if run.workload not in LATE_WORKLOADS:
        raise unknown_name("workload", run.workload, list(LATE_WORKLOADS))
    for contender in plan.contenders:
        if contender not in CONTENDERS:
            raise unknown_name("contender", contender, CONTENDERS)
    wrong = [
        (not plan.contenders, "no contender to run; name some, as in --contenders ours,spark-memory."),
        (len(set(plan.contenders)) < len(plan.contenders), f"a contender is named twice: {','.join(plan.contenders)}."),
        (not plan.past_windows, "no number of past windows was given; as in --past-windows 1,3,10."),
        (
            run.kind == "aggregates" and run.workload != "average",
            "--kind aggregates is for the workload average alone.",
        ),
        (
            run.kind == "aggregates" and any(name.endswith("-salted") for name in plan.contenders),
            "aggregates are one small row of state for each key: there is nothing to salt.",
        ),
        (run.seconds <= 0, f"seconds must be greater than 0; got {run.seconds:g}."),
        (run.watermark_s < 0, f"the watermark delay must not be negative; got {run.watermark_s:g} s."),
        (run.trigger_s <= 0, f"the trigger interval must be greater than 0 s; got {run.trigger_s:g}."),
        (run.settings.cores < 1, f"cores must be at least 1; got {run.settings.cores}."),
        (
            re.fullmatch(r"\d+[kmg]?", run.settings.memory or "1m") is None,
            f"--memory takes a number of bytes, or one with k, m or g, as 64m; got {run.settings.memory!r}.",
        ),
    ]
    for is_wrong, message in wrong:
        if is_wrong:
            raise ConfigurationError(message)
    require_exact_event_times(run.rate)
    for spec in plan.specs():
        spec.events  # noqa: B018  # raises for what cannot be


@dataclass(frozen=True)
class LateWindows:
    """Windows whose watermark had passed at the end: `right` ones are row for row what the oracle says."""

    right: int
    wrong: int
    missing: int


@dataclass(frozen=True)
class BatchTimes:
    """Of the batches that committed in the span, in seconds."""

    count: int
    median: float | None = None
    p95: float | None = None


@dataclass(frozen=True)
class LiveHeap:
    """What lives in the JVM's heap, in MB, after full collections in the span, or until the run died."""

    median: float | None
    max: float | None
    count: int
    paused_pct: float | None  # share of the span in which collections held everything up


@dataclass(frozen=True)
class Resident:
    """Greatest resident memory in the span, in MB; `all` is of the driver, the JVM and the Python workers."""

    driver: float | None
    jvm: float | None
    all: float | None


@dataclass(frozen=True)
class OurFigures:
    """What only late handling has; counts are of the whole run."""

    on_time_results: int
    late_results: int
    final_results: int
    late_rows: int
    dead_rows: int
    stalest: float
    staged_windows: int
    compacted_windows: int
    until_last_s: Distribution  # from a window's end to its last result, for windows that take no more rows
    settle_s: float | None = None


@dataclass(frozen=True)
class LateRun:
    """`latency_s`: from a window's end to its first result; a window that did not come out has waited so long."""

    contender: str
    past_windows: int
    outcome: Outcome
    reason: str
    latency_s: Distribution
    windows: LateWindows | None
    overdue: int
    live_heap_mb: LiveHeap
    resident_mb: Resident
    cpu_cores: float | None
    other_cores: float | None  # what others on the machine used meanwhile: the less, the more the times are worth
    batch_s: BatchTimes
    add_batch_s: BatchTimes
    rows_per_s: float | None
    offered_rows_per_s: float
    behind_rows: int | None
    lived_s: float
    seconds: float
    ours: OurFigures | None = None
    latencies_s: list[float] = field(default_factory=list)
    behind_s: list[float] = field(default_factory=list)  # once a second of the span
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class LateWorkerResult:
    run: LateRun
    spark: str
    java: str


@dataclass(frozen=True)
class LateResult:
    workload: str
    kind: str
    rate: int
    window_s: float
    payload_bytes: int
    watermark_s: float
    staleness: float
    trigger_s: float
    bursts: bool
    seed: int
    seconds: float
    commit: str | None
    spark: str | None
    machine: Machine
    settings: LateSettings
    runs: list[LateRun] = field(default_factory=list)
    complete: bool = False
