"""What of the windows is in memory, and what goes when it is short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import ConfigurationError
from slackwater.late.buckets import Buckets, BucketView, Local, MemoryView, Scarce, Share, Standard, share_needed


def view(window: int, size: int = 10, *, rate: float = 1.0, idle_s: float = 0.0, swept: bool = False) -> BucketView:
    return BucketView(window, size, size, rate, idle_s, swept)


PLENTY = MemoryView(0, 1_000)


def test_standard_keeps_windows_until_they_are_executed():
    assert Standard().keep([view(0, swept=True), view(10)], PLENTY) == {0: 0.0}


def test_local_keeps_a_bootstrap_share_of_executed_and_idle_windows():
    policy = Local(rho_min=0.1, tau_s=60)
    assert policy.keep([view(0, swept=True), view(10, idle_s=61), view(20, idle_s=59)], PLENTY) == {0: 0.1, 10: 0.1}


def test_scarce_memory_takes_the_largest_or_the_slowest_first_until_the_budget_is_kept():
    buckets = [view(0, 50, rate=9), view(10, 100, rate=5), view(20, 60, rate=1)]
    short = MemoryView(210, 160)
    assert Scarce().keep(buckets, short) == {10: 0.0}
    assert Scarce(by="rate").keep(buckets, short) == {20: 0.0}
    assert Scarce(rho_min=0.5).keep(buckets, short) == {10: 0.5}
    assert Scarce().keep(buckets, MemoryView(210, 500)) == {}


def test_what_is_executed_goes_first_and_may_be_enough():
    buckets = [view(0, 100, swept=True), view(10, 100)]
    assert Scarce().keep(buckets, MemoryView(200, 100)) == {0: 0.0}


def test_very_scarce_memory_takes_all():
    memory = MemoryView(20, 1_000, available=0.05)
    assert Scarce(rho_min=0.05).keep([view(0), view(10)], memory) == {0: 0.05, 10: 0.05}


def test_nonsense_is_refused():
    with pytest.raises(ConfigurationError, match="`size` or `rate`"):
        Scarce(by="colour")
    with pytest.raises(ConfigurationError, match="a share below 1"):
        Local(rho_min=1.0)


def test_a_blocking_function_needs_all_and_another_as_much_as_hides_the_disk():
    assert share_needed(True, 1.0, 1.0) == 1.0
    assert share_needed(False, 1.0, 3.0) == 0.25
    assert share_needed(False, 1.0, 0.0) == 1.0
    assert share_needed(False, 0.0, 1.0) == 0.0


def test_a_frame_is_freed_when_the_last_window_lets_go():
    buckets = Buckets(1_000, 1_000)
    assert buckets.add(1, "one", {0: Share(5, 50), 10: Share(1, 10)}, now_s=0.0)
    assert buckets.add(2, "two", {10: Share(5, 50)}, now_s=1.0)
    assert buckets.used_bytes == 110
    assert buckets.frames(10) == {1: "one", 2: "two"}
    assert buckets.release({0: 0.0}) == []
    assert buckets.release({10: 0.0}) == ["one", "two"]
    assert buckets.used_bytes == 0


def test_a_share_of_the_first_rows_is_kept_in_whole_frames():
    buckets = Buckets(1_000, 1_000)
    for batch in range(4):
        buckets.add(batch, f"frame {batch}", {0: Share(10, 10)}, now_s=float(batch))
    assert buckets.release({0: 0.5}) == ["frame 2", "frame 3"]
    assert set(buckets.frames(0)) == {0, 1}
    assert buckets.release({0: 0.5}) == []


def test_a_full_bucket_leaves_the_rest_on_disk():
    buckets = Buckets(1_000, window_bytes=25)
    assert buckets.add(0, "a", {0: Share(1, 20)}, now_s=0.0)
    assert not buckets.add(1, "b", {0: Share(1, 20)}, now_s=0.0)
    assert buckets.frames(0) == {0: "a"}
    assert not buckets.add(2, "only late rows", {}, now_s=0.0)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.dictionaries(st.integers(0, 4), st.integers(1, 50), max_size=3)),
            st.tuples(st.just("release"), st.dictionaries(st.integers(0, 4), st.floats(0, 1), max_size=3)),
        ),
        max_size=30,
    )
)
def test_never_over_the_budget_and_every_frame_is_freed_once(steps):
    buckets = Buckets(100, 60)
    freed: list[int] = []
    held: set[int] = set()
    for batch, (what, arguments) in enumerate(steps):
        if what == "add":
            if buckets.add(batch, batch, {w: Share(n, n) for w, n in arguments.items()}, now_s=float(batch)):
                held.add(batch)
        else:
            freed += buckets.release(arguments)
        assert buckets.used_bytes <= 100
        assert all(sum(s.bytes for s in b.shares.values()) <= 60 for b in buckets._buckets.values())
    freed += buckets.clear()
    assert sorted(freed) == sorted(held)
