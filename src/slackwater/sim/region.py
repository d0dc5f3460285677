"""`klink-region`: where do Klink's claims hold? Load, clumping and memory varied around the papers' setting.

A machine of a quarter of the size with a quarter of the queries: the same load and memory a core, at a quarter of the
time. Loads are queries over the knee, so 1 is saturation with empty memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from slackwater.sim.experiment import Claim, Experiment, claim
from slackwater.sim.klink import YSB, Plan, run_once, summary
from slackwater.sim.options import DEFAULT, DELAYS, Options

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "klink-region"

_LEAST_WINDOWS = 6


@dataclass(frozen=True)
class Setting:
    """One point: load, clump length, memory as a multiple of the paper's, collector, what being held back means.

    aligned: all windows end together, and all clumps come together.
    """

    load: float
    clump_s: float = 0.0
    memory: float = 1.0
    collector: float = 0.05
    held: Literal["broker", "generator"] = "generator"
    aligned: bool = False
    window_s: float = 3.0


SETTINGS = (
    *(Setting(load, clump_s) for clump_s in (0.0, 3.0) for load in (0.7, 0.9, 0.98, 1.05, 1.5, 2.0)),
    *(Setting(load, 3.0, aligned=True) for load in (0.5, 0.7, 0.9, 1.05)),
    *(Setting(2.0, memory=share) for share in (0.05, 0.1, 0.25)),
    *(Setting(2.0, window_s=window_s) for window_s in (10.0, 20.0, 40.0, 80.0)),
    Setting(2.0, memory=4.0),
    Setting(2.0, collector=0.0),
    Setting(2.0, collector=0.2),
    Setting(1.05, held="broker"),
    Setting(2.0, held="broker"),
)


@dataclass(frozen=True)
class RegionPlan:
    policies: tuple[str, ...] = (DEFAULT, "fcfs", "sbox", "klink")
    delays: tuple[str, ...] = ("uniform",)
    minutes: float = 1.5
    queries: tuple[int, ...] = (20,)
    cores: int = 6
    settings: tuple[Setting, ...] = SETTINGS


def run(seed: int, options: Options) -> Experiment:
    plan = options.apply(NAME, RegionPlan())
    points = product(plan.settings, plan.delays, plan.queries, plan.policies)
    rows = [_row(seed, plan, *point) for point in points]
    return Experiment(NAME, seed, rows, list(_claims(rows)), assumptions=_ASSUMPTIONS)


def _row(seed: int, plan: RegionPlan, setting: Setting, delays: str, queries: int, policy: str) -> dict[str, Any]:
    full = Plan()
    scaled = replace(
        full,
        cores=plan.cores,
        minutes=max(plan.minutes, _LEAST_WINDOWS * setting.window_s / 60),
        window_s=setting.window_s,
        knee=queries / setting.load,
        clump_s=setting.clump_s,
        memory_bytes=full.memory_bytes * setting.memory * plan.cores / full.cores,
        collector=setting.collector,
        held=setting.held,
        deployed_within_s=0.0 if setting.aligned else full.deployed_within_s,
    )
    found = summary(run_once(YSB, scaled, queries, policy, DELAYS[delays], seed), scaled)
    point = {"load": setting.load, "window_s": setting.window_s, "clump_s": setting.clump_s, "memory": setting.memory}
    kept = {name: found[name] for name in ("mean_s", "p99_s", "propagation_s", "events_per_s", "memory_gb", "cpu_pct")}
    phases = "aligned" if setting.aligned else "spread"
    model = {"collector": setting.collector, "held": setting.held, "phases": phases, "delays": delays}
    return {**point, **model, "policy": policy, **kept}


_POINT = ("load", "window_s", "clump_s", "memory", "collector", "held", "phases", "delays")
_ASSUMPTIONS = [
    "6 cores and a quarter of the memory for 20 queries: the same load and memory a core as 80 queries on 24 cores",
    "memory is a multiple of 17.5 GB on 24 cores; the rest is as in klink-ysb",
]


def _claims(rows: list[dict[str, Any]]) -> Iterator[Claim]:
    points: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in rows:
        points.setdefault(tuple(row[name] for name in _POINT), {})[row["policy"]] = row
    for point, found in points.items():
        if not {DEFAULT, "klink"} <= found.keys():
            continue
        klink, default = found["klink"], found[DEFAULT]
        where = "load {:g}, windows {:g} s, clumps {:g} s, memory × {:g}, collector {:g}, {}, {}, {} delays".format(
            *point
        )
        yield claim(f"mean below default's, {where}", 1 - klink["mean_s"] / default["mean_s"], "≥", 0.45)
        yield claim(f"p99 below default's, {where}", 1 - klink["p99_s"] / default["p99_s"], "≥", 0.5)
        yield claim(f"throughput above, {where}", klink["events_per_s"] / default["events_per_s"] - 1, "≥", 0.2)
