"""`attach(otel=True)` on a real session: its batches, as the application's own OpenTelemetry gets them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from slackwater.core.model import Stage
from tests.spark.support import eventually, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry.sdk.trace import ReadableSpan

    from slackwater import Handle
    from tests.spark.support import Feed

pytestmark = pytest.mark.spark


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What the application's provider got. The real one can be set once in a process, and never taken back."""
    provider, memory = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield memory
    provider.shutdown()


class Seen(NamedTuple):
    name: str
    own_id: int
    parent_id: int | None
    trace_id: int
    began_ns: int
    ended_ns: int
    told: dict[str, Any]


def seen(span: ReadableSpan) -> Seen:
    assert span.context is not None
    assert span.start_time is not None
    assert span.end_time is not None
    parent_id = span.parent.span_id if span.parent is not None else None
    told = {name.removeprefix("slackwater."): value for name, value in (span.attributes or {}).items()}
    return Seen(span.name, span.context.span_id, parent_id, span.context.trace_id, span.start_time, span.end_time, told)


def test_batches_are_spans_and_a_sweep_batch_lies_in_the_turn_of_the_data_batch_before_it(
    spark: Any, attach: Callable[..., Handle], feed: Feed, exporter: InMemorySpanExporter
) -> None:
    handle = attach(otel=True)
    counted = feed.stream(spark).withWatermark("ts", "1 second").groupBy(F.window("ts", "10 seconds")).count()
    query = start(counted, name="traced")

    def swept() -> int:
        return sum(batch.stage is Stage.SWEEP for batch in handle._engine.records.ran.since(0))

    feed.put([(3.0, "k", 1), (4.0, "k", 2), (12.0, "k", 3)])
    eventually(lambda: swept() >= 1, 60)
    feed.put([(15.0, "k", 4), (24.0, "k", 5)])
    eventually(lambda: swept() >= 2, 60)
    query.stop()
    handle.detach()

    spans = [seen(span) for span in exporter.get_finished_spans()]
    turns = {span.own_id: span for span in spans if span.name == "turn"}
    assert {span.name for span in spans} <= {"turn", "wait", "data batch", "sweep batch", "batch"}
    assert {(span.told["query"], span.told["run_id"]) for span in spans} == {("traced", str(query.runId))}

    batches = sorted((s for s in spans if s.name in ("data batch", "sweep batch")), key=lambda s: s.told["batch_id"])
    sweeps = [span for span in batches if span.name == "sweep batch"]
    assert len(sweeps) >= 2
    assert {span.told["rows"] for span in sweeps} == {0}
    assert sum(span.told["rows"] for span in batches) == 5
    for span in batches:
        turn = turns[span.parent_id or 0]
        assert (turn.parent_id, turn.trace_id) == (None, span.trace_id)
        assert span.told["stage"] == span.name
        assert span.told["lane"] in (0, 1)
        assert span.told["reason"]
        assert span.began_ns < span.ended_ns
    for before, after in pairwise(batches):
        assert before.ended_ns <= after.began_ns
        if after.name == "sweep batch":
            assert after.parent_id == before.parent_id
    for wait in (span for span in spans if span.name == "wait"):
        turn = turns[wait.parent_id or 0]
        assert wait.began_ns == turn.began_ns
        assert turn.told["waited_s"] > 0
