"""How much each policy sustains: the most queries, or the highest rate, with p99 latency under a target.

A size is sustained when every window came out, right, with the p99 latency at most the target, and the queries did not
fall further behind: with every seed. `spark-tuned` sustains it if one of its triggers does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from slackwater.bench.harness import machine, run_in_subprocess
from slackwater.bench.measure import backlog_grew, cause_of_end
from slackwater.bench.model import TUNED, Failure, Machine, RunSettings, RunSpec
from slackwater.bench.scale_search import largest
from slackwater.errors import ConfigurationError, SlackwaterError
from slackwater.provenance import commit
from slackwater.sim.experiment import Claim, claim
from slackwater.workloads.rate_source import require_exact_event_times
from slackwater.workloads.registry import workload_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from slackwater.bench.harness import Listener
    from slackwater.bench.model import RunResult

SCALE = "bench-scale"
OURS = "klink"
TIMES_TUNED = 1.5

By = Literal["queries", "rate"]


@dataclass(frozen=True)
class ScalePlan:
    """What is tried: sizes are multiples of `step` up to `most`, from `first` on; sweep: spark-tuned's triggers."""

    run: RunSpec  # its policy, seed, and queries or rate, are filled in for each run
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    by: By
    p99_s: float
    first: int
    most: int
    step: int
    sweep: tuple[str, ...] = ()

    def spec(self, policy: str, seed: int, size: int) -> RunSpec:
        if self.by == "queries":
            return replace(self.run, policy=policy, seed=seed, queries=size)
        return replace(self.run, policy=policy, seed=seed, rate=usable_rate(self.run.workload, size))

    def tried_by(self, policy: str) -> tuple[str, ...]:
        return self.sweep if policy == TUNED else (policy,)


@dataclass(frozen=True)
class Limit:
    """The most that a policy sustained, and what the next size failed by; `chosen`: spark-tuned's trigger there."""

    policy: str
    sustained: int | None  # None: not even the least size
    too_large: int | None  # None: the greatest size that was allowed is sustained
    stopped_by: str
    chosen: str | None = None


@dataclass(frozen=True)
class ScaleResult:
    """An experiment's rows and claims, with the limits of each policy and what was asked of all."""

    experiment: str
    seed: int
    commit: str | None
    workload: str
    by: By
    p99_s: float
    window_s: float
    slide_s: float | None
    seconds: float
    seeds: list[int]
    machine: Machine
    settings: RunSettings
    spark: str | None = None
    limits: list[Limit] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    complete: bool = False


ASSUMPTIONS = [
    "a size that is not sustained means that no greater one is; each is tried with every seed, until one fails",
    f"{TUNED} stops at the first trigger of its sweep that sustains a size, beginning with the one that did last",
]


def check_scale(plan: ScalePlan) -> None:
    """Raise ConfigurationError for what cannot be searched; the run itself is the harness's to check."""
    wrong = [
        (plan.p99_s <= 0, f"the target for p99 must be greater than 0 s; got {plan.p99_s:g}."),
        (plan.step < 1, f"the step between sizes must be at least 1; got {plan.step}."),
        (plan.first < plan.step, f"the first size must be at least the step, {plan.step}; got {plan.first}."),
        (plan.most < plan.first, f"the greatest size must be at least the first, {plan.first}; got {plan.most}."),
    ]
    for is_wrong, message in wrong:
        if is_wrong:
            raise ConfigurationError(message)


