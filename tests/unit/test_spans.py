"""Batches as spans, in the SDK's own memory."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from slackwater.core.model import Stage
from slackwater.core.records import Ended, Left, Ran, Records
from slackwater.errors import ConfigurationError
from slackwater.telemetry.spans import Spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan


class Told:
    def __init__(self) -> None:
        self.records = Records()
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.spans = Spans(self.records, self.tracers, self.meters)

    def ran(self, stage: Stage, began: float, ended: float, waited_s: float = 0.0, batch_id: int = 1) -> None:
        lane = 1 if stage in (Stage.DATA, Stage.SWEEP) else None
        self.records.ran.add(Ran("run-1", "alerts", stage, lane, "least slack", batch_id, began, ended, 10, waited_s))

    def taken(self) -> dict[str, ReadableSpan]:
        self.spans.take()
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def measured(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: metric.data.data_points[0]
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def told() -> Iterator[Told]:
    made = Told()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


def seconds(span: ReadableSpan) -> tuple[float, float]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time / 1e9, span.end_time / 1e9


def parent(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def test_a_batch_is_a_span_in_its_turn_with_the_wait_before_it(told: Told) -> None:
    told.ran(Stage.DATA, 100.0, 100.5, waited_s=2.0, batch_id=7)
    told.ran(Stage.SWEEP, 100.5, 100.75, batch_id=8)
    spans = told.taken()
    assert {name: seconds(span) for name, span in spans.items()} == {
        "turn": (98.0, 100.5),
        "wait": (98.0, 100.0),
        "data batch": (100.0, 100.5),
        "sweep batch": (100.5, 100.75),
    }
    turn = spans["turn"].context
    assert turn is not None
    assert parent(spans["turn"]) is None
    assert {parent(spans[name]) for name in ("wait", "data batch", "sweep batch")} == {turn.span_id}
    batch = spans["data batch"]
    assert batch.attributes == {
        "slackwater.query": "alerts",
        "slackwater.run_id": "run-1",
        "slackwater.stage": "data batch",
        "slackwater.batch_id": 7,
        "slackwater.rows": 10,
        "slackwater.lane": 1,
        "slackwater.reason": "least slack",
        "slackwater.waited_s": 2.0,
    }


def test_a_batch_that_nobody_held_is_a_trace_of_its_own(told: Told) -> None:
    told.ran(Stage.UNGATED, 100.0, 100.5)
    (span,) = told.taken().values()
    assert span.name == "batch"
    assert span.parent is None
    assert "slackwater.lane" not in (span.attributes or {})


def test_each_batch_is_told_once(told: Told) -> None:
    told.ran(Stage.DATA, 100.0, 100.5)
    told.taken()
    told.taken()
    assert [span.name for span in told.exporter.get_finished_spans()] == ["turn", "data batch"]


def test_latency_wait_and_length_of_batches_are_measured(told: Told) -> None:
    told.ran(Stage.DATA, 100.0, 100.5, waited_s=2.0)
    told.ran(Stage.SWEEP, 100.5, 101.0)
    told.records.left.add(Left("run-1", "alerts", 98.0, 101.0))
    told.records.ended.add(Ended("run-1", "alerts", "id", 102.0, "it broke"))
    told.spans.take()
    found = told.measured()
    assert (found["slackwater.query.latency"].count, found["slackwater.query.latency"].sum) == (1, 3.0)
    assert (found["slackwater.query.wait"].count, found["slackwater.query.wait"].sum) == (1, 2.0)
    assert found["slackwater.query.rows"].value == 20
    assert found["slackwater.query.failures"].value == 1
    assert told.spans._turns == {}, "nothing is kept of a query that is gone"


def test_without_opentelemetry_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *arguments: Any, **more: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigurationError, match=r"slackwater\[otel\]"):
        Spans(Records())
