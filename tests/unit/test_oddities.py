"""A watermark in a far future is told of once, by the query's name; others are not mentioned."""

from __future__ import annotations

from slackwater.core.model import QueryFacts, QueryReport, Report
from slackwater.drivers.spark.oddities import Oddities

NOW = 1_800_000_000.0
YEAR_3000 = 32_503_680_000.0


def report(**watermarks: float | None) -> Report:
    queries = tuple(
        QueryReport(
            key=name,
            alive=True,
            waiting=True,
            wait_no=1,
            since_wall_ts=NOW,
            next_watermark_event_ts=watermark,
            facts=QueryFacts(key=name, name=f"the {name}", query_id=name),
        )
        for name, watermark in watermarks.items()
    )
    return Report(wall_ts=NOW, cores=2, queries=queries)


def test_a_watermark_far_ahead_is_told_once_for_each_run_of_a_query():
    oddities = Oddities()
    (note,) = oddities.notes(report(one=YEAR_3000, other=NOW - 1.0, none=None))
    assert note.startswith("query the one: its watermark stands at 3000-01-01")
    assert "new checkpoint" in note
    assert oddities.notes(report(one=YEAR_3000 + 5, other=NOW)) == []
    assert oddities.notes(report(other=NOW)) == []
    assert len(oddities.notes(report(one=YEAR_3000))) == 1


def test_clocks_that_differ_by_hours_and_times_beyond_any_calendar_do_no_harm():
    assert Oddities().notes(report(one=NOW + 3600)) == []
    (note,) = Oddities().notes(report(one=1e15))
    assert "9999-12-31" in note
