"""The handle that `attach` returns: the scheduler's thread, and what may be asked and ordered of it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from slackwater.control.routes import reading, steering
from slackwater.core.engine import Engine
from slackwater.core.model import Capacity, Commands, Knob, Policy
from slackwater.dashboard.routes import Page
from slackwater.drivers.spark.bridge import SparkBridge, first_line
from slackwater.drivers.spark.oddities import Oddities
from slackwater.drivers.spark.telling import overview
from slackwater.endpoint.server import Endpoint
from slackwater.errors import AttachError, ConfigurationError
from slackwater.forwarding.forwarder import Forwarder
from slackwater.policies.assembly import policy_for
from slackwater.recording.recorder import Recorder
from slackwater.replay.shadow import Shadow
from slackwater.supervision.alarms import Told
from slackwater.telemetry.following import Consumer, Follower
from slackwater.telemetry.routes import metrics_routes
from slackwater.telemetry.totals import Totals

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from slackwater.core.history import Entry
    from slackwater.core.model import QueryOptions, Report
    from slackwater.drivers.spark.companions import Companions, SupervisedQuery
    from slackwater.drivers.spark.telling import Identity
    from slackwater.endpoint.overview import Overview
    from slackwater.endpoint.server import Change, Read
    from slackwater.forwarding.settings import Forwarding
    from slackwater.recording.recorder import RecordingStatus
    from slackwater.replay.shadow import ShadowStatus

log = logging.getLogger("slackwater")

_MOST_NOTES = 1000
_TAKING_CHARGE_S = 2.0
_CARRYING_OUT_S = 3.0

Order = Callable[[Engine, float], None]


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """One query, for a table."""

    key: str
    name: str
    stage: str
    reason: str
    slack_s: float
    watermark_lag_s: float
    backlog_rows: float
    last_latency_s: float | None
    batches: int


@dataclass(frozen=True, slots=True)
class Expectation:
    """Between which wall times the watermark that sweeps a query's next window should become ingestible."""

    name: str
    window_end_event_ts: float
    from_wall_ts: float
    to_wall_ts: float


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """The scheduler's own cost so far, on the Python and on the JVM side."""

    decisions: int
    decision_ms_p99: float
    cpu_s: float
    gates_opened: int


class Watcher(Protocol):
    """Sees each decision, on the scheduler's thread: it must not wait. One that raises is not asked again."""

    def saw(self, report: Report, commands: Commands) -> None: ...

    def close(self) -> None: ...


