"""What a late query holds in memory, with frames that only count who holds them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest

from slackwater.late.buckets import Share
from slackwater.late.index import DataFile, Group, Source, WindowInfo
from slackwater.late.inout import InOut
from slackwater.late.memory import Memory, Options


class Frame:
    def __init__(self, name: str) -> None:
        self.name, self.held = name, False

    def persist(self, level: Any) -> Frame:
        del level
        self.held = True
        return self

    def unpersist(self) -> None:
        self.held = False

    def count(self) -> int:
        return 10


class Store:
    """Window 0 in files of batches 0, 1, …"""

    def __init__(self, batches: int = 2) -> None:
        self.found = [source(f"data/{batch}", batch) for batch in range(batches)]

    def sources(self, window: int, *, through: int | None = None) -> list[Source]:
        del window
        return [one for one in self.found if through is None or one.file.batch <= through]

    def window(self, window: int) -> WindowInfo:
        return WindowInfo(window, 10, 100, 50, len(self.found), 0, 1, None, None, 10)

    @contextmanager
    def reading(self, windows: list[int]) -> Any:
        yield dict.fromkeys(windows, self.found)


def source(name: str, batch: int, replaces: dict[int, int] | None = None) -> Source:
    group = Group(0, 0, 10, 500, 200, None, None, 10)
    return Source(DataFile(name, 200, batch, 0, (group,), replaces), group)


def memory(store: Store, *, blocking: bool = True, **options: Any) -> tuple[Memory, InOut]:
    inout = InOut("io", lambda: None)
    return Memory(None, store, inout, Options(**{"memory_bytes": 1 << 20, **options}), blocking=blocking), inout  # type: ignore[arg-type]


def read(spark: Any, sources: Any, windows: Any) -> Any:
    del spark, sources, windows
    return Frame("staged")


@pytest.fixture
def store() -> Store:
    return Store()


def test_frames_of_batches_serve_their_files_and_go_when_their_window_was_executed(store):
    kept, inout = memory(store)
    frame = kept.cached(Frame("batch 0"))
    assert frame is not None
    kept.keep(0, frame, {0: Share(10, 500)})
    assert kept.held(0, store.found) == {"data/0": frame}
    inout.start()
    kept.let_go([0])
    assert inout.wait_idle(10)
    assert kept.held(0, store.found) == {}
    assert not frame.held
    inout.close()


def test_a_staged_window_serves_only_while_its_files_are_the_same(store):
    kept, _ = memory(store)
    kept.stage(0, read)
    assert {frame.name for frame in kept.held(0, store.found).values()} == {"staged"}
    assert kept.held(0, [*store.found, source("data/2", 2)]).keys() == {"data/0", "data/1"}
    assert kept.held(0, [source("data/window_0", 1, {0: 10, 1: 10})]) == {}
    assert kept.used_bytes == 1000
    kept.clear()
    assert kept.used_bytes == 0


def test_without_room_a_batch_is_not_cached(store):
    kept, _ = memory(store, memory_bytes=600)
    kept.keep(0, kept.cached(Frame("batch 0")), {0: Share(10, 500)})
    assert kept.cached(Frame("batch 1")) is None


@pytest.mark.parametrize(("blocking", "fits"), [(True, True), (False, False)])
def test_a_function_that_does_not_block_needs_less_of_its_window_in_memory(store, blocking, fits):
    kept, _ = memory(store, blocking=blocking)
    for rows in (1_000, 2_000, 3_000, 4_000, 5_000):
        kept.costs.staging.observe(rows, rows * 1e-3)
        kept.costs.executed(rows * 3e-3, rows, staged=True)
        kept.costs.executed(rows * 4e-3, rows, staged=False)
    kept.executed([0], 1)  # a window of 1000 bytes: a quarter of it hides the reading of the rest
    kept.keep(2, kept.cached(Frame("batch 2")), {10_000: Share(10, 200)})
    kept.keep(3, kept.cached(Frame("batch 3")), {10_000: Share(10, 200)})
    assert (len(kept.held(10_000, [source("data/2", 2), source("data/3", 3)])) == 2) is fits
