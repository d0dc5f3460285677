"""The workloads that `slackwater verify` knows by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.errors import unknown_name
from slackwater.workloads import syn
from slackwater.workloads.late_finite import LATE_FINITE
from slackwater.workloads.linear_road_finite import LinearRoadFinite, LinearRoadWindowsFinite
from slackwater.workloads.nexmark.finite import NexmarkFinite
from slackwater.workloads.nyt_finite import NytFinite
from slackwater.workloads.riot import RiotEtl, RiotStats
from slackwater.workloads.voip import Voip
from slackwater.workloads.ysb_finite import YsbFinite

if TYPE_CHECKING:
    from slackwater.workloads.finite import FiniteWorkload

_ALL: tuple[FiniteWorkload, ...] = (
    YsbFinite(),
    NytFinite(),
    LinearRoadFinite(),
    LinearRoadWindowsFinite(),
    NexmarkFinite(),
    *LATE_FINITE,
    RiotEtl(),
    RiotStats(),
    Voip(),
    syn.Syn(),
    syn.blocking(),
)
FINITE: dict[str, FiniteWorkload] = {workload.name: workload for workload in _ALL}
# Those that run Python over rows in Spark's tasks.
PANDAS_WORKLOADS = frozenset(
    {"linear-road", "riot-etl", "riot-stats", "voip", "syn", "syn-blocking", *(late.name for late in LATE_FINITE)}
)


def finite_workload(name: str) -> FiniteWorkload:
    if name not in FINITE:
        raise unknown_name("workload", name, FINITE)
    return FINITE[name]
