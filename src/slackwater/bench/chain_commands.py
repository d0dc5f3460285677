"""`slackwater bench chain`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from slackwater.bench.chain import chain, check
from slackwater.bench.chain_model import ChainRun, ChainSpec
from slackwater.bench.commands import names_in
from slackwater.bench.showing import run_and_show
from slackwater.workloads.ysb import PayloadKind  # noqa: TC001  # cyclopts

if TYPE_CHECKING:
    from rich.progress import Progress


def bench_chain(
    *,
    pipelines: int = 6,
    rate: int = 5_000,
    window: float = 10.0,
    delay: float = 1.0,
    seconds: float = 60.0,
    warmup: float = 90.0,
    policies: str = "klink,klink+forward,spark-staggered-2s",
    payload: PayloadKind = "json",
    seeds: int = 1,
    cores: int = 2,
    heap: str = "1g",
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """Do results of chained applications leave sooner when their schedulers tell each other what they need?

    Parameters
    ----------
    pipelines
        Pairs of queries: one cleans and enriches in the first application, one counts windows in the second.
    rate
        Events per second of each pipeline.
    window
        Length of the windows in seconds.
    delay
        Watermark delay in seconds.
    seconds
        Length of the measured span.
    warmup
        Seconds before it, once all queries run: what schedulers learnt while Spark was cold must be outweighed.
    policies
        Names, with commas; +forward behind a name lets the two schedulers forward.
    payload
        Events as JSON strings that the first application parses, or as columns.
    seeds
        Number of seeds.
    cores
        Cores that each of the two applications gets.
    heap
        Heap of each JVM.
    json_file
        File for rows and claims.
    """
    spec = ChainSpec(
        contender="",
        seed=0,
        pipelines=pipelines,
        rate=rate,
        window_s=window,
        delay_s=delay,
        seconds=seconds,
        warmup_s=warmup,
        payload=payload,
        cores=cores,
        heap=heap,
    )
    names = names_in(policies)
    check(spec, names, seeds)
    run_and_show(lambda progress: chain(spec, names, range(seeds), _Shown(progress)), json_file)


class _Shown:
    """Progress on stderr."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("starting", total=None)

    def planned(self, runs: int) -> None:
        self._progress.update(self._task, total=runs)

    def state(self, spec: ChainSpec, state: dict[str, Any]) -> None:
        place = f" {state['s']}/{state['of_s']}" if "s" in state else ""
        self._progress.update(
            self._task, description=f"{spec.contender} (seed {spec.seed}): {state.get('state', '')}{place}"
        )

    def finished(self, run: ChainRun) -> None:
        self._progress.advance(self._task)
        mean = run.end_to_end_s.mean
        self._progress.console.print(
            f"{run.contender} (seed {run.seed}): end to end {'-' if mean is None else f'{mean:.2f}'} s, "
            f"{run.windows.emitted}/{run.windows.expected} windows, {run.windows.wrong} wrong, "
            f"{run.cpu_cores:.2f} cores",
            highlight=False,
        )

    def failed(self, spec: ChainSpec, error: str) -> None:
        self._progress.advance(self._task)
        self._progress.console.print(f"{spec.contender} (seed {spec.seed}) failed: {error}", style="red", markup=False)
