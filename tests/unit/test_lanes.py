"""Lanes that follow the cores: one more while they idle under pressure, one less when they are full."""

from __future__ import annotations

from slackwater.core.lanes import AdaptiveLanes


def watch(
    lanes: AdaptiveLanes, seconds: float, *, cpu: float, pressed: bool = True, tasks: int = 0, start: float = 0.0
) -> int:
    """So many seconds, five reports each, in which so many of two processors were busy."""
    for tick in range(int(seconds * 5) + 1):
        at = start + tick / 5
        lanes.observe(at, cores=2, tasks=tasks, cpu_s=cpu * at, processors=2, pressed=pressed)
    return lanes.lanes(2)


def test_lanes_are_the_cores_where_these_are_busy() -> None:
    assert watch(AdaptiveLanes(), 60, cpu=1.9) == 2


def test_idle_cores_and_waiting_turns_add_a_lane_every_two_seconds_up_to_twice_the_cores() -> None:
    lanes = AdaptiveLanes()
    assert watch(lanes, 2.2, cpu=1.0) == 3
    assert watch(lanes, 60, cpu=1.0, start=2.2) == 4


def test_idle_cores_without_waiting_turns_add_none() -> None:
    assert watch(AdaptiveLanes(), 60, cpu=0.3, pressed=False) == 2


def test_tasks_that_fill_the_executors_count_as_busy_though_the_driver_idles() -> None:
    assert watch(AdaptiveLanes(), 60, cpu=0.1, tasks=2) == 2


def test_full_cores_or_no_pressure_take_a_lane_back() -> None:
    for cpu, pressed in ((1.99, True), (0.5, False)):
        lanes = AdaptiveLanes()
        watch(lanes, 10, cpu=1.0)
        assert watch(lanes, 60, cpu=cpu, pressed=pressed, start=10) == 2


def test_where_the_driver_tells_nothing_of_its_processors_nothing_adapts() -> None:
    lanes = AdaptiveLanes()
    for tick in range(100):
        lanes.observe(tick / 5, cores=2, tasks=0, cpu_s=None, processors=0, pressed=True)
    assert lanes.lanes(2) == 2


def test_a_clock_that_jumps_and_cores_that_change_begin_anew() -> None:
    lanes = AdaptiveLanes()
    watch(lanes, 10, cpu=1.0)
    lanes.observe(5.0, cores=2, tasks=0, cpu_s=99.0, processors=2, pressed=True)
    lanes.observe(500.0, cores=2, tasks=0, cpu_s=99.0, processors=2, pressed=True)
    assert lanes.lanes(2) == 4
    lanes.observe(500.2, cores=8, tasks=0, cpu_s=99.0, processors=8, pressed=True)
    assert lanes.lanes(8) == 8


def test_without_any_core_one_turn_may_still_start() -> None:
    lanes = AdaptiveLanes()
    for tick in range(50):
        lanes.observe(tick / 5, cores=0, tasks=0, cpu_s=0.1 * tick, processors=2, pressed=True)
    assert lanes.lanes(0) == 1


def test_where_the_cluster_grows_on_demand_waiting_turns_add_lanes_though_the_cores_are_full() -> None:
    def pressed_for_20_s(*, elastic: bool) -> int:
        lanes = AdaptiveLanes()
        for tick in range(100):
            lanes.observe(tick / 5, cores=1, tasks=1, cpu_s=0.0, processors=2, pressed=True, elastic=elastic)
        return lanes.lanes(1)

    assert pressed_for_20_s(elastic=True) == 5
    assert pressed_for_20_s(elastic=False) == 1


def test_cores_that_came_take_the_place_of_lanes_that_asked_for_them() -> None:
    lanes = AdaptiveLanes()
    for tick in range(100):
        lanes.observe(tick / 5, cores=1, tasks=1, cpu_s=0.0, processors=2, pressed=True, elastic=True)
    lanes.observe(20.0, cores=4, tasks=1, cpu_s=0.0, processors=2, pressed=True, elastic=True)
    assert lanes.lanes(4) == 4
