"""Runs a benchmark: every policy and seed in a process group of its own, one after the other.

Within a seed the policies take turns, so that what drifts on the machine drifts for all of them.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
import psutil

from slackwater.bench.measure import best_of_sweep, summarise
from slackwater.bench.model import (
    TUNED,
    BenchPlan,
    BenchResult,
    Failure,
    Machine,
    RunResult,
    RunSpec,
    WorkerResult,
    contender,
)
from slackwater.bench.producer import delays_of
from slackwater.bench.slowdown import mix_claims
from slackwater.cluster import ClusterPlan
from slackwater.errors import ConfigurationError, SlackwaterError
from slackwater.kafka.jars import broker_jars, connector_jars, fetched
from slackwater.kafka.topics import client
from slackwater.provenance import commit
from slackwater.workloads.on_topics import topic_form
from slackwater.workloads.registry import workload_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from slackwater.bench.model import OnCluster, OnKafka, RunSettings

KEPT_LINES = 30
KILL_AFTER_S = 5.0


class Listener:
    """What the harness tells while it runs; by default nothing."""

    def planned(self, runs: int) -> None: ...

    def state(self, spec: RunSpec, state: dict[str, Any]) -> None: ...

    def finished(self, run: RunResult) -> None: ...

    def traced(self, trace: dict[str, Any]) -> None: ...

    def failed(self, failure: Failure) -> None: ...

    def result(self, result: BenchResult) -> None: ...


def check(plan: BenchPlan) -> None:
    """Raise ConfigurationError for a plan that cannot be run, before anything is started."""
    run = plan.run
    wrong = [
        (run.seconds <= 0, f"seconds must be greater than 0; got {run.seconds:g}."),
        (run.settings.cores < 1, f"cores must be at least 1; got {run.settings.cores}."),
        (run.settings.partitions < 1, f"partitions must be at least 1; got {run.settings.partitions}."),
        (not plan.policies, "no policy to run; name some, as in --policies spark-fair,klink."),
        (
            len(set(plan.policies)) < len(plan.policies),
            f"a policy is named twice: {','.join(plan.policies)}.",
        ),
        (not plan.seeds, "seeds must be at least 1."),
        (
            TUNED in plan.policies and not plan.sweep,
            f"{TUNED} needs intervals to try, as in --sweep 2,3,4.",
        ),
    ]
    for is_wrong, message in wrong:
        if is_wrong:
            raise ConfigurationError(message)
    if run.cluster is not None:
        _check_cluster(run.cluster, run.seconds)
    if run.kafka is not None:
        _check_kafka(run.kafka, run)
    if run.groups:
        for group, part in zip(run.groups, run.parts(), strict=True):
            try:
                _check_queries(part)
            except ConfigurationError as error:
                raise ConfigurationError(f"group {group.name!r}: {error}") from error
    else:
        _check_queries(run)
    for policy in (*plan.policies, *plan.sweep):
        if policy != TUNED:
            contender(policy)


def _check_queries(run: RunSpec) -> None:
    wrong = [
        (run.queries < 1, f"queries must be at least 1; got {run.queries}."),
        (run.window_s < 0.1, f"windows must be at least 0.1 s; got {run.window_s:g}."),
        (run.delay_s < 0, f"the watermark delay must not be negative; got {run.delay_s:g} s."),
        (run.phases not in ("spread", "aligned"), f"phases are spread or aligned; got {run.phases!r}."),
    ]
    for is_wrong, message in wrong:
        if is_wrong:
            raise ConfigurationError(message)
    # A topic's rows have one form, whatever the embedded source would make.
    payload = run.payload if run.kafka is None else "columns"
    workload_entry(run.workload).check(payload, run.rate, run.window_s, run.slide_s)


def _check_cluster(cluster: OnCluster, seconds: float) -> None:
    ClusterPlan(cluster.workers, cluster.cores_per_worker, cluster.memory)
    kill_s = cluster.kill_worker_after_s
    if kill_s is None:
        return
    if not 0 <= kill_s < seconds:
        raise ConfigurationError(
            f"a worker is killed in the measured span of {seconds:g} s, not after {kill_s:g} s: give a time within it."
        )
    if cluster.workers < 2:
        raise ConfigurationError("with a single worker nothing runs while it is dead: take a cluster of 2 or more.")
    if not 0 <= cluster.back_after_s <= seconds:
        raise ConfigurationError(
            f"a killed worker comes back after 0 to {seconds:g} s (the measured span); got {cluster.back_after_s:g}."
        )


def _check_kafka(kafka: OnKafka, run: RunSpec) -> None:
    delays_of(kafka.network, kafka.longest_s)
    form = topic_form(run.workload)
    if run.payload != form.payload:
        raise ConfigurationError(f"on Kafka the payload of {run.workload} is {form.payload}; got {run.payload!r}.")
    if kafka.network != "none" and kafka.longest_s >= run.delay_s:
        raise ConfigurationError(
            f"network delays of up to {kafka.longest_s:g} s are late for a watermark that waits {run.delay_s:g} s, "
            "and which of them Spark leaves out depends on its batches. Make --network-longest shorter than --delay."
        )
    if run.cluster is not None:
        raise ConfigurationError("--source kafka and --cluster are not measured together; leave one of them out.")
    client()
    for wanted in (broker_jars(), connector_jars()):
        fetched(wanted)


def run_bench(plan: BenchPlan, listener: Listener) -> BenchResult:
    """Run the plan; the listener gets the result so far after every run. A failed run stops no other."""
    check(plan)
    bench = _Bench(plan, listener)
    listener.planned(bench.planned_runs())
    for seed in plan.seeds:
        for policy in plan.policies:
            if policy == TUNED:
                bench.run_tuned(seed)
            else:
                bench.run(policy, seed)
    bench.publish(complete=True)
    return bench.result


class _Bench:
    def __init__(self, plan: BenchPlan, listener: Listener) -> None:
        self.plan = plan
        self.listener = listener
        self.tuned: str | None = None
        run = plan.run
        self.result = BenchResult(
            workload=run.workload,
            queries=run.queries,
            rate=run.rate,
            window_s=run.window_s,
            delay_s=run.delay_s,
            seconds=run.seconds,
            phases=_common(part.phases for part in run.parts()),
            payload=_common(part.payload for part in run.parts()),
            seed=plan.seeds[0],
            seeds=list(plan.seeds),
            commit=commit(),
            spark=None,
            machine=machine(),
            settings=_resolved(run),
            cluster=run.cluster,
            kafka=run.kafka,
            slide_s=run.slide_s,
            mix=plan.mix,
        )

    def planned_runs(self) -> int:
        extra = len(self.plan.sweep) if TUNED in self.plan.policies else 0
        return len(self.plan.seeds) * len(self.plan.policies) + extra

    def run(self, policy: str, seed: int) -> RunResult | None:
        run = self._measured(policy, seed)
        if run is not None:
            self._add(run)
        return run

    def run_tuned(self, seed: int) -> None:
        """The first seed sweeps the intervals; the others run the one that was best."""
        if self.tuned is not None:
            run = self._measured(self.tuned, seed)
            if run is not None:
                self._add(replace(run, policy=TUNED, chosen=self.tuned))
            return
        sweep = []
        for policy in self.plan.sweep:
            run = self._measured(policy, seed)
            if run is not None:
                sweep.append(replace(run, sweep_of=TUNED))
                self._add(sweep[-1])
        best = best_of_sweep(sweep)
        if best is None:
            self._fail(Failure(TUNED, seed, "no run of its sweep succeeded."))
            return
        self.tuned = best.policy
        self._add(replace(best, policy=TUNED, chosen=best.policy, sweep_of=None))

    def publish(self, *, complete: bool = False) -> None:
        summary = summarise(self.result.runs)
        claims = [] if self.plan.mix is None else mix_claims(self.result.runs)
        self.result = replace(self.result, summary=summary, claims=claims, complete=complete)
        self.listener.result(self.result)

    def _measured(self, policy: str, seed: int) -> RunResult | None:
        spec = self.plan.spec(policy, seed)
        try:
            found = run_in_subprocess(spec, lambda state: self.listener.state(spec, state))
        except SlackwaterError as error:
            self._fail(Failure(policy, seed, str(error)))
            return None
        self.result = replace(self.result, spark=found.spark, machine=replace(self.result.machine, java=found.java))
        if found.trace is not None:
            self.listener.traced(found.trace)
        return found.run

    def _add(self, run: RunResult) -> None:
        self.result = replace(self.result, runs=[*self.result.runs, run])
        self.listener.finished(run)
        self.publish()

    def _fail(self, failure: Failure) -> None:
        self.result = replace(self.result, failures=[*self.result.failures, failure])
        self.listener.failed(failure)
        self.publish()


def run_in_subprocess(spec: RunSpec, on_state: Callable[[dict[str, Any]], None]) -> WorkerResult:
    """One run in a fresh process."""
    what = f"{spec.policy}, seed {spec.seed}"
    said = run_child(
        "slackwater.bench.worker",
        lambda scratch: msgspec.json.encode(replace(spec, scratch=scratch)),
        what,
        spec.timeout_s,
        on_state,
        hint="Ask for fewer queries, or allow a longer grace_s.",
    )
    return msgspec.json.decode(said, type=WorkerResult)


def run_child(
    module: str,
    spec_in: Callable[[str], bytes],
    what: str,
    timeout_s: float,
    on_state: Callable[[dict[str, Any]], None],
    *,
    hint: str,
) -> bytes:
    """`python -m module`, with a spec on stdin, to its result; whatever happens, no process and no file of it is left.

    spec_in: makes the spec, given a folder that the child may use.
    """
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        spec_file, result_file = scratch / "spec.json", scratch / "result.json"
        spec_file.write_bytes(spec_in(folder))
        with spec_file.open("rb") as stdin, result_file.open("wb") as stdout:
            process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        assert process.stderr is not None  # noqa: S101  # a pipe was asked for
        stderr = _Stderr(process.stderr, on_state)
        try:
            process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise SlackwaterError(
                f"{what}: not over after {timeout_s:.0f} s; its last state was {stderr.last_state!r}. {hint}"
            ) from None
        finally:
            _end_group(process)
            stderr.join()
        if process.returncode != 0:
            raise SlackwaterError(f"{what}: ended with {process.returncode}. {stderr.story()}")
        return result_file.read_bytes()


def _end_group(process: subprocess.Popen[str]) -> None:
    """End the worker and the JVM that it started: they share a process group, whose id is the worker's."""
    try:
        os.killpg(process.pid, signal.SIGTERM)
        psutil.wait_procs(_group(process.pid), timeout=KILL_AFTER_S)
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _group(group: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group:
                found.append(process)
        except ProcessLookupError:
            continue
    return found


@dataclass
class _Stderr:
    """Reads a worker's stderr: states to the listener, the rest kept for the story of a failure."""

    stream: IO[str]
    on_state: Callable[[dict[str, Any]], None]
    last_state: str = "not started"
    error: str | None = None
    fatal: str | None = None
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._read, name="worker-stderr", daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()
        self.stream.close()

    def story(self) -> str:
        """What the worker said of its end; the JVM's first fatal error, which may be long before, comes along."""
        told = self.error or "Its last lines: " + "\n".join(self.lines)
        return told if self.fatal is None else f"{self.fatal}\n{told}"

    def _read(self) -> None:
        for line in self.stream:
            try:
                message = msgspec.json.decode(line) if line.startswith("{") else None
            except msgspec.DecodeError:
                message = None
            if not isinstance(message, dict):
                self.lines.append(line.rstrip())
                if self.fatal is None and line.startswith("java.lang.OutOfMemoryError"):
                    self.fatal = line.rstrip()
            elif "error" in message:
                self.error = message["error"]
            else:
                self.last_state = message.get("state", self.last_state)
                self.on_state(message)


def _common(values: Iterable[str]) -> str:
    found = set(values)
    return found.pop() if len(found) == 1 else "mixed"


def _resolved(run: RunSpec) -> RunSettings:
    """The settings with their defaults worked out, so that the file says what was done."""
    cores = run.settings.cores if run.cluster is None else run.cluster.cores
    return replace(run.settings, cores=cores, warmup_min_s=run.warmup_min_s, drain_s=run.drain_s)


def machine() -> Machine:
    """What a reader must know about the machine, and nothing that identifies it."""
    return Machine(
        cores=os.cpu_count() or 1,
        cpu=_cpu_model(),
        memory_gb=round(psutil.virtual_memory().total / 1024**3, 1),
        os=platform.system(),
        python=platform.python_version(),
        java=None,
    )


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
