"""Past windows: which are due, when they may go, and what their results' staleness was."""

from __future__ import annotations

import pytest

from slackwater.errors import ConfigurationError
from slackwater.late.bounds import Bound, Predicted
from slackwater.late.lateness import LatenessSketch
from slackwater.late.past import PastWindow, PastWindows
from slackwater.late.staging import StagingCosts
from slackwater.late.windows import Windows, duration_ms


def past(bound: float | None = 0.1, *, span_s: float = 100.0, expected: int = 0) -> tuple[PastWindows, PastWindow]:
    sketch = LatenessSketch(on_time=900)
    for lateness_s in range(1, expected + 1):
        sketch.add(lateness_s * span_s / (expected + 1))
    windows = PastWindows(bound)
    return windows, windows.add(0, 10_000, span_s, 900, sketch, now_s=1_000.0, through=3)


def test_a_window_without_late_rows_is_not_executed_and_goes_when_its_span_is_over():
    windows, _ = past()
    assert windows.due(1_099.0, 50_000) == {}
    assert windows.kept(109_999) == [0]
    assert windows.kept(110_000) == []
    assert [window.start_ms for window in windows.purged_before(10)] == [0]


def test_late_rows_that_nobody_expected_are_taken_in_when_the_bound_says_so():
    windows, window = past(0.1)
    window.arrived(5, 1_010.0)
    assert windows.due(1_010.0, 20_000) == {"late": [window]}  # 10 s of 100, all of the late rows: 0.1
    window.executed(1_010.0, through=4)
    assert windows.due(1_011.0, 20_000) == {}
    assert window.stalest() == pytest.approx(0.1)


def test_rows_that_wait_make_the_last_execution_final():
    windows, window = past(None)
    window.arrived(5, 1_050.0)
    assert windows.due(1_060.0, 60_000) == {}
    assert windows.due(1_060.0, 110_000) == {"final": [window]}
    assert windows.kept(110_000) == [0]  # not before it was executed
    window.executed(1_060.0, through=5)
    assert windows.kept(110_000) == []


def test_a_watermark_that_stands_still_does_not_keep_rows_waiting():
    windows, window = past(0.1)
    window.arrived(1, 1_500.0)
    assert windows.due(1_500.0, 20_000) == {"late": [window]}
    window.executed(1_500.0, through=4)
    window.arrived(1, 1_501.0)
    assert windows.due(1_505.0, 20_000) == {}
    assert windows.wake_s(1_505.0) == pytest.approx(1_510.0)
    assert windows.due(1_510.0, 20_000) == {"late": [window]}


def test_an_execution_that_failed_is_due_again():
    windows, window = past(0.1)
    window.arrived(5, 1_010.0)
    window.executed(1_012.0, through=4)
    window.not_executed(5, 1_012.0)
    assert window.pending == 5
    assert window.late_events == 5
    assert window.executions == 0
    assert windows.due(1_030.0, 20_000) == {"late": [window]}


def test_the_bound_holds_when_rows_come_as_expected():
    windows, window = past(0.05, expected=99)
    for second in range(1, 100):
        now_s = 1_000.0 + second
        window.arrived(1, now_s)
        if windows.due(now_s, 20_000):
            window.executed(now_s, through=second)
    assert 0 < window.stalest() <= 0.05
    assert window.executions <= 5


def test_rows_that_come_in_batches_do_not_carry_a_result_over_the_bound():
    windows, window = past(0.05, expected=400, span_s=60.0)
    for batch in range(1, 30):
        now_s = 1_000.0 + 2 * batch
        window.arrived(13, now_s)
        for moment in (0.0, 0.5, 1.0, 1.5):
            if windows.due(now_s + moment, 20_000, ahead_s=2.0):
                window.executed(now_s + moment, through=batch)
    assert 0 < window.stalest() <= 0.05
    assert window.executions <= 8


def test_a_fixed_allowed_lateness_is_what_was_given():
    bound = Bound("2 minutes", 10_000)
    assert (bound.span_s, bound.purge_after_s) == (120.0, 120.0)
    with pytest.raises(ConfigurationError, match="positive one is needed"):
        Bound(0, 10_000)


def test_a_predicted_lateness_purges_nothing_before_enough_was_seen_and_survives_a_restart():
    bound = Bound(Predicted(initially="1 hour"), 10_000)
    for step in range(60):
        assert bound.purge_after_s is None or step * 10 >= 3 * 80 - 10
        bound.seen({0.0: 1_000, 20.0: 60, 80.0: 20}, 1_000_000 + step * 10_000)
    assert 80 <= bound.span_s <= 82
    assert bound.purge_after_s == bound.span_s
    again = Bound(Predicted(), 10_000)
    assert again.span_s == 3_600
    again.restore(bound.to_json())
    again.seen({0.0: 1}, 1_600_000)
    assert again.span_s == pytest.approx(bound.span_s, rel=0.03)


def test_a_shift_of_the_lateness_is_followed_within_a_few_windows():
    bound = Bound(Predicted(), 10_000)
    now_ms = 1_000_000
    for _ in range(120):
        bound.seen({0.0: 900, 20.0: 100}, now_ms := now_ms + 5_000)
    before = bound.span_s
    steps = 0
    while bound.span_s < 60 and steps < 100:
        bound.seen({0.0: 900, 60.0: 100}, now_ms := now_ms + 5_000)
        steps += 1
    assert before < 21
    assert steps * 5 <= 30  # seconds: three windows


def test_staging_is_tried_and_kept_where_it_pays():
    costs = StagingCosts()
    for _ in range(3):
        assert not costs.pays(1_000)
        costs.executed(1.0, 1_000, staged=False)
    for _ in range(3):
        assert costs.pays(1_000)
        costs.executed(0.2, 1_000, staged=True)
    assert costs.pays(1_000)
    for _ in range(40):
        costs.executed(0.98, 1_000, staged=True)
    assert not costs.pays(1_000)


def test_durations_are_read_as_spark_writes_them():
    assert duration_ms("10 minutes", "x") == 600_000
    assert duration_ms("1 hour 30 minutes", "x") == 5_400_000
    assert duration_ms("interval 5 seconds", "x") == 5_000
    assert duration_ms("250 milliseconds", "x") == 250
    assert duration_ms(1.5, "x") == 1_500
    for wrong in ("soon", "10", "10 fortnights", "", "5 seconds later"):
        with pytest.raises(ConfigurationError, match="is no duration"):
            duration_ms(wrong, "x")


def test_windows_know_their_end_and_the_next_start():
    windows = Windows(10_000, 5_000, 1_000)
    assert windows.swept(1_000, 11_000)
    assert not windows.swept(1_000, 10_999)
    assert [windows.first_start_after(t) for t in (1_000, 1_001, 6_000)] == [1_000, 6_000, 6_000]
    with pytest.raises(ConfigurationError, match="no longer than it"):
        Windows(10_000, 20_000)
