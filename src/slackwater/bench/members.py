"""The queries that a run measures, and what each of them belongs to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slackwater.workloads.base import query_specs
from slackwater.workloads.registry import Asked, workload_entry

if TYPE_CHECKING:
    from slackwater.bench.model import RunSpec
    from slackwater.workloads.base import QuerySpec, Workload

HIGH = -1


@dataclass(frozen=True)
class Member:
    """A query of a run, and what it belongs to; group: "" outside a mix."""

    query: QuerySpec
    workload: Workload
    priority_class: int = 0
    group: str = ""


def members_of(spec: RunSpec) -> list[Member]:
    """Every query of a run, in the order in which they start."""
    if not spec.groups:
        workload, queries = workload_of(spec)
        return [Member(query, workload, HIGH if i < spec.high else 0) for i, query in enumerate(queries)]
    found = []
    for group, part in zip(spec.groups, spec.parts(), strict=True):
        workload, queries = workload_of(part)
        names = [f"{group.query_prefix}{query.name.removeprefix(query_prefix(part))}" for query in queries]
        found += [
            Member(replace(query, name=name), workload, group.priority_class, group.name)
            for query, name in zip(queries, names, strict=True)
        ]
    return found


def workload_of(spec: RunSpec) -> tuple[Workload, list[QuerySpec]]:
    """What a run measures: its workload, and each query of it."""
    entry = workload_entry(spec.workload)
    queries = query_specs(
        query_prefix(spec),
        spec.queries,
        rate=spec.rate,
        window_s=spec.window_s,
        slide_s=spec.slide_s,
        delay_s=spec.delay_s,
        phases=spec.phases,
        seed=spec.seed,
        deadline_s=entry.deadline_s(spec.slide_s or spec.window_s),
    )
    workload = entry.make(
        Asked(payload=spec.payload, body_bytes=spec.body_bytes, source_partitions=spec.settings.source_partitions)
    )
    return workload, queries


def query_prefix(spec: RunSpec) -> str:
    return spec.workload.replace("-", "_")
