"""Windows, delays and state, from the text of analysed plans as Spark 4.3 prints them."""

from __future__ import annotations

import pytest

from slackwater.core.model import QueryOptions, Window
from slackwater.drivers.spark.plan import About, PlanNode, facts_of, window_of


def _expression(column: str, offset_us: int, slide_us: int, size_us: int, back_us: int = 0) -> str:
    """`window(column, size, slide, offset)` after analysis, as printed by Spark."""
    micros = f"precisetimestampconversion({column}, TimestampType, LongType)"
    rest = f"(({micros} - {offset_us}) % {slide_us})"
    start = (
        f"(({micros} - CASE WHEN ({rest} < cast(0 as bigint)) THEN ({rest} + {slide_us}) ELSE {rest} END) - {back_us})"
    )
    return (
        f"named_struct(start, knownnullable(precisetimestampconversion({start}, LongType, TimestampType)), "
        f"end, knownnullable(precisetimestampconversion(({start} + {size_us}), LongType, TimestampType)))"
    )


TUMBLING = (
    "named_struct(start, knownnullable(precisetimestampconversion(((precisetimestampconversion(timestamp#0-T1000ms, "
    "TimestampType, LongType) - CASE WHEN (((precisetimestampconversion(timestamp#0-T1000ms, TimestampType, LongType) "
    "- 3000000) % 10000000) < cast(0 as bigint)) THEN (((precisetimestampconversion(timestamp#0-T1000ms, "
    "TimestampType, LongType) - 3000000) % 10000000) + 10000000) ELSE ((precisetimestampconversion("
    "timestamp#0-T1000ms, TimestampType, LongType) - 3000000) % 10000000) END) - 0), LongType, TimestampType)), end, "
    "knownnullable(precisetimestampconversion((((precisetimestampconversion(timestamp#0-T1000ms, TimestampType, "
    "LongType) - CASE WHEN (((precisetimestampconversion(timestamp#0-T1000ms, TimestampType, LongType) - 3000000) "
    "% 10000000) < cast(0 as bigint)) THEN (((precisetimestampconversion(timestamp#0-T1000ms, TimestampType, "
    "LongType) - 3000000) % 10000000) + 10000000) ELSE ((precisetimestampconversion(timestamp#0-T1000ms, "
    "TimestampType, LongType) - 3000000) % 10000000) END) - 0) + 10000000), LongType, TimestampType))) "
    "AS window#6-T1000ms"
)
SESSION = (
    "named_struct(start, precisetimestampconversion(precisetimestampconversion(timestamp#0-T1000ms, TimestampType, "
    "LongType), LongType, TimestampType), end, knownnullable(precisetimestampconversion(precisetimestampconversion("
    "cast(timestamp#0-T1000ms + cast(5 seconds as interval) as timestamp), TimestampType, LongType), LongType, "
    "TimestampType))) AS session_window#16-T1000ms"
)
WINDOW_TIME = (
    "precisetimestampconversion((precisetimestampconversion(window#21-T1000ms.end, TimestampType, LongType) - 1), "
    "LongType, TimestampType) AS window_time(window)#26-T1000ms"
)
SLIDING = [_expression("timestamp#0-T1000ms", 0, 5_000_000, 10_000_000, back) for back in (0, 5_000_000)]

SOURCE = "StreamingRelationV2"


def _watermark(parent: int, column: str = "timestamp#0-T1000ms") -> PlanNode:
    return PlanNode("EventTimeWatermark", parent, True, text=f"List({column}, value#1L)")


def _windowed(*windows: str) -> list[PlanNode]:
    return [
        PlanNode("Aggregate", -1, True),
        PlanNode("Project", 0, True, windows=list(windows)),
        PlanNode("Filter", 1, True),
        _watermark(2),
        PlanNode(SOURCE, 3, True),
    ]


def _about(
    plan: list[PlanNode],
    *,
    name: str | None = "q",
    mode: str = "Append",
    policy: str = "min",
    interval_ms: int = 0,
    gated: bool = True,
) -> About:
    return About(
        "id", name, "default", gated, "ProcessingTimeTrigger(0)", interval_ms, mode, "/tmp", policy, "true", plan
    )


def test_our_shorthand_prints_what_spark_prints():
    assert TUMBLING.startswith(_expression("timestamp#0-T1000ms", 3_000_000, 10_000_000, 10_000_000))


@pytest.mark.parametrize(
    ("text", "window"),
    [
        (TUMBLING, Window(10, 10, 3)),
        (SLIDING[0], Window(10, 5)),
        (SLIDING[1], Window(10, 5)),
        (_expression("ts#3", -3_000_000, 10_000_000, 10_000_000), Window(10, 10, -3)),
        (_expression("ts#3", 0, 250_000, 1_500_000), Window(1.5, 0.25)),
        (_expression("ts#3", 0, 86_400_000_000, 86_400_000_000), Window(86_400, 86_400)),
        (_expression("window_time(window)#26-T1000ms", 0, 20_000_000, 20_000_000), Window(20, 20)),
        (SESSION, None),
        (WINDOW_TIME, None),
        ("", None),
    ],
)
def test_a_window_is_read_from_its_arithmetic(text: str, window: Window | None):
    assert window_of(text) == window


