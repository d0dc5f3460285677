"""Shadow mode: what another policy would decide, beside the one in force, and what it would bring.

Its choices are computed once a second from what the scheduler knows. What it would bring comes from replaying the last
minutes in a process of its own at the lowest priority, seldom enough to take a few per cent of a core at most; now and
then what `slackwater advise` says of those minutes, in the same way.
"""

from __future__ import annotations

import json
import logging
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from slackwater.core.model import Snapshot, Stage
from slackwater.metrics.catalogue import CATALOGUE, OFFERED
from slackwater.metrics.graph import MetricProvider
from slackwater.policies.assembly import policy_for
from slackwater.recording.frames import MAGIC, frame
from slackwater.recording.records import Batch, Gone, Host, Query, Worked
from slackwater.recording.scribe import SAMPLE_EVERY_S, Scribe, rounded, tells
from slackwater.replay.child import ADVISE

if TYPE_CHECKING:
    from collections.abc import Callable

    from slackwater.core.engine import Engine
    from slackwater.core.model import Choice, Commands, Knob, QueryView, Report
    from slackwater.recording.records import Plain, Record

log = logging.getLogger("slackwater")

_LOOK_EVERY_S = 1.0
_KEPT_S = 300.0
_FIRST_REPLAY_S = 60.0
_REPLAY_EVERY_S = 60.0
_FIRST_ADVICE_S = 300.0
_ADVISE_EVERY_S = 1800.0
_REPLAY_DUTY, _ADVICE_DUTY = 0.04, 0.01  # of a core, at most
_MOST_WAITING = 2_000
_MOST_RECORDS = 50_000
_REPLAY_TIMEOUT_S = 300.0
_ADVICE_TIMEOUT_S = 1800.0
_ENDING_S = 2.0


@dataclass(frozen=True, slots=True)
class ShadowChoice:
    """What the other policy would do with a query now."""

    name: str
    start: bool
    urgency: float
    reason: str


@dataclass(frozen=True, slots=True)
class ShadowGain:
    """The last minutes as they were, and as they would have been; between: where the mean is expected."""

    wall_ts: float
    measured_s: float
    mean_s: float
    p99_s: float
    cpu_cores: float | None
    predicted_mean_s: float | None
    predicted_mean_low_s: float | None
    predicted_mean_high_s: float | None
    predicted_p99_s: float | None
    predicted_cpu_cores: float | None
    error_mean: float


@dataclass(frozen=True, slots=True)
class ShadowAdvice:
    """What `slackwater advise` said of the last minutes; switch: what it recommends, None to leave things alone."""

    wall_ts: float
    lines: tuple[str, ...]
    switch: str | None


@dataclass(frozen=True, slots=True)
class ShadowStatus:
    """`gain` and `advice` are None until the first is there; `trouble` is why the last replay came to nothing."""

    policy: str
    choices: tuple[ShadowChoice, ...]
    gain: ShadowGain | None
    trouble: str | None
    advice: ShadowAdvice | None = None