def usable_rate(workload: str, rate: int) -> int:
    """The first rate from `rate` on that all sources of the workload can share and an oracle can know."""
    streams = workload_entry(workload).streams
    share = -(-rate // streams)
    while True:
        try:
            require_exact_event_times(share)
        except ConfigurationError:
            share += 1
        else:
            return share * streams


def troubles(run: RunResult, p99_s: float, tolerance: float) -> list[str]:
    """Why a run did not sustain its load; empty when it did."""
    windows, p99 = run.windows, run.latency_s.p99
    missing = windows.expected - windows.emitted
    wrong = windows.wrong + windows.wrong_outside
    found = []
    if backlog_grew(run.backlog, tolerance):
        found.append(f"backlog growing: {run.backlog.first_third_s:.1f} to {run.backlog.last_third_s:.1f} s")
    if missing:
        found.append(f"windows missing: {missing} of {windows.expected}")
    if wrong:
        found.append(f"windows wrong: {wrong}")
    if not windows.expected:
        found.append("no window was due in the measured span")
    if p99 is not None and p99 > p99_s:
        found.append(f"p99 over target: {p99:.1f} s")
    return found


def scale(plan: ScalePlan, listener: Listener, told: Callable[[ScaleResult], None]) -> ScaleResult:
    """Search for every policy; `told` gets the result so far after every run."""
    check_scale(plan)
    search = _Scale(plan, listener, told)
    for policy in plan.policies:
        search.find(policy)
    return search.publish(complete=True)


class _Scale:
    def __init__(self, plan: ScalePlan, listener: Listener, told: Callable[[ScaleResult], None]) -> None:
        self.plan = plan
        self.listener = listener
        self.told = told
        run = plan.run
        self.result = ScaleResult(
            experiment=SCALE,
            seed=plan.seeds[0],
            commit=commit(),
            workload=run.workload,
            by=plan.by,
            p99_s=plan.p99_s,
            window_s=run.window_s,
            slide_s=run.slide_s,
            seconds=run.seconds,
            seeds=list(plan.seeds),
            machine=machine(),
            settings=replace(run.settings, warmup_min_s=run.warmup_min_s, drain_s=run.drain_s),
            assumptions=ASSUMPTIONS,
        )

    def find(self, policy: str) -> None:
        plan = self.plan
        stopped: dict[int, str] = {}
        chosen: dict[int, str] = {}

        def sustains(steps: int) -> bool:
            size = steps * plan.step
            contenders = plan.tried_by(policy)
            last = chosen.get(max(chosen, default=0))
            for contender in sorted(contenders, key=lambda name: name != last):
                trouble = self._trouble(policy, contender, size)
                if not trouble:
                    chosen[size] = contender
                    return True
                said = f"{contender}: {trouble}" if policy == TUNED else trouble
                stopped[size] = f"{stopped[size]}; {said}" if size in stopped else said
            return False

        bounds = largest(sustains, plan.first // plan.step, plan.most // plan.step)
        sustained = None if bounds.sustained is None else bounds.sustained * plan.step
        too_large = None if bounds.too_large is None else bounds.too_large * plan.step
        limit = Limit(
            policy=policy,
            sustained=sustained,
            too_large=too_large,
            stopped_by="nothing: the greatest size that was allowed" if too_large is None else stopped[too_large],
            chosen=None if policy != TUNED or sustained is None else chosen[sustained],
        )
        self.result = replace(self.result, limits=[*self.result.limits, limit])
        self.publish()

    def publish(self, *, complete: bool = False) -> ScaleResult:
        claims = list(_claims(self.result.limits, self.plan.by, self.result.rows)) if complete else []
        self.result = replace(self.result, claims=claims, complete=complete)
        self.told(self.result)
        return self.result

    def _trouble(self, policy: str, contender: str, size: int) -> str:
        """What the first seed that did not sustain the size failed by; empty when all did."""
        for seed in self.plan.seeds:
            spec = self.plan.spec(contender, seed, size)
            row = {"policy": policy, "contender": contender, "queries": spec.queries, "rate": spec.rate, "seed": seed}
            measured, trouble = self._measured(spec)
            self.result = replace(self.result, rows=[*self.result.rows, {**row, **measured}])
            self.publish()
            if trouble:
                return trouble if len(self.plan.seeds) == 1 else f"{trouble} (seed {seed})"
        return ""

    def _measured(self, spec: RunSpec) -> tuple[dict[str, Any], str]:
        try:
            found = run_in_subprocess(spec, lambda state: self.listener.state(spec, state))
        except SlackwaterError as error:
            self.listener.failed(Failure(spec.policy, spec.seed, str(error)))
            trouble = f"run failed: {cause_of_end(str(error))}"
            return {"sustained": False, "stopped_by": trouble}, trouble
        run = found.run
        self.result = replace(self.result, spark=found.spark, machine=replace(self.result.machine, java=found.java))
        self.listener.finished(run)
        trouble = ", ".join(troubles(run, self.plan.p99_s, spec.settings.kept_up_tolerance))
        return {
            "sustained": not trouble,
            "stopped_by": trouble,
            "cpu_cores": run.cpu_cores,
            "latency_mean_s": run.latency_s.mean,
            "latency_p99_s": run.latency_s.p99,
            "windows": f"{run.windows.emitted}/{run.windows.expected}",
            "wrong": run.windows.wrong + run.windows.wrong_outside,
            "events_per_s": run.events_per_s,
            "offered_events_per_s": run.offered_events_per_s,
            "backlog_first_third_s": run.backlog.first_third_s,
            "backlog_last_third_s": run.backlog.last_third_s,
            "warmed_up": run.warmed_up,
        }, trouble


def _claims(limits: Sequence[Limit], by: By, rows: Sequence[dict[str, Any]]) -> Iterator[Claim]:
    most = {limit.policy: limit.sustained or 0 for limit in limits}
    if OURS in most and most.get(TUNED):
        target = TIMES_TUNED if by == "queries" else 1.0
        what = "queries" if by == "queries" else "the rate"
        yield claim(f"{OURS}: sustains so many times {what} of {TUNED}", most[OURS] / most[TUNED], "≥", target)
    wrong = sum(row.get("wrong", 0) for row in rows)
    yield claim("windows with a wrong result, of all sizes", wrong, "≤", 0)