class Handle:
    """An attached session. Also a context manager: leaving the block detaches."""

    def __init__(self, bridge: SparkBridge, engine: Engine, released: Any, watchers: Iterable[Watcher] = ()) -> None:
        self._watchers = list(watchers)
        self._closing = tuple(self._watchers)
        self._bridge = bridge
        self._engine = engine
        self._released = released
        self._stop = threading.Event()
        self._orders: deque[tuple[Order, Future[None]]] = deque()
        self._decisions = 0
        self._decision_s: deque[float] = deque(maxlen=5000)
        self._cpu_s = 0.0
        self._told: set[str] = set()
        self._oddities = Oddities()
        self._last_report: Report | None = None
        self._endpoint: Endpoint | None = None
        self._page: Page | None = None
        self._forwarder: Forwarder | None = None
        self._followers: list[Follower] = []
        self._companions: Companions | None = None
        self._thread = threading.Thread(target=self._run, name="slackwater", daemon=True)
        self._in_charge = threading.Event()
        self._thread.start()
        # So that the first batch of a query started next is scheduled as well.
        self._in_charge.wait(timeout=_TAKING_CHARGE_S)

    @property
    def policy(self) -> str:
        return self._engine.policy.name

    @property
    def attached(self) -> bool:
        return not self._stop.is_set()

    @property
    def capacity(self) -> Capacity:
        """The cores of the executors that are there now, and the lanes that follow them."""
        return self._engine.capacity

    def detach(self) -> None:
        """Give plain Spark back; queries go on. Calling it again does nothing."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._companions is not None:
            self._companions.close()
        self._thread.join(timeout=5)
        if self._forwarder is not None:
            self._forwarder.close()
        if self._page is not None:
            self._page.close()
        if self._endpoint is not None:
            self._endpoint.close()
        for follower in self._followers:
            follower.close()
        for watcher in self._closing:
            watcher.close()
        try:
            self._bridge.detach()
            self._released()
        except Exception as error:
            log.info("the Spark session ended before detach: %s", type(error).__name__)

    def switch(
        self,
        policy: str | Policy,
        *,
        knob: Knob = "balanced",
        memory_bound: float = 0.75,
        period_s: float | None = None,
    ) -> None:
        """Another policy from the next decision on. Turns that run are finished, and what was learnt stays."""
        chosen = policy_for(policy, knob=knob, memory_bound=memory_bound, period_s=period_s)
        self._order(lambda engine, now_wall_ts: engine.switch(chosen, now_wall_ts))

    def pause(self, query: str) -> None:
        """No turns for a query (by name, id or run id) until `resume`; a turn that runs is finished.

        Whoever awaits its data waits as long. If the scheduler dies, it runs on like all others.
        """
        self._order(lambda engine, now_wall_ts: engine.pause(query, now_wall_ts))

    def resume(self, query: str) -> None:
        self._order(lambda engine, now_wall_ts: engine.resume(query, now_wall_ts))

    def set_class(self, query: str, priority_class: int) -> None:
        """Queries of a smaller class go before those of a greater one; 0 is usual."""
        self._order(lambda engine, now_wall_ts: engine.set_class(query, priority_class, now_wall_ts))

    def change_options(self, queries: dict[str, QueryOptions]) -> None:
        """What holds for queries that are started from now on, by name."""
        self._bridge.options = dict(queries)

    def accompany(self, companions: Companions) -> None:
        """They end with the handle; `attach` calls it."""
        self._companions = companions

    def alarms(self) -> Told:
        """The alarms that are active and those that were, the newest first."""
        return self._companions.alarms() if self._companions is not None else Told(watched=False)

    def supervised(self) -> list[SupervisedQuery]:
        """With `attach(supervise=…)`: every query that was started since, its restarts, and as what it runs now."""
        return self._companions.supervised() if self._companions is not None else []

    def release(self, query: str) -> None:
        """Do not start this query (by name or id) again when it dies, nor if it waits for that now."""
        if self._companions is None:
            raise ConfigurationError(f"{query!r} is not supervised: attach(supervise=True) supervises queries.")
        self._companions.release(query)

    def _order(self, order: Order) -> None:
        """Carry it out between two decisions, on the scheduler's thread, and raise what it raises."""
        if not self.attached:
            raise AttachError("this handle is detached: Spark schedules its queries itself. Attach again first.")
        if not self._thread.is_alive():
            raise AttachError(
                "the scheduler has died, and queries follow their own triggers. See the application's log; detach() "
                "and attach again to have them scheduled."
            )
        done: Future[None] = Future()
        self._orders.append((order, done))
        with suppress(Exception):
            self._bridge.wake()
        try:
            done.result(timeout=_CARRYING_OUT_S)
        except TimeoutError:
            done.cancel()
            raise AttachError(
                f"the scheduler did not answer within {_CARRYING_OUT_S:g} s, so nothing was changed. See the "
                "application's log; queries follow their own triggers while it is silent."
            ) from None

    def _carry_out_orders(self, now_wall_ts: float) -> None:
        while self._orders:
            order, done = self._orders.popleft()
            if done.set_running_or_notify_cancel():
                try:
                    order(self._engine, now_wall_ts)
                    done.set_result(None)
                except Exception as error:
                    done.set_exception(error)

    @property
    def url(self) -> str | None:
        """Where the endpoint answers; None when nothing is served."""
        return self._endpoint.url if self._endpoint is not None else None

    @property
    def token_file(self) -> Path | None:
        """Where the token lies that changes need; None when nothing is served."""
        return self._endpoint.token_file if self._endpoint is not None else None

    def serve(self, identity: Identity, host: str, port: int, forwarding: Forwarding | None = None) -> None:
        """Open the endpoint; `attach(serve=…)` does."""
        if forwarding is not None:
            self._forwarder = Forwarder(identity.application_id, forwarding, self._bridge.wake)
        reads: dict[str, Read] = {
            "/api/status": lambda _: self.overview(identity),
            "/api/alarms": lambda _: self.alarms(),
        }
        changes: dict[str, Change] = {**self._forwarder.routes()} if self._forwarder is not None else {}
        reads |= reading(self._engine, lambda: self.overview(identity))
        changes |= steering(self, self._engine)
        self._page = Page(lambda: self.overview(identity), self._engine.records)
        totals = Totals(self._engine.records)
        self.follow("metrics", totals)
        self._endpoint = Endpoint(
            application_id=identity.application_id,
            name=identity.name,
            reads=reads,
            changes=changes,
            own=self._page.routes() | metrics_routes(lambda: self.overview(identity), totals, self._active_alarms),
            host=host,
            port=port,
        )
        log.info("Slackwater answers at %s", self._endpoint.url)

    def follow(self, name: str, consumer: Consumer) -> None:
        """Let it take what is new every second, in a thread of its own, until detached."""
        self._followers.append(Follower(name, consumer))

    def _active_alarms(self) -> list[tuple[str, str]]:
        return [(alarm.kind, alarm.query) for alarm in self.alarms().active]

    def overview(self, identity: Identity) -> Overview:
        """What the application tells of itself, as of the last decision."""
        return overview(identity, self._engine, self._last_report, self.stats())

    def forwarded(self) -> tuple[int, int]:
        """How many exchanges with neighbouring schedulers went well, and how many did not."""
        couriers = self._forwarder.couriers if self._forwarder is not None else ()
        return sum(courier.exchanges for courier in couriers), sum(courier.failures for courier in couriers)

    def status(self) -> list[QueryStatus]:
        """Where every query stands, as the policy saw it last."""
        out = []
        now = time.time()
        for view in self._engine.views:
            state = self._engine.state(view.key)
            if state is None:
                continue
            out.append(
                QueryStatus(
                    key=view.key,
                    name=view.name,
                    stage=str(view.stage),
                    reason=self._engine.reason(view.key),
                    slack_s=view.swm_wall_ts - now - view.turn_cost_s,
                    watermark_lag_s=state.watermark_lag_s(now),
                    backlog_rows=view.backlog_rows,
                    last_latency_s=state.last_latency_s,
                    batches=state.batches_seen,
                )
            )
        return sorted(out, key=lambda status: status.name)

    def expectations(self, confidence: float = 0.95) -> list[Expectation]:
        """For each windowed query: between which wall times its next window's watermark becomes ingestible."""
        out = []
        for view in self._engine.views:
            state, end = self._engine.state(view.key), view.window_end_event_ts
            interval = state.swm_interval(end, confidence) if state is not None and end is not None else None
            if end is not None and interval is not None:
                out.append(Expectation(view.name, end, *interval))
        return out

    def shadow(self) -> ShadowStatus | None:
        """What the policy of `attach(shadow=…)` would do now, and what it would have brought in the last minutes."""
        return next((watcher.status() for watcher in self._closing if isinstance(watcher, Shadow)), None)

    def recording(self) -> RecordingStatus | None:
        """How large the trace of `attach(record=…)` is, and what is missing in it."""
        return next((watcher.status() for watcher in self._closing if isinstance(watcher, Recorder)), None)

    def room_for(self, seconds: float) -> bool:
        """Will a lane stay free for so long, by what is expected of all queries?"""
        return self._engine.room_for(seconds, time.time())

    def kept(self) -> dict[str, int]:
        """How much the scheduler keeps, by name, on both sides: what may not grow with queries that have gone."""
        engine = {f"engine_{name}": count for name, count in self._engine.kept().items()}
        return engine | {f"jvm_{name}": count for name, count in self._bridge.kept().items()}

    def story(self, query: str | None = None, limit: int = 50) -> list[Entry]:
        """The last entries of the history: of one query (by name or key) or of all."""
        key = query
        for view in self._engine.views:
            if view.name == query:
                key = view.key
        return self._engine.story(key, limit)

    def stats(self) -> SchedulerStats:
        times = sorted(self._decision_s)
        p99 = times[min(len(times) - 1, int(len(times) * 0.99))] if times else 0.0
        return SchedulerStats(
            decisions=self._decisions,
            decision_ms_p99=p99 * 1000,
            cpu_s=self._cpu_s + self._bridge.jvm_cpu_s,
            gates_opened=self._bridge.opened,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.detach()

    def _run(self) -> None:
        """The scheduler's thread: one exchange a tick, until detached. Trouble opens the gates by silence."""
        commands = Commands(enforce=self._engine.policy.enforces, wake_after_s=0.01)
        troubles = 0
        cpu_before = time.thread_time()
        while not self._stop.is_set():
            try:
                report = self._bridge.exchange(commands, decided=troubles == 0)
                self._last_report = report
                self._carry_out_orders(report.wall_ts)
                begun = time.perf_counter()
                forwarder = self._forwarder
                if forwarder is not None:
                    self._engine.hear(forwarder.heard())
                commands = self._engine.step(report)
                if forwarder is not None:
                    forwarder.publish(self._engine.words())
                self._decision_s.append(time.perf_counter() - begun)
                self._decisions += 1
                self._show(report, commands)
                if report.gates_open:
                    self._bridge.resync()
                self._in_charge.set()
                self._bridge.notes += self._oddities.notes(report)
                self._tell_notes()
                self._cpu_s = time.thread_time() - cpu_before
                troubles = 0
            except Exception as error:
                if self._stop.is_set():
                    return
                if self._session_is_over():
                    log.info("the Spark session is gone; the scheduler ends")
                    if self._companions is not None:
                        self._companions.close()
                    return
                troubles += 1
                if troubles == 1:
                    what = first_line(error)
                    log.warning("the scheduler stumbled and tries again: %s: %s", type(error).__name__, what)
                commands = Commands(enforce=self._engine.policy.enforces, wake_after_s=0.1)
                self._stop.wait(min(2.0, 0.1 * troubles))

    def _show(self, report: Report, commands: Commands) -> None:
        for watcher in tuple(self._watchers):
            try:
                watcher.saw(report, commands)
            except Exception as error:
                self._watchers.remove(watcher)
                what = type(watcher).__name__
                log.warning("%s stumbled and sees nothing more: %s: %s", what, type(error).__name__, error)

    def _session_is_over(self) -> bool:
        try:
            return self._bridge.session_is_over()
        except Exception:  # the JVM itself is gone
            return True

    def _tell_notes(self) -> None:
        while self._bridge.notes:
            note = self._bridge.notes.pop(0)
            if note not in self._told:
                if len(self._told) >= _MOST_NOTES:
                    self._told.clear()
                self._told.add(note)
                log.warning("%s", note)
