"""The workloads that `slackwater bench` knows by name, each with the settings of the paper that it is taken from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from slackwater.errors import ConfigurationError, unknown_name
from slackwater.workloads.linear_road_windows import FEEDS, LinearRoadWindows
from slackwater.workloads.nyt import Nyt
from slackwater.workloads.rate_source import require_exact_event_times
from slackwater.workloads.riot.windows import RiotWindows
from slackwater.workloads.voip.windows import VoipWindows
from slackwater.workloads.ysb import Ysb

if TYPE_CHECKING:
    from collections.abc import Callable

    from slackwater.workloads import nyt, ysb
    from slackwater.workloads.base import PayloadKind, Workload
    from slackwater.workloads.riot import windows as riot


@dataclass(frozen=True)
class Asked:
    """What a benchmark may ask of any workload."""

    payload: PayloadKind = "columns"
    body_bytes: int = 400
    source_partitions: int = 1


@dataclass(frozen=True)
class Entry:
    """A workload's factory, its usual settings, and what it can be asked.

    streams: sources of each query, which share its rate evenly. deadline_share: of the time from one window's end to
    the next one's, the share within which a scheduler is told that results should be out.
    """

    name: str
    about: str
    make: Callable[[Asked], Workload]
    payloads: tuple[PayloadKind, ...]
    rate: int
    window_s: float
    slide_s: float | None = None
    streams: int = 1
    deadline_share: float | None = None

    def deadline_s(self, every_s: float) -> float | None:
        return None if self.deadline_share is None else self.deadline_share * every_s

    def check(self, payload: str, rate: int, window_s: float, slide_s: float | None) -> None:
        """Raise ConfigurationError for what this workload cannot do."""
        if payload not in self.payloads:
            raise ConfigurationError(f"the payload of {self.name} is {' or '.join(self.payloads)}; got {payload!r}.")
        if slide_s is not None and not 0 < slide_s <= window_s:
            raise ConfigurationError(
                f"windows of {window_s:g} s slide by more than 0 s and at most their length; got {slide_s:g} s."
            )
        if rate % self.streams:
            raise ConfigurationError(
                f"the rate of {self.name} is shared by {self.streams} sources and must be a multiple of "
                f"{self.streams}; got {rate}."
            )
        require_exact_event_times(rate // self.streams)


def _ysb(asked: Asked) -> Workload:
    payload = cast("ysb.PayloadKind", asked.payload)
    return Ysb(payload=payload, body_bytes=asked.body_bytes, source_partitions=asked.source_partitions)


def _nyt(asked: Asked) -> Workload:
    return Nyt(payload=cast("nyt.PayloadKind", asked.payload), source_partitions=asked.source_partitions)


def _linear_road(asked: Asked) -> Workload:
    return LinearRoadWindows(source_partitions=asked.source_partitions)


def _riot(asked: Asked) -> Workload:
    return RiotWindows(payload=cast("riot.PayloadKind", asked.payload), source_partitions=asked.source_partitions)


def _voip(asked: Asked) -> Workload:
    return VoipWindows(source_partitions=asked.source_partitions)


WORKLOADS = {
    entry.name: entry
    for entry in (
        Entry("ysb", "YSB", _ysb, ("columns", "json", "kept"), rate=10_000, window_s=10.0),
        Entry("nyt", "New York taxi", _nyt, ("columns", "csv"), rate=7_000, window_s=2.0, slide_s=1.0),
        Entry(
            "linear-road",
            "windowed Linear Road",
            _linear_road,
            ("columns",),
            rate=9_750,
            window_s=5.0,
            slide_s=3.0,
            streams=FEEDS,
        ),
        Entry(
            "linear-road-stressed",
            "windowed Linear Road (results due within a third of a slide)",
            _linear_road,
            ("columns",),
            rate=9_750,
            window_s=5.0,
            slide_s=3.0,
            streams=FEEDS,
            deadline_share=1 / 3,
        ),
        Entry("riot", "RIoTBench STATS", _riot, ("columns", "json"), rate=350, window_s=10.0),
        Entry("voip", "VoipStream", _voip, ("columns",), rate=2_000, window_s=10.0),
    )
}


def workload_entry(name: str) -> Entry:
    if name not in WORKLOADS:
        raise unknown_name("workload", name, WORKLOADS)
    return WORKLOADS[name]
