"""`slackwater sim NAME`: run an experiment, print its rows and claims, write them as JSON."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path  # noqa: TC003  # cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from slackwater.errors import ConfigurationError, unknown_name
from slackwater.extras import require
from slackwater.provenance import commit
from slackwater.sim import estimator, haren, klink, lateness, microbatch, region, staleness
from slackwater.sim.options import Options, parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from slackwater.sim.experiment import Experiment


def _alone(name: str, run: Callable[[int], Experiment]) -> Callable[[int, Options], Experiment]:
    """An experiment that has no settings but the seed."""

    def checked(seed: int, options: Options) -> Experiment:
        if options != Options():
            raise ConfigurationError(f"{name} takes --seed, --json and --plot; leave the others out.")
        return run(seed)

    return checked


EXPERIMENTS: dict[str, Callable[[int, Options], Experiment]] = {
    estimator.NAME: _alone(estimator.NAME, estimator.run),
    "klink-ysb": partial(klink.compare, klink.YSB),
    "klink-lrb": partial(klink.compare, klink.LRB),
    "klink-nyt": partial(klink.compare, klink.NYT),
    "klink-memory": klink.memory,
    "klink-overhead": klink.overhead,
    region.NAME: region.run,
    haren.SINGLE: haren.single,
    haren.MULTI: haren.multiclass,
    staleness.NAME: _alone(staleness.NAME, staleness.run),
    lateness.NAME: _alone(lateness.NAME, lateness.run),
}


def sim(
    name: str,
    *,
    seed: int = 0,
    queries: str | None = None,
    minutes: float | None = None,
    policies: str | None = None,
    delays: str | None = None,
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
    plot: Path | None = None,
    trace: Path | None = None,
    against: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
) -> None:
    """Run an experiment in virtual time.

    Parameters
    ----------
    name
        Which: klink-estimator, klink-ysb, klink-lrb, klink-nyt, klink-memory, klink-overhead, klink-region,
        haren-single, haren-multiclass, aion-staleness, aion-lateness, microbatch.
    seed
        The same seed and commit give the same figures.
    queries
        How many queries at once, one or more numbers with commas: 1,20,80.
    minutes
        Simulated time of each run.
    policies
        Which, with commas: default (the operating system's), and any that `slackwater policies` lists.
    delays
        Network delays: uniform, zipf, or both with a comma.
    json_file
        File for rows and claims.
    plot
        File for a picture, PNG or SVG.
    trace
        For microbatch: the recording to calibrate from, as `slackwater bench ysb --trace` writes it.
    against
        For microbatch: results of live runs to predict, one or more files.
    """
    experiments = EXPERIMENTS | {microbatch.NAME: partial(microbatch.run, trace, against or ())}
    if name not in experiments:
        raise unknown_name("experiment", name, experiments)
    if name != microbatch.NAME and (trace is not None or against):
        raise ConfigurationError(f"--trace and --against are for {microbatch.NAME}; leave them out for {name}.")
    if plot is not None and plot.suffix not in {".png", ".svg"}:
        raise ConfigurationError(f"--plot {plot}: a file that ends in .png or .svg is needed.")
    if plot is not None:
        require("--plot", "matplotlib")
    found = replace(experiments[name](seed, parse(queries, minutes, policies, delays)), commit=commit())
    console = Console()
    for title, rows in ((found.experiment, found.rows), ("claims", [vars(claim) for claim in found.claims])):
        if rows:
            console.print(_table(title, rows))
    for line in found.assumptions:
        print(f"assumes: {line}")
    if json_file is not None:
        found.write(json_file)
        print(f"written: {json_file}")
    if plot is not None:
        from slackwater.sim.figures import draw  # noqa: PLC0415 - matplotlib is loaded on use

        draw(found, plot)
        print(f"drawn: {plot}")


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    """Curves and the like are for the file alone."""
    names = [name for name, value in rows[0].items() if not isinstance(value, list | dict)]
    table = Table(*names, title=title)
    for row in rows:
        table.add_row(*(_cell(row[name]) for name in names))
    return table


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