class Shadow:
    """Watches one engine. Call `saw` after each of its steps; nothing that it decides takes effect."""

    def __init__(
        self,
        policy: str,
        engine: Engine,
        *,
        knob: Knob = "balanced",
        session: dict[str, Plain] | None = None,
        replay_every_s: float = _REPLAY_EVERY_S,
        first_replay_s: float = _FIRST_REPLAY_S,
        first_advice_s: float = _FIRST_ADVICE_S,
        kept_s: float = _KEPT_S,
        replay: Callable[[bytes, str, float], dict[str, Any]] | None = None,
    ) -> None:
        self.policy = policy_for(policy, knob=knob)
        self._name = policy if knob == "balanced" else f"{policy}:{knob}"
        self._metrics = MetricProvider(CATALOGUE, OFFERED, driver="spark")
        self._engine = engine
        self._session = session or {}
        self._scribe = Scribe(engine)
        self._replay = replay or self._in_a_process
        self._replay_every_s = replay_every_s
        self._kept_s = kept_s
        self._queue: deque[tuple[Report, Commands]] = deque(maxlen=_MOST_WAITING)
        self._described: dict[int, Query] = {}
        self._records: deque[tuple[float, Record]] = deque(maxlen=_MOST_RECORDS)
        self._kept_wall_ts = -math.inf
        self._replaying: threading.Thread | None = None
        self._choices: tuple[ShadowChoice, ...] = ()
        self._gain: ShadowGain | None = None
        self._advice: ShadowAdvice | None = None
        self._trouble: str | None = None
        self._next_replay = time.monotonic() + first_replay_s
        self._next_advice = time.monotonic() + first_advice_s
        self._child: subprocess.Popen[bytes] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slackwater-shadow", daemon=True)
        self._thread.start()

    # ---- the scheduler's side: never waits ----------------------------------------------------------------------

    def saw(self, report: Report, commands: Commands) -> None:
        if tells(report, commands) or report.wall_ts >= self._kept_wall_ts + SAMPLE_EVERY_S:
            self._kept_wall_ts = report.wall_ts
            self._queue.append((report, commands))

    # ---- whoever asks -------------------------------------------------------------------------------------------

    def status(self) -> ShadowStatus:
        return ShadowStatus(self._name, self._choices, self._gain, self._trouble, self._advice)

    def rows(self) -> list[dict[str, Plain]]:
        """For `Overview.told`: what it would bring, then its word on each query, then advice line by line."""
        if self._stop.is_set():
            return []
        gain, advice = self._gain, self._advice
        first: dict[str, Plain] = {"policy": self._name, "trouble": self._trouble}
        if gain is not None:
            first |= {name: getattr(gain, name) for name in ShadowGain.__slots__}
        rows = [first]
        rows += [
            {"query": one.name, "start": one.start, "urgency": one.urgency, "reason": one.reason}
            for one in self._choices
        ]
        if advice is not None:
            first |= {"advised_wall_ts": advice.wall_ts, "switch": advice.switch}
            rows += [{"advice": line} for line in advice.lines]
        return rows

    def close(self) -> None:
        self._stop.set()
        child = self._child
        if child is not None:
            child.kill()
        for thread in (self._replaying, self._thread):
            if thread is not None:
                thread.join(_ENDING_S)

    # ---- its own thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_EVERY_S):
            try:
                self._write_down()
                self._choices = self._decide()
                busy = self._replaying is not None and self._replaying.is_alive()
                look = self._due(time.monotonic())
                if not busy and look is not None:
                    # Beside this thread, which goes on writing down.
                    work = threading.Thread(target=look, args=(self.trace(),), daemon=True)
                    self._replaying = work
                    work.start()
            except Exception as error:
                self._trouble = f"{type(error).__name__}: {error}"
                log.debug("the shadow policy stumbled: %s", self._trouble)

    def _due(self, now: float) -> Callable[[bytes], None] | None:
        if now >= self._next_replay:
            return self._look_back
        return self._advise if now >= self._next_advice else None

    def _write_down(self) -> None:
        seen = [self._queue.popleft() for _ in range(len(self._queue))]
        for record in self._scribe.records(seen):
            if isinstance(record, Query):
                self._described[record.number] = record
            elif isinstance(record, Batch):
                self._records.append((record.ended_wall_ts, record))
            elif isinstance(record, Host | Gone):
                self._records.append((record.wall_ts, record))
            elif isinstance(record, Worked) and self._records:  # of a batch that was over a little before
                self._records.append((self._records[-1][0], record))
        newest = self._records[-1][0] if self._records else 0.0
        while self._records and self._records[0][0] < newest - self._kept_s:
            _, oldest = self._records.popleft()
            if isinstance(oldest, Gone):
                self._described.pop(oldest.number, None)

    def _decide(self) -> tuple[ShadowChoice, ...]:
        """Its choices, as if every query waited for it."""
        views, capacity = self._engine.views, self._engine.capacity
        if not views:
            return ()
        snapshot = Snapshot(
            wall_ts=time.time(),
            queries=tuple(_waiting(view) for view in views),
            lanes=max(1, capacity.lanes),
            lanes_free=max(1, capacity.lanes),
            cores=capacity.cores,
            memory=self._engine.memory,
        )
        if needs := getattr(self.policy, "needs", ()):
            snapshot = replace(snapshot, metrics=self._metrics(snapshot, needs))
        names = {view.key: view.name for view in views}
        choices: list[Choice] = sorted(
            self.policy.decide(snapshot), key=lambda choice: (not choice.start, choice.urgency)
        )
        return tuple(
            ShadowChoice(names.get(choice.key, choice.key), choice.start, choice.urgency, choice.reason)
            for choice in choices
        )

    def trace(self) -> bytes:
        """The last minutes as a trace."""
        records = [record for _, record in self._records]
        begin = self._records[0][0] if self._records else 0.0
        head = self._scribe.head(begin, version="", application="", spark="", master="", session=self._session)
        queries: list[Record] = [
            msgspec.structs.replace(query, wall_ts=max(query.wall_ts, rounded(begin)))
            for query in self._described.values()
        ]
        return MAGIC + frame([head, *queries, *records])

    def _look_back(self, trace: bytes) -> None:
        said, took_s = self._asked(trace, self._name, _REPLAY_TIMEOUT_S)
        self._next_replay = time.monotonic() + max(self._replay_every_s, took_s / _REPLAY_DUTY)
        if "trouble" not in said:
            self._gain = msgspec.convert({"wall_ts": time.time(), **said}, ShadowGain)

    def _advise(self, trace: bytes) -> None:
        said, took_s = self._asked(trace, ADVISE, _ADVICE_TIMEOUT_S)
        self._next_advice = time.monotonic() + max(_ADVISE_EVERY_S, took_s / _ADVICE_DUTY)
        if "trouble" not in said:
            self._advice = msgspec.convert({"wall_ts": time.time(), **said}, ShadowAdvice)

    def _asked(self, trace: bytes, what: str, timeout_s: float) -> tuple[dict[str, Any], float]:
        """The answer, and how long it took."""
        began = time.monotonic()
        try:
            said = self._replay(trace, what, timeout_s)
        except Exception as error:
            said = {"trouble": f"{type(error).__name__}: {error}"}
        trouble = said.get("trouble")
        self._trouble = str(trouble) if trouble is not None else None
        return said, time.monotonic() - began

    def _in_a_process(self, trace: bytes, what: str, timeout_s: float) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="slackwater-shadow-") as folder:
            path = Path(folder) / "trace"
            path.write_bytes(trace)
            command = [sys.executable, "-m", "slackwater.replay.child", str(path), what]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
                self._child = child
                if self._stop.is_set():
                    child.kill()
                try:
                    out, err = child.communicate(timeout=timeout_s)
                except subprocess.TimeoutExpired:
                    child.kill()
                    return {"trouble": f"the replay was not over after {timeout_s:.0f} s"}
                finally:
                    self._child = None
        if child.returncode != 0:
            last = err.decode(errors="replace").strip().splitlines()[-1:] or [f"ended with {child.returncode}"]
            return {"trouble": last[0]}
        found: dict[str, Any] = json.loads(out)
        return found


def _waiting(view: QueryView) -> QueryView:
    return replace(view, eligible=True, stage=Stage.WAITING)
