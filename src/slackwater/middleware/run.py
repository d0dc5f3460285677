"""The middleware's loop: every period read engines, ask the policies that are due, enact; at the end put all back.

Engines are read by a thread for each driver, so a slow one delays nobody. One that is silent keeps what it had for a
while; then its processes get back what they had before.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slackwater.errors import SlackwaterError, UnreachableError
from slackwater.middleware.planning import Reading, classified, together

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from slackwater.middleware.config import ClassEntry
    from slackwater.middleware.enforcing import Enactment, Enforcer
    from slackwater.middleware.model import Application, Driver
    from slackwater.middleware.planning import Binding, Metrics
    from slackwater.translators.schedule import Target

log = logging.getLogger("slackwater")

SILENT_FOR_S = 15.0
_FORGOTTEN_S = 600.0
_ENDING_S = 6.0
_MOST_TOLD = 1000


@dataclass(frozen=True, slots=True)
class Round:
    """One period, for whoever watches."""

    wall_ts: float
    readings: tuple[Reading, ...]
    enactment: Enactment
    cpu_s: float


class Reader:
    """Reads one driver, again and again, in a thread of its own."""

    def __init__(self, driver: Driver, period_s: float) -> None:
        self.driver = driver
        self._period_s = period_s
        self._stop = threading.Event()
        self._seen: dict[str, tuple[float, Application]] = {}
        self._told = ""
        self._thread = threading.Thread(target=self._run, name=f"read-{driver.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def latest(self, wall_ts: float) -> tuple[Application, ...]:
        """Every application as it was read last, unless that is too long ago: a busy one may be silent for a while."""
        longest_s = max(SILENT_FOR_S, 3 * self._period_s)
        return tuple(application for when, application in self._seen.values() if wall_ts - when <= longest_s)

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_ENDING_S)
        self.driver.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                now = time.time()
                read = {application.key: (now, application) for application in self.driver.read(now)}
                known = {key: seen for key, seen in self._seen.items() if now - seen[0] <= _FORGOTTEN_S}
                # A whole table is put in place, so who reads meanwhile sees the old one or the new one.
                self._seen = {**known, **read}
                self._tell("")
            except UnreachableError as error:
                self._tell(str(error))
            except Exception as error:
                self._tell(f"{type(error).__name__}: {error}")
            self._stop.wait(max(0.01, self._period_s - (time.monotonic() - begun)))

    def _tell(self, trouble: str) -> None:
        if trouble and trouble != self._told:
            log.warning("driver %s: %s", self.driver.name, trouble)
        elif self._told and not trouble:
            log.info("driver %s answers again", self.driver.name)
        self._told = trouble


class Middleware:
    """Everything at work, inside a `with` block. `step` is one period; `run` makes them until told to stop."""

    def __init__(
        self,
        *,
        readers: Sequence[Reader],
        bindings: Sequence[Binding],
        classes: Sequence[ClassEntry],
        metrics: Metrics,
        enforcer: Enforcer | None,
    ) -> None:
        self._readers = tuple(readers)
        self._bindings = tuple(bindings)
        self._classes = tuple(classes)
        self._metrics = metrics
        self._enforcer = enforcer
        self._told: set[str] = set()
        self.tick_s = min(binding.period_s for binding in bindings)

    def step(self, wall_ts: float) -> Round:
        """Read, decide, enact. Trouble of one policy or with the rights is logged, and the rest goes on."""
        begun_s = time.process_time()
        readings = tuple(
            Reading(reader.driver.name, classified(reader.latest(wall_ts), self._classes)) for reader in self._readers
        )
        for binding in self._bindings:
            if binding.due(wall_ts):
                try:
                    binding.ask(readings, self._metrics, wall_ts)
                except Exception as error:
                    self._tell_once(f"policy {binding.policy.name}: {error} Its last word stands.")
        enactment, doubts = together(binding.word for binding in self._bindings)
        for doubt in doubts:
            self._tell_once(doubt)
        if self._enforcer is not None:
            try:
                self._enforcer.apply(enactment, _targets(readings))
            except SlackwaterError as error:
                self._tell_once(str(error))
        return Round(wall_ts, readings, enactment, time.process_time() - begun_s)

    def run(self, stop: threading.Event, watch: Callable[[Round], None] | None = None) -> None:
        """Periods until `stop` is set."""
        while not stop.is_set():
            begun = time.monotonic()
            done = self.step(time.time())
            if watch is not None:
                watch(done)
            stop.wait(max(0.01, self.tick_s - (time.monotonic() - begun)))

    def __enter__(self) -> Self:
        for reader in self._readers:
            reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put everything back, then let the drivers go: they may take their time."""
        try:
            if self._enforcer is not None:
                self._enforcer.restore()
        finally:
            for reader in self._readers:
                reader.close()

    def _tell_once(self, what: str) -> None:
        if what not in self._told:
            if len(self._told) >= _MOST_TOLD:
                self._told.clear()
            self._told.add(what)
            log.warning("%s", what)


def _targets(readings: Sequence[Reading]) -> dict[str, Target]:
    return {
        unit.key: unit.target
        for reading in readings
        for application in reading.applications
        for unit in application.units
    }
