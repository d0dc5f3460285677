"""The workloads that `slackwater verify` knows by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.errors import unknown_name

if TYPE_CHECKING:
    from slackwater.workloads.finite import FiniteWorkload

FINITE: dict[str, FiniteWorkload] = {}


def finite_workload(name: str) -> FiniteWorkload:
    if name not in FINITE:
        raise unknown_name("workload", name, FINITE)
    return FINITE[name]
