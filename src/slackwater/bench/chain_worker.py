"""One run of a chain: `python -m slackwater.bench.chain_worker < spec.json > result.json`.

Starts the two applications, each in a process of its own, warms up, marks the measured span in both, and lets the
second one drain before either stops. CPU time is that of everything below this process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import msgspec

from slackwater.bench.chain_model import Ask, ChainRun, ChainSpec, Stage, StageTold
from slackwater.bench.child import answer, now_ms, report
from slackwater.bench.cpu import tree_cpu_s
from slackwater.bench.measure import distribution
from slackwater.errors import SlackwaterError


class _Process:
    """One application; asked line by line. It shares this process's group, and ends with it."""

    def __init__(self, spec: ChainSpec, role: str, folder: Path) -> None:
        self.role = role
        # Neighbours are looked for among these two, and nobody else's.
        environment = {**os.environ, "SLACKWATER_RUNTIME_DIR": str(folder / "run")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "slackwater.bench.chain_stage"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self.ask(Stage(spec, role, str(folder)))

    def ask(self, what: Any) -> None:
        assert self._process.stdin is not None  # noqa: S101  # a pipe was asked for
        try:
            self._process.stdin.write(msgspec.json.encode(what) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def hear(self) -> bytes:
        assert self._process.stdout is not None  # noqa: S101
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        return line

    def _ended(self) -> SlackwaterError:
        return SlackwaterError(f"the application {self.role!r} ended with {self._process.wait()}; its log tells why.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()


def run(spec: ChainSpec) -> ChainRun:
    folder = Path(spec.scratch or ".")
    report("enrich starts")
    with _Process(spec, "enrich", folder) as enrich:
        enrich.hear()
        report("windows start")
        with _Process(spec, "windows", folder) as count:
            count.hear()
            _wait(spec.warmup_s, "warming up")
            from_ms, from_cpu_s = _mark(enrich, count)
            _wait(spec.seconds, "measuring")
            to_ms, to_cpu_s = _mark(enrich, count)
            report("draining")
            count.ask(Ask("end", from_ms, to_ms, spec.longest_drain_s))
            counted = msgspec.json.decode(count.hear(), type=StageTold)
            enrich.ask(Ask("end", from_ms, to_ms))
            enriched = msgspec.json.decode(enrich.hear(), type=StageTold)
    return ChainRun(
        contender=spec.contender,
        seed=spec.seed,
        latency_s=distribution(counted.latencies_s),
        end_to_end_s=distribution(counted.end_to_end_s),
        windows=counted.windows,
        cpu_cores=round((to_cpu_s - from_cpu_s) / ((to_ms - from_ms) / 1000), 4),
        enrich=enriched,
        count=replace(counted, latencies_s=[], end_to_end_s=[]),
        end_to_end_all_s=sorted(counted.end_to_end_s),
        latency_all_s=sorted(counted.latencies_s),
    )


def _mark(*stages: _Process) -> tuple[int, float]:
    for stage in stages:
        stage.ask(Ask("mark"))
        stage.hear()
    return now_ms(), tree_cpu_s()


def _wait(seconds: float, what: str) -> None:
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        report(what, s=round(passed), of_s=round(seconds))
        time.sleep(min(1.0, seconds - passed))


def main() -> None:
    answer(ChainSpec, run)


if __name__ == "__main__":
    main()
