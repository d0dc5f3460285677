"""The metrics as Prometheus reads them, in its text format or in OpenMetrics, as the reader asks."""

from __future__ import annotations

import threading
import time
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from slackwater.telemetry.catalogue import METRICS
from slackwater.telemetry.readings import Alarms, readings, scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from slackwater.endpoint.overview import Overview
    from slackwater.telemetry.totals import Distribution, Totals

_FRESH_S: Final = 1.0
_SHARE_OF_A_CORE: Final = 0.02
_LONGEST_ACCEPT: Final = 1000


class Figures(Collector):
    """Reads the application when it is asked, and holds nothing itself."""

    def __init__(self, overview: Callable[[], Overview], totals: Totals, alarms: Alarms | None) -> None:
        self._overview = overview
        self._totals = totals
        self._alarms = alarms

    def collect(self) -> Iterable[Family]:
        now = scene(self._overview, self._totals)
        families = {metric.name: Family(metric.family, metric.about, metric.kind, metric.unit) for metric in METRICS}
        labels = {metric.name: metric.labels for metric in METRICS}
        for name, values, value in readings(now, self._alarms):
            families[name].add_sample(name, dict(zip(labels[name], values, strict=True)), float(value))
        for query in now.queries:
            _add(families["slackwater_query_latency_seconds"], query.label, query.latency_s)
            _add(families["slackwater_query_batch_seconds"], query.label, query.batch_s)
            _add(families["slackwater_query_wait_seconds"], query.label, query.wait_s)
        return families.values()


def _add(family: Family, label: str, found: Distribution) -> None:
    bounds = (*map(str, found.bounds), "+Inf")
    for bound, count in zip(bounds, accumulate(found.counts), strict=True):
        family.add_sample(f"{family.name}_bucket", {"query": label, "le": bound}, count)
    family.add_sample(f"{family.name}_count", {"query": label}, sum(found.counts))
    family.add_sample(f"{family.name}_sum", {"query": label}, found.total)


class Exposition:
    """The text, made anew at most once a second, and so seldom that it takes no more than a fiftieth of a core.

    Many readers cost no more than one.
    """

    def __init__(
        self,
        overview: Callable[[], Overview],
        totals: Totals,
        alarms: Alarms | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(Figures(overview, totals, alarms))
        self._clock = clock
        self._made: dict[str, tuple[float, bytes]] = {}  # by content type: until when it serves, and the text
        self._lock = threading.Lock()

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The text and its content type, for what a reader says that it accepts."""
        encode, kind = _encoder(accept)
        with self._lock:
            until_s, text = self._made.get(kind, (0.0, b""))
            if self._clock() >= until_s:
                self._made = {known: made for known, made in self._made.items() if made[0] > self._clock()}
                began_s = time.thread_time()
                text = encode(self._registry)
                fresh_s = max(_FRESH_S, (time.thread_time() - began_s) / _SHARE_OF_A_CORE)
                self._made[kind] = (self._clock() + fresh_s, text)
            return text, kind


def _encoder(accept: str) -> tuple[Any, str]:
    try:
        return choose_encoder(accept[:_LONGEST_ACCEPT])
    except (ValueError, TypeError):  # a version that is no number
        return choose_encoder("")
