"""Result files of `slackwater bench`, read and brought together: settings, policies, how they compare."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

OURS = "klink"
SPARK_PREFIX = "spark-"
ABSENT = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    expected: int | None = None
    emitted: int | None = None
    wrong: int | None = None


class SchedulerCost(msgspec.Struct, frozen=True, kw_only=True):
    decision_ms_p99: float | None = None
    overhead_pct: float | None = None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A group or a class of a mix."""

    name: str
    queries: int
    slowdown: Quantiles
    latency_s: Quantiles
    windows: Windows


class MixFacts(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    groups: list[dict[str, Any]]


class BenchRun(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    latency_s: Quantiles
    seed: int | None = None
    propagation_s: Quantiles | None = None
    windows: Windows | None = None
    cpu_cores: float | None = None
    batches: float | None = None
    scheduler: SchedulerCost | None = None
    steady: bool | None = None
    seconds: float | None = None
    latencies_s: list[float] | None = None
    sweep_of: str | None = None
    chosen: bool | str | None = None
    """On the row that a sweep ends in: which of the swept policies it is."""
    per_group: list[Part] = []
    per_class: list[Part] = []


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    error: str
    seed: int | None = None


class BenchFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a report needs of a bench result; other keys are left alone."""

    workload: str
    queries: int
    rate: float
    window_s: float
    seconds: float
    runs: list[BenchRun]
    seed: int | None = None
    commit: str | None = None
    spark: Any = None
    machine: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    phases: str | None = None
    delay_s: float | None = None
    payload: str | None = None
    slide_s: float | None = None
    mix: MixFacts | None = None
    failures: list[Failure] = []
    complete: bool = True

    @property
    def conditions(self) -> Conditions:
        """Spark's cores, where the file names them, and else the machine's."""
        cores = self.settings.get("cores", self.machine.get("cores"))
        return Conditions(
            workload=self.workload if self.mix is None else f"{self.workload} {self.mix.name}",
            rate=self.rate,
            window_s=self.window_s,
            delay_s=self.delay_s,
            phases=self.phases,
            payload=self.payload,
            slide_s=self.slide_s,
            cores=cores if isinstance(cores, int | float) else None,
            mix=None if self.mix is None else msgspec.json.encode(self.mix).decode(),
            groups=0 if self.mix is None else len(self.mix.groups),
        )


@dataclass(frozen=True)
class Conditions:
    """What must be alike for runs with different numbers of queries to share a plot."""

    workload: str
    rate: float
    window_s: float
    delay_s: float | None
    phases: str | None
    payload: str | None
    cores: float | None
    slide_s: float | None = None
    mix: str | None = None
    """All that its file says of each group."""
    groups: int = 0

    @property
    def text(self) -> str:
        if self.mix is None:
            parts = [f"{TIMES} {grouped(self.rate)} events/s", f"{grouped(self.window_s)} s windows"]
        else:
            parts = [f"in {self.groups} groups"]
        if self.slide_s:
            parts.append(f"every {grouped(self.slide_s)} s")
        if self.phases:
            parts.append(f"{self.phases} phases")
        if self.payload and self.payload != "columns":
            parts.append(f"{self.payload} payload")
        if self.cores:
            parts.append(f"{grouped(self.cores)} cores")
        return f"queries {', '.join(parts)}"


@dataclass(frozen=True)
class Spread:
    """A figure over the runs of one policy: the mean of the runs, and the least and the greatest run."""

    mean: float
    low: float
    high: float

    @staticmethod
    def of(values: Iterable[float | None]) -> Spread | None:
        known = [value for value in values if value is not None]
        return Spread(sum(known) / len(known), min(known), max(known)) if known else None


@dataclass(frozen=True)
class PolicyRow:
    """All runs of one policy in one setting; windows are summed, all other figures are spreads."""

    policy: str
    runs: int
    steady_runs: int
    mean_s: Spread | None
    p50_s: Spread | None
    p90_s: Spread | None
    p99_s: Spread | None
    max_s: Spread | None
    propagation_mean_s: Spread | None
    cpu_cores: Spread | None
    batches_per_s: Spread | None
    windows_expected: int | None
    windows_emitted: int | None
    windows_wrong: int | None
    decision_ms_p99: Spread | None
    overhead_pct: Spread | None
    latencies_s: tuple[float, ...]
    sweep_of: str | None
    chosen: bool

    @property
    def is_spark(self) -> bool:
        return self.policy.startswith(SPARK_PREFIX)

    @property
    def is_steady(self) -> bool:
        return self.steady_runs == self.runs


@dataclass(frozen=True)
class PartRow:
    """All runs of one policy, for one group or class of a mix; windows are summed."""

    name: str
    policy: str
    queries: int
    slowdown_mean: Spread | None
    slowdown_p99: Spread | None
    mean_s: Spread | None
    p99_s: Spread | None
    windows_expected: int | None
    windows_emitted: int | None
    windows_wrong: int | None


@dataclass(frozen=True)
class Setting:
    """Runs that may be compared with each other: same conditions, same number of queries."""

    conditions: Conditions
    queries: int
    policies: tuple[PolicyRow, ...]
    sweep: tuple[PolicyRow, ...]
    classes: tuple[PartRow, ...] = ()
    groups: tuple[PartRow, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.conditions.workload}: {self.queries} {self.conditions.text}"

    @property
    def cores(self) -> float | None:
        return self.conditions.cores


@dataclass(frozen=True)
class Comparison:
    """klink and the Spark policy with the least mean latency among those steady in every run."""

    ours: PolicyRow
    baseline: PolicyRow
    mean_ratio: float
    p99_ratio: float | None

    @property
    def sentence(self) -> str:
        figures = f"{times_lower(self.mean_ratio)} mean"
        if self.p99_ratio is not None:
            figures += f" and {times_lower(self.p99_ratio)} p99"
        baseline = f"{self.baseline.policy}, the best steady Spark baseline"
        return f"{self.ours.policy}: {figures} latency than {baseline}"


def compare(setting: Setting) -> Comparison | None:
    """None when klink did not run, or when no Spark policy was steady in every run."""
    ours = next((row for row in setting.policies if row.policy == OURS), None)
    steady = [
        (row.mean_s.mean, row) for row in setting.policies if row.is_spark and row.is_steady and row.mean_s is not None
    ]
    if ours is None or not ours.mean_s or not ours.mean_s.mean or not steady:
        return None
    baseline_s, baseline = min(steady, key=lambda pair: pair[0])
    p99_ratio = baseline.p99_s.mean / ours.p99_s.mean if baseline.p99_s and ours.p99_s and ours.p99_s.mean else None
    return Comparison(ours, baseline, baseline_s / ours.mean_s.mean, p99_ratio)


def short_headline(setting: Setting) -> str:
    found = compare(setting)
    if found is not None:
        return found.sentence + ("" if found.ours.is_steady else f" ({OURS} was not steady)")
    if all(row.policy != OURS for row in setting.policies):
        return f"no run of {OURS} in these files: no ratio"
    return f"no Spark policy is marked steady in every run: no ratio for {OURS}"


def headline(setting: Setting) -> str:
    """The measured ratio, the figures behind it, and whatever speaks against them."""
    found = compare(setting)
    text = short_headline(setting)
    if found is not None:
        ours, baseline = found.ours, found.baseline
        text += f"; {shown(ours.mean_s)} s against {shown(baseline.mean_s)} s mean"
        if found.p99_ratio is not None:
            text += f", {shown(ours.p99_s)} s against {shown(baseline.p99_s)} s p99"
        if ours.cpu_cores and baseline.cpu_cores:
            text += f", on {shown(ours.cpu_cores)} against {shown(baseline.cpu_cores)} cores"
        for row in (ours, baseline):
            if row.windows_wrong:
                text += f". Beware: {row.policy} put out {row.windows_wrong} wrong windows"
            missing = (row.windows_expected or 0) - (row.windows_emitted or 0)
            if row.windows_emitted is not None and missing > 0:
                text += f". Beware: {missing} windows of {row.policy} were due and did not come out"
    return text + "."


def figure_of(value: float) -> str:
    """About three digits, as many as such a measurement carries."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def grouped(value: float) -> str:
    """10000 as `10 000`, with a space that does not break."""
    return f"{value:,.10g}".replace(",", "\N{NO-BREAK SPACE}")


def times_lower(ratio: float) -> str:
    lower = ratio >= 1
    factor = ratio if lower else 1 / ratio if ratio else float("inf")
    return f"{factor:.{1 if factor >= 1.5 else 2}f}{TIMES} {'lower' if lower else 'higher'}"


def read_result(path: Path) -> BenchFile:
    advice = "Give files that `slackwater bench WORKLOAD --json FILE` wrote."
    try:
        found = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}. {advice}") from error
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{path} is not a bench result: it is not JSON ({error}). {advice}") from error
    if not isinstance(found, dict):
        raise ConfigurationError(
            f"{path} is not a bench result: found a JSON {type(found).__name__}, not an object. {advice}"
        )
    try:
        result = msgspec.convert(found, BenchFile)
    except msgspec.ValidationError as error:
        keys = ", ".join(sorted(found)[:12]) or "none"
        kind = "; this looks like the result of an experiment with claims" if "experiment" in found else ""
        raise ConfigurationError(
            f"{path} is not a bench result: {error}; found the keys: {keys}{kind}. {advice}"
        ) from error
    if not result.runs:
        raise ConfigurationError(f"{path} holds no runs, so there is nothing to report. {advice}")
    return result


def settings_of(results: Iterable[BenchFile]) -> list[Setting]:
    """In the order of the files."""
    alike: dict[tuple[Conditions, int], list[BenchFile]] = defaultdict(list)
    for result in results:
        alike[result.conditions, result.queries].append(result)
    return [_setting(conditions, queries, group) for (conditions, queries), group in alike.items()]


def _setting(conditions: Conditions, queries: int, results: list[BenchFile]) -> Setting:
    alike: dict[tuple[str, str | None], list[tuple[BenchRun, float]]] = defaultdict(list)
    for result in results:
        for run in result.runs:
            alike[run.policy, run.sweep_of].append((run, run.seconds or result.seconds))
    chosen = {run.chosen for runs in alike.values() for run, _ in runs if isinstance(run.chosen, str)}
    rows = sorted(
        (_row(policy, sweep_of, runs, policy in chosen) for (policy, sweep_of), runs in alike.items()),
        key=lambda row: (row.is_spark, row.mean_s.mean if row.mean_s else float("inf"), row.policy),
    )
    return Setting(
        conditions=conditions,
        queries=queries,
        policies=tuple(row for row in rows if row.sweep_of is None),
        sweep=tuple(row for row in rows if row.sweep_of is not None),
        classes=_parts((run.policy, run.per_class) for result in results for run in result.runs if not run.sweep_of),
        groups=_parts((run.policy, run.per_group) for result in results for run in result.runs if not run.sweep_of),
    )


def _parts(runs: Iterable[tuple[str, list[Part]]]) -> tuple[PartRow, ...]:
    """A row for each part and policy, the policies of a part together."""
    alike: dict[tuple[str, str], list[Part]] = defaultdict(list)
    for policy, parts in runs:
        for part in parts:
            alike[part.name, policy].append(part)
    names = list(dict.fromkeys(name for name, _ in alike))
    return tuple(
        PartRow(
            name=name,
            policy=policy,
            queries=parts[0].queries,
            slowdown_mean=Spread.of(part.slowdown.mean for part in parts),
            slowdown_p99=Spread.of(part.slowdown.p99 for part in parts),
            mean_s=Spread.of(part.latency_s.mean for part in parts),
            p99_s=Spread.of(part.latency_s.p99 for part in parts),
            windows_expected=_total(part.windows.expected for part in parts),
            windows_emitted=_total(part.windows.emitted for part in parts),
            windows_wrong=_total(part.windows.wrong for part in parts),
        )
        for (name, policy), parts in sorted(alike.items(), key=lambda item: names.index(item[0][0]))
    )


def _row(policy: str, sweep_of: str | None, timed: list[tuple[BenchRun, float]], is_named: bool) -> PolicyRow:
    runs = [run for run, _ in timed]
    propagation = [run.propagation_s for run in runs if run.propagation_s]
    windows = [run.windows for run in runs if run.windows]
    scheduler = [run.scheduler for run in runs if run.scheduler]
    return PolicyRow(
        policy=policy,
        runs=len(runs),
        steady_runs=sum(run.steady is True for run in runs),
        mean_s=Spread.of(run.latency_s.mean for run in runs),
        p50_s=Spread.of(run.latency_s.p50 for run in runs),
        p90_s=Spread.of(run.latency_s.p90 for run in runs),
        p99_s=Spread.of(run.latency_s.p99 for run in runs),
        max_s=Spread.of(run.latency_s.max for run in runs),
        propagation_mean_s=Spread.of(quantiles.mean for quantiles in propagation),
        cpu_cores=Spread.of(run.cpu_cores for run in runs),
        batches_per_s=Spread.of(
            run.batches / seconds for run, seconds in timed if run.batches is not None and seconds > 0
        ),
        windows_expected=_total(window.expected for window in windows),
        windows_emitted=_total(window.emitted for window in windows),
        windows_wrong=_total(window.wrong for window in windows),
        decision_ms_p99=Spread.of(cost.decision_ms_p99 for cost in scheduler),
        overhead_pct=Spread.of(cost.overhead_pct for cost in scheduler),
        latencies_s=tuple(sorted(chain.from_iterable(run.latencies_s or () for run in runs))),
        sweep_of=sweep_of,
        chosen=sweep_of is not None and (is_named or any(run.chosen is True for run in runs)),
    )


def _total(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def shown(value: Spread | None) -> str:
    return ABSENT if value is None else figure_of(value.mean)
