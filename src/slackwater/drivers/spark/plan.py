"""What a query's analysed plan tells: windows, watermark delays, inputs, whether it keeps state.

Spark rewrites `window(column, size, slide, offset)` into arithmetic on microseconds: the offset stands in `- offset)
% slide` and the size in `+ size`, as literals.
"""

from __future__ import annotations

import re
from typing import Literal, cast

import msgspec

from slackwater.core.model import QueryFacts, QueryOptions, Window

_SLIDE = re.compile(r"- (-?\d+)\) % (\d+)\)")
_SIZE = re.compile(r"\+ (\d+)\), LongType, Timestamp(?:NTZ)?Type\)")
_DELAY = re.compile(r"-T(\d+)ms")
_MICRO = 1e6
# A query that executes windows inside its batches (slackwater.late) says so with this constant in its window's time.
EXECUTES_IN_BATCH = "timestamp_micros(-777)"
_STATEFUL = {
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
    "TransformWithStateInPandas",
    "TransformWithStateInPySpark",
    "GlobalLimit",
    "Distinct",
}


class PlanNode(msgspec.Struct):
    op: str
    parent: int
    streaming: bool
    windows: list[str] = msgspec.field(default_factory=list)
    text: str = ""
    condition: str = ""


class About(msgspec.Struct):
    """What the JVM side says of a query once."""

    id: str
    name: str | None
    pool: str
    gated: bool
    trigger: str
    user_interval_ms: int
    output_mode: str
    checkpoint: str
    watermark_policy: str = "min"
    no_data_batches: str = "true"
    plan: list[PlanNode] = msgspec.field(default_factory=list)


def facts_of(key: str, about: About, options: dict[str, QueryOptions]) -> QueryFacts:
    nodes = about.plan
    append = about.output_mode.lower() == "append"
    policy = about.watermark_policy.lower()
    stateful = any(_keeps_state(node, nodes, index) for index, node in enumerate(nodes))
    in_batch = any(EXECUTES_IN_BATCH in text for node in nodes for text in node.windows)
    return QueryFacts(
        key=key,
        name=about.name or about.id,
        query_id=about.id,
        gated=about.gated,
        windows=windows_of(nodes) if stateful or in_batch else (),
        input_delays_s=delays_of(nodes),
        watermark_policy=cast("Literal['min', 'max']", policy if policy in ("min", "max") else "min"),
        emits_at_sweep=append and bool(delays_of(nodes)),
        stateful=stateful,
        min_interval_s=max(0, about.user_interval_ms) / 1000,
        options=options.get(about.name or "", options.get(about.id, QueryOptions())),
    )


def windows_of(nodes: list[PlanNode]) -> tuple[Window, ...]:
    """The windows whose results leave the query: of windows chained over others, the outermost."""
    per_node = [
        [window for text in node.windows if (window := window_of(text)) is not None] if node.streaming else []
        for node in nodes
    ]

    def outermost(index: int) -> bool:
        parent = nodes[index].parent
        return not 0 <= parent < index or (not per_node[parent] and outermost(parent))

    found = {window: None for index, windows in enumerate(per_node) if outermost(index) for window in windows}
    return tuple(found)


def window_of(text: str) -> Window | None:
    """The window in one expression of an analysed plan, or None (a session window, another conversion)."""
    slide, size = _SLIDE.search(text), _SIZE.search(text)
    if "named_struct(start" not in text or slide is None or size is None:
        return None
    offset_us, slide_us, size_us = int(slide[1]), int(slide[2]), int(size[1])
    return Window(size_us / _MICRO, slide_us / _MICRO, offset_us / _MICRO)


def delays_of(nodes: list[PlanNode]) -> tuple[float, ...]:
    """Per watermarked input, in the plan's order: the order in which a batch reports their maxima."""
    delays = []
    for node in nodes:
        if node.op == "EventTimeWatermark" and node.streaming:
            match = _DELAY.search(node.text)
            delays.append(int(match[1]) / 1000 if match else 0.0)
    return tuple(delays)


def _keeps_state(node: PlanNode, nodes: list[PlanNode], index: int) -> bool:
    if node.op == "Join":
        children = [child for child in nodes if child.parent == index]
        return len(children) == 2 and all(child.streaming for child in children)
    return node.streaming and node.op in _STATEFUL
