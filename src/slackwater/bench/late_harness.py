"""Runs `slackwater bench late`: every contender and number of past windows in a process group of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from slackwater.bench.harness import machine, run_child
from slackwater.bench.late_model import (
    BatchTimes,
    LateResult,
    LateRun,
    LateRunSpec,
    LateWorkerResult,
    LiveHeap,
    Resident,
    check,
)
from slackwater.bench.measure import cause_of_end, distribution
from slackwater.errors import SlackwaterError
from slackwater.provenance import commit

if TYPE_CHECKING:
    from collections.abc import Callable

    from slackwater.bench.late_model import LatePlan


class LateListener:
    """What the harness tells while it runs; by default nothing."""

    def planned(self, specs: list[LateRunSpec]) -> None: ...

    def state(self, spec: LateRunSpec, state: dict[str, Any]) -> None: ...

    def finished(self, run: LateRun, error: str) -> None:
        """`error`: all that a run said that gave no result of its own."""

    def result(self, result: LateResult) -> None: ...


def run_late(plan: LatePlan, listener: LateListener) -> LateResult:
    """Run the plan; the listener gets the result so far after every run. One that dies stops no other."""
    check(plan)
    specs = plan.specs()
    listener.planned(specs)
    run = plan.run
    result = LateResult(
        workload=run.workload,
        kind=run.kind,
        rate=run.rate,
        window_s=run.window_s,
        payload_bytes=run.payload_bytes,
        watermark_s=run.watermark_s,
        staleness=run.staleness,
        trigger_s=run.trigger_s,
        bursts=run.bursts,
        seed=run.seed,
        seconds=run.seconds,
        commit=commit(),
        spark=None,
        machine=machine(),
        settings=run.settings,
    )
    for spec in specs:
        last_state: dict[str, Any] = {}

        def on_state(state: dict[str, Any], spec: LateRunSpec = spec, last: dict[str, Any] = last_state) -> None:
            last.update(state)
            listener.state(spec, state)

        error = ""
        try:
            found = run_late_in_subprocess(spec, on_state)
        except SlackwaterError as failed:
            error = str(failed)
            measured = died(spec, error, last_state)
        else:
            measured = found.run
            result = replace(result, spark=found.spark, machine=replace(result.machine, java=found.java))
        result = replace(result, runs=[*result.runs, measured])
        listener.finished(measured, error)
        listener.result(result)
    result = replace(result, complete=True)
    listener.result(result)
    return result


def run_late_in_subprocess(spec: LateRunSpec, on_state: Callable[[dict[str, Any]], None]) -> LateWorkerResult:
    said = run_child(
        "slackwater.bench.late_worker",
        lambda scratch: msgspec.json.encode(replace(spec, scratch=scratch)),
        f"{spec.contender}, {spec.past_windows} past windows",
        spec.timeout_s,
        on_state,
        hint="It may be collecting garbage: give it a larger heap.",
    )
    return msgspec.json.decode(said, type=LateWorkerResult)


def died(spec: LateRunSpec, error: str, last_state: dict[str, Any]) -> LateRun:
    """A run whose process is gone, or that did not end."""
    return LateRun(
        contender=spec.contender,
        past_windows=spec.past_windows,
        outcome="died",
        reason=cause_of_end(error),
        latency_s=distribution([]),
        windows=None,
        overdue=0,
        live_heap_mb=LiveHeap(None, None, 0, None),
        resident_mb=Resident(None, None, None),
        cpu_cores=None,
        other_cores=None,
        batch_s=BatchTimes(0),
        add_batch_s=BatchTimes(0),
        rows_per_s=None,
        offered_rows_per_s=float(spec.rate),
        behind_rows=None,
        lived_s=float(last_state.get("lived_s", 0.0)),
        seconds=0.0,
    )
