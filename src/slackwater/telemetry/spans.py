"""Batches as spans and figures as metrics, for OpenTelemetry: through its API, to whatever the application has set up.

Which exporter there is, and where it sends, is the user's business. Without a provider OpenTelemetry does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from slackwater._version import __version__
from slackwater.core.model import Stage
from slackwater.errors import ConfigurationError
from slackwater.telemetry.cursor import Cursor

if TYPE_CHECKING:
    from slackwater.core.records import Left, Ran, Records

_SCOPE: Final = "slackwater"
_NS: Final = 1_000_000_000
_MOST_OPEN: Final = 5000
_NAMES: Final = {Stage.DATA: "data batch", Stage.SWEEP: "sweep batch"}


class Spans:
    """A consumer for `following`: each batch becomes a span when it is over.

    A batch that waited for its turn lies in a span `turn` that begins with the wait, beside a span `wait`. A sweep
    batch belongs to the turn of the data batch before it, where that is known. Latencies, waits and the lengths of
    batches are recorded as histograms.
    """

    def __init__(self, records: Records, tracer_provider: Any = None, meter_provider: Any = None) -> None:
        try:
            from opentelemetry import metrics, trace  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigurationError(
                "otel=True needs OpenTelemetry, which is not installed: pip install 'slackwater[otel]', and the "
                "exporter of your choice."
            ) from error
        self._trace = trace
        self._tracer = trace.get_tracer(_SCOPE, __version__, tracer_provider)
        meter = metrics.get_meter(_SCOPE, __version__, meter_provider)
        self._latency = meter.create_histogram(
            "slackwater.query.latency", "s", "From a window's end to the end of the batch that emitted it."
        )
        self._batch = meter.create_histogram("slackwater.query.batch", "s", "How long a micro-batch took.")
        self._wait = meter.create_histogram("slackwater.query.wait", "s", "How long it waited for a turn.")
        self._rows = meter.create_counter("slackwater.query.rows", "{row}", "Rows that batches took in.")
        self._failures = meter.create_counter("slackwater.query.failures", "{run}", "Runs that ended in an error.")
        self._ran, self._left, self._ended = Cursor(records.ran), Cursor(records.left), Cursor(records.ended)
        self._turns: dict[str, Any] = {}  # by key: the context of its last turn

    def take(self) -> None:
        for batch in self._ran.take():
            self._tell_batch(batch)
        for window in self._left.take():
            self._tell_window(window)
        for end in self._ended.take():
            self._turns.pop(end.key, None)
            if end.error is not None:
                self._failures.add(1, {"slackwater.query": end.name})

    def _tell_batch(self, batch: Ran) -> None:
        query = {"slackwater.query": batch.name}
        told = query | {
            "slackwater.run_id": batch.key,
            "slackwater.stage": str(batch.stage),
            "slackwater.batch_id": batch.batch_id,
            "slackwater.rows": batch.rows,
            "slackwater.reason": batch.reason,
            "slackwater.waited_s": batch.waited_s,
        }
        if batch.lane is not None:
            told["slackwater.lane"] = batch.lane
        context = self._turn_of(batch, told)
        self._span(_NAMES.get(batch.stage, "batch"), batch.began_wall_ts, batch.ended_wall_ts, told, context)
        self._batch.record(batch.ended_wall_ts - batch.began_wall_ts, query | {"slackwater.stage": str(batch.stage)})
        self._rows.add(batch.rows, query)
        if batch.stage is Stage.DATA:
            self._wait.record(batch.waited_s, query)

    def _turn_of(self, batch: Ran, told: dict[str, Any]) -> Any:
        """The context that a batch's span lies in; None: it is a trace of its own."""
        if batch.stage is Stage.SWEEP:
            return self._turns.get(batch.key)
        if batch.stage is not Stage.DATA:
            return None
        asked_wall_ts = batch.began_wall_ts - batch.waited_s
        turn = self._span("turn", asked_wall_ts, batch.ended_wall_ts, told, None)
        context = self._trace.set_span_in_context(turn)
        if batch.waited_s > 0:
            self._span("wait", asked_wall_ts, batch.began_wall_ts, told, context)
        self._turns.pop(batch.key, None)
        self._turns[batch.key] = context
        if len(self._turns) > _MOST_OPEN:
            self._turns.pop(next(iter(self._turns)))
        return context

    def _span(self, name: str, from_wall_ts: float, to_wall_ts: float, told: dict[str, Any], context: Any) -> Any:
        span = self._tracer.start_span(name, context, attributes=told, start_time=round(from_wall_ts * _NS))
        span.end(round(to_wall_ts * _NS))
        return span

    def _tell_window(self, window: Left) -> None:
        self._latency.record(max(0.0, window.latency_s), {"slackwater.query": window.name})
