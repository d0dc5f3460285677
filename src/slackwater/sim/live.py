"""A simulated application in wall time: the real handle, engine and endpoint over queries that only seem to run.

For looking at the page, and for testing and measuring it, without Spark. Time passes as on the wall; what is behind (a
history to begin with, or a machine too slow for so many queries) is made up for as fast as it goes.
"""

from __future__ import annotations

import math
import os
import random
import secrets
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from slackwater.core.model import QueryOptions, Window
from slackwater.drivers.spark.handle import Handle
from slackwater.drivers.spark.sessions import tell_for
from slackwater.drivers.spark.telling import Identity
from slackwater.endpoint.server import LOOPBACK
from slackwater.policies.assembly import engine_for
from slackwater.replay.shadow import Shadow
from slackwater.testing import FakeClock, ScriptedDriver, SimulatedQuery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slackwater.core.engine import EngineSettings
    from slackwater.core.model import Commands, Policy, Report

_HEAP_BYTES = 2 << 30
_TIDE_S = 75.0
_COLLECTION_S = 4.0

_SUBJECTS = ("orders", "clicks", "payments", "sessions", "sensors", "trips", "carts", "adverts")
_RESULTS = ("per-minute", "by-region", "top-sellers", "anomalies", "funnel")
_WINDOWS_S = (10.0, 10.0, 15.0, 20.0, 30.0)


@dataclass(frozen=True, slots=True)
class Heap:
    """What a driver's heap would look like: live bytes ebb and flow between two shares of it, garbage comes on top."""

    max_bytes: int = _HEAP_BYTES
    low: float = 0.42
    high: float = 0.79

    def at(self, wall_ts: float) -> tuple[int, int]:
        """Bytes used, and bytes that live."""
        tide = 0.5 - 0.5 * math.cos(2 * math.pi * wall_ts / _TIDE_S)
        live = (self.low + (self.high - self.low) * tide) * self.max_bytes
        garbage = (wall_ts % _COLLECTION_S) / _COLLECTION_S * (self.max_bytes - live) * 0.6
        return round(live + garbage), round(live)


class WallBridge:
    """Stands where the bridge to Spark's JVM stands, and lets virtual time pass no faster than the wall's."""

    def __init__(self, driver: ScriptedDriver, heap: Heap | None) -> None:
        self._driver = driver
        self._heap = heap
        self._woken = threading.Event()
        self.notes: list[str] = []
        self.opened = 0
        self.jvm_cpu_s = 0.0

    def exchange(self, commands: Commands, *, decided: bool = True) -> Report:
        del decided
        report = self._driver.exchange(commands)
        self._woken.wait(max(0.0, report.wall_ts - time.time()))
        self._woken.clear()
        if self._heap is None:
            return report
        used, live = self._heap.at(report.wall_ts)
        return replace(report, heap_used_bytes=used, heap_live_bytes=live, heap_max_bytes=self._heap.max_bytes)

    def wake(self) -> None:
        self._woken.set()

    def resync(self) -> None:
        self._driver.resync()

    def session_is_over(self) -> bool:
        return False

    def detach(self) -> None:
        self._woken.set()


def live_application(
    queries: Sequence[SimulatedQuery],
    *,
    policy: str | Policy = "klink",
    settings: EngineSettings | None = None,
    cores: int = 2,
    history_s: float = 0.0,
    heap: Heap | None = None,
    name: str = "simulated",
    application_id: str | None = None,
    port: int | None = 0,
    shadow: str | None = None,
    shadow_after_s: float = 60.0,
) -> Handle:
    """An attached application of simulated queries; `detach` ends it. No port: it is not served.

    history_s: how long ago it seems to have started. shadow: a policy beside the one in force; what it would bring is
    told after shadow_after_s, and advice after five times as long.
    """
    driver = ScriptedDriver(queries, cores=cores, clock=FakeClock(time.time() - history_s))
    engine = engine_for(policy, settings)
    known_as = application_id or f"simulated-{secrets.token_hex(4)}"
    watchers = []
    if shadow is not None:
        watchers.append(Shadow(shadow, engine, first_replay_s=shadow_after_s, first_advice_s=5 * shadow_after_s))
        tell_for(known_as, "shadow", watchers[0].rows)
    handle = Handle(cast("Any", WallBridge(driver, heap)), engine, lambda: None, watchers=watchers)
    if port is not None:
        identity = Identity(known_as, name, f"local[{cores}]", None, os.getpid())
        handle.serve(identity, LOOPBACK, port)
    return handle


def platform(queries: int, seed: int = 0) -> list[SimulatedQuery]:
    """So many queries of different windows, rates and classes, as a platform has them; two cores carry about 40."""
    drawn = random.Random(seed)
    light = min(1.0, 30 / max(1, queries))
    made = []
    for number in range(queries):
        subject, result = _SUBJECTS[number % 8], _RESULTS[number // 8 % 5]
        again = f"-{number // 40 + 1}" if queries > 40 else ""
        size_s = drawn.choice(_WINDOWS_S) / max(light, 0.2)
        made.append(
            SimulatedQuery(
                f"{subject}.{result}{again}",
                windows=(Window(size_s, size_s, round(drawn.uniform(0, size_s), 1)),),
                delay_s=1.0,
                rows_per_s=float(drawn.choice((200, 800, 2500, 6000))),
                step_s=drawn.choice((None, 0.7, 1.0, 3.3)),
                lag_s=drawn.uniform(0.05, 0.6),
                batch_cost_s=drawn.uniform(0.18, 0.42) * light,
                row_cost_s=2e-6 * light,
                factors=(0.8, 0.9, 1.0, 1.1, 1.4),
                state_bytes=drawn.randrange(1 << 20, 48 << 20),
                options=QueryOptions(priority_class=drawn.choice((0, 0, 0, 0, 1, -1))),
            )
        )
    return made
