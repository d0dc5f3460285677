"""Window ends, as Spark places them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.core.model import QueryFacts, Window

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

NOW = 1_763_178_000.0


@pytest.mark.parametrize(
    ("window", "after", "end"),
    [
        (Window(10, 10), 0.0, 10.0),
        (Window(10, 10), 9.999, 10.0),
        (Window(10, 10), NOW + 3, NOW + 10),
        (Window(10, 5), NOW + 3, NOW + 5),
        (Window(10, 5), NOW + 7, NOW + 10),
        (Window(10, 10, 3), NOW + 1, NOW + 3),
        (Window(10, 10, 3), NOW + 5, NOW + 13),
        (Window(10, 10, -3), NOW + 5, NOW + 7),
        # Starts every 4 s, ends 10 s later: at 10, 14, 18, … and, looking back, at 2 and 6.
        (Window(10, 4), 0.0, 2.0),
        (Window(10, 4), 2.0, 6.0),
        (Window(10, 4, 1), 0.0, 3.0),
    ],
)
def test_next_end_is_the_first_end_after_an_event_time(window: Window, after: float, end: float):
    assert window.next_end(after) == pytest.approx(end, abs=1e-6)


def test_an_end_itself_belongs_to_the_past():
    assert Window(10, 10).next_end(NOW) == NOW + 10


def test_a_sub_second_slide_keeps_its_phase_at_todays_event_times():
    assert Window(0.5, 0.5, 0.1).next_end(NOW + 0.2) == pytest.approx(NOW + 0.6, abs=1e-6)


@st.composite
def _windows(draw: DrawFn) -> Window:
    """Sizes, slides and offsets in whole milliseconds, a slide from a quarter of a second up, as people use them."""
    slide_ms = draw(st.integers(250, 86_400_000))
    size_ms = draw(st.integers(slide_ms, 10 * slide_ms))
    offset_ms = draw(st.integers(-slide_ms, slide_ms))
    return Window(size_ms / 1000, slide_ms / 1000, offset_ms / 1000)


def _event_times() -> SearchStrategy[float]:
    return st.integers(0, 4_000_000_000_000).map(lambda ms: ms / 1000)


@settings(deadline=None, max_examples=200)
@given(_windows(), _event_times())
def test_the_next_end_lies_within_one_slide_after_the_event_time(window: Window, after: float):
    end = window.next_end(after)
    assert end > after
    assert end - window.slide_s <= after + 1e-3


@settings(deadline=None, max_examples=200)
@given(_windows(), _event_times(), st.integers(0, 10_000_000))
def test_a_later_event_time_never_has_an_earlier_end(window: Window, after: float, later_ms: int):
    assert window.next_end(after + later_ms / 1000) >= window.next_end(after) - 1e-6


@settings(deadline=None, max_examples=200)
@given(_windows(), _event_times())
def test_ends_follow_each_other_by_one_slide(window: Window, after: float):
    first = window.next_end(after)
    assert window.next_end(first) - first == pytest.approx(window.slide_s, abs=1e-5)


def test_of_several_windows_the_one_that_ends_first_counts():
    facts = QueryFacts("q", "q", "q", windows=(Window(60, 60), Window(10, 10, 4)))
    assert facts.next_window_end(NOW + 1) == NOW + 4


def test_update_mode_has_no_window_that_waits_for_a_sweep():
    facts = QueryFacts("q", "q", "q", windows=(Window(10, 10),), emits_at_sweep=False)
    assert facts.next_window_end(NOW) is None


def test_the_slowest_input_decides_under_min_and_the_fastest_under_max():
    assert QueryFacts("q", "q", "q", input_delays_s=(1, 7), watermark_policy="min").delay_s == 7
    assert QueryFacts("q", "q", "q", input_delays_s=(1, 7), watermark_policy="max").delay_s == 1
    assert QueryFacts("q", "q", "q").delay_s == 0
