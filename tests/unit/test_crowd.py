"""Windows that end together: who prepares, when, and who does not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slackwater.core.model import QueryView, Snapshot
from slackwater.policies.crowd import ALONE, places
from slackwater.policies.klink import Klink
from tests.unit.views import NOW, calm


def due_in(key: str, seconds: float, row_cost_s: float = 2e-5, **changes: object) -> QueryView:
    """Ten thousand rows wait, 0.2 s of work against 0.3 s a batch: alone it would not prepare."""
    times = {"swm_wall_ts": NOW + seconds, "swm_sure_wall_ts": NOW + seconds + 0.1, "window_end_event_ts": NOW}
    rows = {"row_cost_s": row_cost_s, "backlog_rows": 10_000.0, "rows_per_s": 1000.0, "offsets_wall_ts": NOW - 10}
    return calm(key, **({"slide_s": 20.0} | times | rows | changes))


def started(*queries: QueryView, lanes: int = 2) -> set[str]:
    snapshot = Snapshot(NOW, queries, lanes=lanes, lanes_free=lanes, cores=2)
    return {choice.key for choice in Klink().decide(snapshot) if choice.start}


def test_queries_whose_turns_do_not_meet_are_alone():
    assert not places([due_in("a", 1), due_in("b", 5), due_in("c", 9)], abreast=2)


def test_as_many_as_there_are_lanes_are_no_crowd():
    assert not places([due_in("a", 1), due_in("b", 1)], abreast=2)


def test_those_due_together_prepare_one_after_the_other_and_the_first_one_last():
    found = places([due_in(key, 1.0) for key in "abcd"], abreast=2)
    leads = [found[key].lead_s for key in "abcd"]
    assert leads[0] == 0
    assert leads == sorted(set(leads))
    assert found["a"].behind == 2


def test_one_that_is_due_later_is_prepared_before_the_first_is_due():
    found = places([due_in("a", 1.0), due_in("b", 1.1), due_in("c", 1.2)], abreast=1)
    assert found["c"].lead_s > 1.2 - 1.0


def test_a_crowd_prepares_rows_for_which_one_alone_would_not():
    assert not started(due_in("a", 1.5))
    crowd = [due_in(f"q{number}", 1.5) for number in range(8)]
    assert started(*crowd)
    assert len(started(*crowd)) < len(crowd)  # the first ones later, so that all are done when the first is due


def test_a_crowd_that_has_prepared_waits_for_its_watermark():
    prepared = {"backlog_rows": 500.0, "offsets_wall_ts": NOW - 0.5}
    assert not started(*(due_in(f"q{number}", 1.5, **prepared) for number in range(8)))


def test_a_crowd_that_fills_its_slide_has_no_time_to_prepare():
    assert not places([due_in(f"q{number}", 1.0, slide_s=1.0) for number in range(8)], abreast=2)


def test_cost_knob_prepares_nobody_in_a_crowd():
    snapshot = Snapshot(NOW, tuple(due_in(f"q{n}", 1.5) for n in range(8)), lanes=2, lanes_free=2, cores=2)
    assert not [choice for choice in Klink("cost").decide(snapshot) if choice.start]


@given(
    st.lists(st.tuples(st.floats(-30, 30), st.floats(0, 1e-3), st.floats(0.5, 60)), max_size=30),
    st.integers(1, 8),
    st.randoms(),
)
def test_places_do_not_depend_on_the_order_of_queries_and_never_come_after_the_watermark(found, lanes, random):
    queries = [due_in(f"q{n:02}", s, row_cost_s=b, slide_s=slide) for n, (s, b, slide) in enumerate(found)]
    shuffled = random.sample(queries, len(queries))
    assert places(queries, lanes) == places(shuffled, lanes)
    for place in places(queries, lanes).values():
        assert place.lead_s >= ALONE.lead_s
        assert place.behind > ALONE.behind
