"""A benchmark on the terminal: how far it is, the file that it leaves, and its end when somebody interrupts it."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from slackwater.bench.harness import Listener
from slackwater.errors import ConfigurationError
from slackwater.provenance import commit
from slackwater.sim.show import show
from slackwater.sim.trace import RunTrace, TraceFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rich.progress import TaskID

    from slackwater.bench.model import BenchResult, Failure, RunResult, RunSpec
    from slackwater.sim.experiment import Experiment

ABSENT = "-"

_Found = TypeVar("_Found", bound="Experiment")


def run_and_show(experiment: Callable[[Progress], _Found], json_file: Path | None) -> _Found:
    """Run an experiment with its progress on stderr, then print its rows and claims, and write them."""
    check_writable(json_file)
    progress = progress_bar()
    with progress, terminated_as_interrupted():
        found = experiment(progress)
    show(replace(found, commit=commit()), json_file)
    return found


def check_writable(file: Path | None, option: str = "--json") -> None:
    """Before hours are spent on what could not be written."""
    if file is not None and not file.absolute().parent.is_dir():
        raise ConfigurationError(f"{option} {file}: its folder does not exist; make it first.")


def progress_bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM end the running worker and its files as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Shown(Listener):
    """Progress on stderr, and the file after every run."""

    def __init__(
        self, progress: Progress, json_file: Path | None, trace_file: Path | None = None, workload: str = "ysb"
    ) -> None:
        self._progress = progress
        self._workload = workload
        self._json_file = json_file
        self._trace_file = trace_file
        self._traces: list[RunTrace] = []
        self._task: TaskID = progress.add_task("starting", total=None)

    def planned(self, runs: int) -> None:
        self._progress.update(self._task, total=runs)

    def state(self, spec: RunSpec, state: dict[str, Any]) -> None:
        place = next((f" {state[done]}/{state[of]:g}" for done, of in _PLACES if done in state), "")
        self._progress.update(
            self._task, description=f"{spec.policy} (seed {spec.seed}): {state.get('state', '')}{place}"
        )

    def finished(self, run: RunResult) -> None:
        self._progress.advance(self._task)
        windows = run.windows
        self._progress.console.print(
            f"{run.policy} (seed {run.seed}): mean {figure(run.latency_s.mean)} s, "
            f"{windows.emitted}/{windows.expected} windows, {windows.wrong} wrong, {run.cpu_cores:.2f} cores",
            highlight=False,
        )

    def traced(self, trace: dict[str, Any]) -> None:
        if self._trace_file is not None:
            self._traces.append(msgspec.convert(trace, RunTrace))
            write_trace(TraceFile(workload=self._workload, commit=commit(), runs=self._traces), self._trace_file)

    def failed(self, failure: Failure) -> None:
        self._progress.advance(self._task)
        self._progress.console.print(
            f"{failure.policy} (seed {failure.seed}) failed: {failure.error}", style="red", markup=False
        )

    def result(self, result: BenchResult) -> None:
        if self._json_file is not None:
            write_result(result, self._json_file)


_PLACES = (("s", "of_s"), ("done", "of"))


def write_result(result: BenchResult, file: Path) -> None:
    """Replace the file in one step, so that an interrupted benchmark leaves what it had measured."""
    replace_file(file, msgspec.json.format(msgspec.json.encode(result), indent=1))


def write_trace(traces: TraceFile, file: Path) -> None:
    replace_file(file, msgspec.json.encode(traces))


def replace_file(file: Path, text: bytes) -> None:
    partial = file.with_name(file.name + ".partial")
    partial.write_bytes(text + b"\n")
    partial.replace(file)


def figure(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.2f}"