def test_a_tumbling_query_is_windowed_stateful_and_emits_at_the_sweep():
    facts = facts_of("run", _about(_windowed(TUMBLING)), {})
    assert facts.windows == (Window(10, 10, 3),)
    assert facts.input_delays_s == (1.0,)
    assert facts.stateful
    assert facts.emits_at_sweep


def test_the_many_projections_of_a_sliding_window_are_one_window():
    assert facts_of("run", _about(_windowed(*SLIDING)), {}).windows == (Window(10, 5),)


def test_of_chained_windows_only_the_outermost_emits():
    plan = [
        PlanNode("Aggregate", -1, True),
        PlanNode("Project", 0, True, windows=[_expression("window_time(window)#26", 0, 20_000_000, 20_000_000)]),
        PlanNode("Project", 1, True, windows=[WINDOW_TIME]),
        *(PlanNode(n.op, n.parent + 3, n.streaming, n.windows, n.text) for n in _windowed(*SLIDING[:1])),
    ]
    assert facts_of("run", _about(plan), {}).windows == (Window(20, 20),)


def test_a_session_window_has_state_and_no_fixed_end():
    facts = facts_of("run", _about(_windowed(SESSION)), {})
    assert facts.windows == ()
    assert facts.stateful
    assert facts.emits_at_sweep


@pytest.mark.parametrize("mode", ["Update", "Complete"])
def test_only_append_mode_emits_at_the_sweep(mode: str):
    facts = facts_of("run", _about(_windowed(TUMBLING), mode=mode), {})
    assert not facts.emits_at_sweep
    assert facts.next_window_end(1e9) is None


def test_a_window_without_a_watermark_is_never_swept():
    plan = [node for node in _windowed(TUMBLING) if node.op != "EventTimeWatermark"]
    assert not facts_of("run", _about(plan), {}).emits_at_sweep


def test_a_join_has_the_delays_of_both_inputs_in_the_plans_order():
    plan = [
        PlanNode("Join", -1, True, text="List(timestamp#0-T1000ms, value#1L, t2#2-T5000ms, v2#3L)"),
        _watermark(0),
        PlanNode(SOURCE, 1, True),
        _watermark(0, "t2#2-T5000ms"),
        PlanNode("Project", 3, True),
        PlanNode(SOURCE, 4, True),
    ]
    facts = facts_of("run", _about(plan), {})
    assert facts.input_delays_s == (1.0, 5.0)
    assert facts.delay_s == 5.0
    assert facts.stateful
    assert facts_of("run", _about(plan, policy="MAX"), {}).delay_s == 1.0


def test_a_join_with_a_static_table_keeps_no_state():
    plan = [PlanNode("Join", -1, True), PlanNode(SOURCE, 0, True), PlanNode("LogicalRelation", 0, False)]
    assert not facts_of("run", _about(plan), {}).stateful


def test_what_a_static_table_aggregated_before_the_join_does_not_count():
    static = [PlanNode("Aggregate", 0, False, windows=[TUMBLING]), PlanNode("LogicalRelation", 2, False)]
    plan = [PlanNode("Join", -1, True), PlanNode(SOURCE, 0, True), *static]
    facts = facts_of("run", _about(plan), {})
    assert not facts.stateful
    assert facts.windows == ()


@pytest.mark.parametrize("op", ["Deduplicate", "DeduplicateWithinWatermark", "TransformWithState", "GlobalLimit"])
def test_other_operators_keep_state_too(op: str):
    assert facts_of("run", _about([PlanNode(op, -1, True), _watermark(0)]), {}).stateful


def test_a_delay_of_nothing_is_a_delay():
    assert facts_of("run", _about([_watermark(-1, "timestamp#0-T0ms")]), {}).input_delays_s == (0.0,)


def test_options_are_found_by_name_and_by_id():
    options = {"q": QueryOptions(priority_class=1), "id": QueryOptions(priority_class=2)}
    assert facts_of("run", _about([]), options).options.priority_class == 1
    assert facts_of("run", _about([], name=None), options).options.priority_class == 2
    assert facts_of("run", _about([], name="other"), {"q": QueryOptions(priority_class=1)}).options == QueryOptions()


def test_a_query_without_a_name_is_called_by_its_id():
    assert facts_of("run", _about([], name=None), {}).name == "id"


def test_the_users_interval_is_kept_and_a_missing_one_is_none():
    assert facts_of("run", _about([], interval_ms=2500), {}).min_interval_s == 2.5
    once = facts_of("run", _about([], interval_ms=-1, gated=False), {})
    assert once.min_interval_s == 0
    assert not once.gated
