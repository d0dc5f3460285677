"""Texts that a producer makes are read by the queries to what the oracles say, row for row."""

from __future__ import annotations

import pytest

from slackwater.workloads.arrivals import Schedule
from slackwater.workloads.base import QuerySpec
from slackwater.workloads.on_topics import FORMS
from slackwater.workloads.rate_oracle import rate_offers
from tests.spark.test_workloads import CREATED_MS, by_window

pytestmark = pytest.mark.spark

SECONDS = 8
SPECS = {
    "ysb": QuerySpec("q", 900, 2.0, 1.0, 300, 7),
    "nyt": QuerySpec("q", 700, 2.0, 1.0, 300, 7, slide_s=1.0),
    "linear-road": QuerySpec("q", 9750, 5.0, 1.0, 400, 7, slide_s=3.0),
}


@pytest.mark.parametrize("workload", SPECS)
def test_every_whole_window_over_texts_is_the_oracles(spark, tmp_path, workload):
    form, spec = FORMS[workload], SPECS[workload]
    frames, created = [], [CREATED_MS + 3 * stream for stream in range(form.streams)]
    for stream, created_ms in enumerate(created):
        seconds = [Schedule(form.rate(spec), 0, created_ms).second(index) for index in range(SECONDS)]
        bodies = [body for second in seconds for body in form.bodies(second.numbers, second.event_ms, spec)]
        file = tmp_path / f"{stream}.txt"
        file.write_bytes(b"\n".join(bodies))
        frames.append(spark.read.text(str(file)).withColumnRenamed("value", "body"))
    found = by_window(form.query(spark, frames, spec))
    oracle = form.oracle(spec, created, [rate_offers(form.rate(spec), created_ms) for created_ms in created])
    every_ms = spec.slide_ms if workload == "linear-road" else spec.window_ms
    whole = {start: rows for start, rows in found.items() if start + every_ms <= CREATED_MS + 1000 * SECONDS}
    assert len(whole) >= 2
    assert whole == {start: oracle.expected(start) for start in whole}
