"""What goes into `slackwater bench chain` and what its processes tell each other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from slackwater.bench.model import Contender, Distribution, WindowCounts, contender
from slackwater.workloads.ysb import PayloadKind  # noqa: TC001  # msgspec reads the annotations

FORWARD = "+forward"


@dataclass(frozen=True)
class ChainSpec:
    """One run of one contender: `pipelines` pairs of queries, one of each in either application.

    cores and heap are those of each application.
    """

    contender: str
    seed: int
    pipelines: int
    rate: int
    window_s: float
    delay_s: float
    seconds: float
    warmup_s: float
    payload: PayloadKind = "json"
    cores: int = 2
    heap: str = "1g"
    drain_s: float | None = None  # None: two windows
    grace_s: float = 180.0
    scratch: str | None = None

    @property
    def forwards(self) -> bool:
        return self.contender.endswith(FORWARD)

    @property
    def chosen(self) -> Contender:
        return contender(self.contender.removesuffix(FORWARD))

    @property
    def longest_drain_s(self) -> float:
        return 2 * self.window_s if self.drain_s is None else self.drain_s

    @property
    def timeout_s(self) -> float:
        return self.pipelines * 10 + self.warmup_s + self.seconds + self.longest_drain_s + self.grace_s

    def but(self, **changes: object) -> ChainSpec:
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Stage:
    """What the process of one application is told."""

    spec: ChainSpec
    role: str  # "enrich" or "windows"
    folder: str


@dataclass(frozen=True)
class Ask:
    """A line to a stage. mark: the measured span begins (or ends) now. end: stop, and tell."""

    do: str
    from_ms: int = 0
    to_ms: int = 0
    drain_s: float = 0.0


@dataclass(frozen=True)
class StageTold:
    """What a stage tells at its end; the figures are those of the measured span."""

    batches: int
    batch_s: Distribution
    decisions: int
    gates_opened: int
    exchanges: int
    failures: int
    spark: str
    java: str
    warnings: list[str] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    end_to_end_s: list[float] = field(default_factory=list)
    windows: WindowCounts = field(default_factory=lambda: WindowCounts(0, 0, 0))
    end_ms: int = 0


@dataclass(frozen=True)
class ChainRun:
    """One run. Latency counts from a window's end; end to end, from when its sweeping row could be read first."""

    contender: str
    seed: int
    latency_s: Distribution
    end_to_end_s: Distribution
    windows: WindowCounts
    cpu_cores: float
    enrich: StageTold
    count: StageTold
    end_to_end_all_s: list[float]
    latency_all_s: list[float]
