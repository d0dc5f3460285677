"""`attach(record=…)` and `attach(shadow=…)` on a real session: what is recorded can be replayed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

import slackwater
from slackwater.recording.reading import Trace, read_trace
from slackwater.replay.fidelity import ready
from slackwater.replay.scenario import scenario_of
from tests.spark.support import eventually, rates, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slackwater import Handle

pytestmark = pytest.mark.spark


def _windowed(spark: Any, seconds: int) -> Any:
    stream = rates(spark, 50).withWatermark("timestamp", "1 second")
    return stream.groupBy(F.window("timestamp", f"{seconds} seconds")).count()


@pytest.mark.timeout(300)
def test_three_queries_under_plain_spark_are_recorded_and_replayed(
    spark: Any, attach: Callable[..., Handle], tmp_path: Path
) -> None:
    path = tmp_path / "three.trace"
    handle = attach(policy="observe", record=path, shadow="klink")
    for seconds in (1, 2):
        start(_windowed(spark, seconds), name=f"windows-{seconds}")
    start(rates(spark, 50), name="plain", every="1 second")

    def recorded() -> Trace | None:
        found = read_trace(path)
        enough = len(found.queries) == 3 and all(len(query.batches) >= 8 for query in found.queries)
        return found if enough and found.seconds >= 10 else None

    eventually(recorded, 120)
    status = handle.recording()
    assert status is not None
    assert status.lost == 0
    assert status.trouble is None
    shadow = eventually(lambda: (told := handle.shadow()) and len(told.choices) == 3 and told)
    assert {choice.name for choice in shadow.choices} == {"windows-1", "windows-2", "plain"}
    handle.detach()

    trace = read_trace(path)
    assert trace.ended
    assert trace.head.policy == "observe"
    assert trace.head.session["scheduler_mode"] == "FAIR"
    by_name = {query.name: query for query in trace.queries}
    assert by_name["windows-2"].about.windows == ((2.0, 2.0, 0.0),)
    assert by_name["windows-1"].about.input_delays_s == (1.0,)
    assert by_name["plain"].about.interval_s == 1.0
    seen = by_name["windows-1"].batches
    assert all("addBatch" in batch.parts_ms for batch in seen)
    assert any(batch.state_partitions == 2 for batch in seen)
    assert any(one.min_event_ts is not None for batch in seen for one in batch.inputs)
    assert [batch.batch_id for batch in seen] == sorted(batch.batch_id for batch in seen)
    assert any(host.cpu_s for host in trace.hosts)
    for query in trace.queries:
        worked = [query.worked[batch.batch_id] for batch in query.batches if batch.batch_id in query.worked]
        assert len(worked) >= len(query.batches) - 2, "all but the last ones, of which Spark had not told"
        assert all(0 < one.cpu_s < 60 and 0 <= one.run_s < 60 for one in worked)
    if sys.platform == "linux":
        for name in ("collecting_cpu_s", "compiling_cpu_s"):
            so_far = [getattr(host, name) for host in trace.hosts]
            assert so_far == sorted(so_far), name
            assert 0 < so_far[-1] < trace.hosts[-1].cpu_s, name
        assert all(batch.driver_cpu_s is not None and batch.driver_cpu_s > 0 for batch in query.batches)

    prepared = ready(trace, from_s=3.0)
    found = prepared.replay(scenario_of("klink", trace))
    assert {query.name for query in found.queries} == set(by_name)
    assert all(query.latency.batches > 0 for query in found.queries)
    assert found.due > 0


def test_a_trace_that_cannot_be_written_is_refused_and_leaves_plain_spark(spark: Any, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("")
    with pytest.raises(slackwater.ConfigurationError, match="there already"):
        slackwater.attach(spark, record=there)
    with pytest.raises(slackwater.ConfigurationError, match="unknown policy"):
        slackwater.attach(spark, record=tmp_path / "new", shadow="klnk")
    with slackwater.attach(spark, record=tmp_path / "third") as handle:
        assert handle.recording() is not None
        assert handle.shadow() is None
    assert read_trace(tmp_path / "third").ended
