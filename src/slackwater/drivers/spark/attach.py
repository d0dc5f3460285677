"""`attach`: one line that schedules every streaming query of a Spark session, and the handle it returns."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self
from weakref import WeakValueDictionary

from slackwater.core.engine import Engine, EngineSettings
from slackwater.core.model import Capacity, Commands, Knob, Policy, QueryOptions
from slackwater.drivers.spark.bridge import SparkBridge, first_line
from slackwater.drivers.spark.oddities import Oddities
from slackwater.drivers.spark.telling import identity_of, overview
from slackwater.drivers.spark.tune import restore
from slackwater.drivers.spark.tune import tune as tune_session
from slackwater.endpoint.server import LOOPBACK, Endpoint
from slackwater.errors import AttachError, ConfigurationError, SlackwaterError
from slackwater.forwarding.forwarder import Forwarder
from slackwater.forwarding.settings import Forwarding
from slackwater.policies.assembly import engine_for, policy_for

if TYPE_CHECKING:
    from types import TracebackType

    from slackwater.core.history import Entry
    from slackwater.drivers.spark.telling import Identity

log = logging.getLogger("slackwater")

_MOST_NOTES = 1000
_ATTACHED_PROPERTY = "slackwater.attached."
_TAKING_CHARGE_S = 2.0


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


_handles: WeakValueDictionary[str, Handle] = WeakValueDictionary()  # by application


def room_for(spark: Any, seconds: float) -> bool:
    """May work of low urgency take a core for so long, without a query of this session waiting for it?

    Always, where nobody is attached.
    """
    handle = _handles.get(spark.sparkContext.applicationId)
    return handle is None or not handle.attached or handle.room_for(seconds)


def attach(
    spark: Any,
    policy: str | Policy = "klink",
    *,
    lanes: int | Literal["auto"] = "auto",
    knob: Knob = "balanced",
    tune: bool = False,
    queries: dict[str, QueryOptions] | None = None,
    max_wait_s: float = 30.0,
    target_latency_s: float = 2.0,
    confidence: float = 0.95,
    memory_bound: float = 0.75,
    period_s: float | None = None,
    watchdog_s: float = 3.0,
    serve: bool | int | str = False,
    forward: bool | Forwarding = False,
) -> Handle:
    """Schedule every streaming query of this session's Spark context, running ones included.

    `memory_bound` is the share of the heap from which on `klink` lets those queries go first that free most;
    `period_s` asks the policy no more often than that. `serve` opens an HTTP endpoint where others on this host can
    read where every query stands: True for any free port on loopback, a port, or "host:port"; announced for the
    middleware and the command line. `forward` tells schedulers of applications that are chained to this one, by folders
    or tables that one writes and the other reads, what they need to know, and listens to them; it serves as well.
    Nothing else changes: start and stop queries as before. `detach()`, or the end of a `with` block, gives plain
    Spark back with the queries still running; so does a scheduler that is not heard from for `watchdog_s`.
    """
    _check_session(spark)
    if not 0.5 <= watchdog_s <= 60:
        raise ConfigurationError(f"watchdog_s={watchdog_s!r}: from 0.5 to 60 seconds is sensible.")
    options = _check_options(queries)
    forwarding = _check_forwarding(forward)
    address = _check_address(serve if forwarding is None or serve is not False else True)
    settings = EngineSettings(
        lanes=lanes,
        max_wait_s=max_wait_s,
        target_latency_s=target_latency_s,
        hold_for_readers=forwarding is not None,
        confidence=confidence,
    )
    engine = engine_for(policy, settings, knob=knob, memory_bound=memory_bound, period_s=period_s)
    chosen = engine.policy
    marker = _ATTACHED_PROPERTY + spark.sparkContext.applicationId
    system = spark._jvm.java.lang.System  # noqa: SLF001 - PySpark has no public door to the JVM
    if system.getProperty(marker) is not None:
        raise AttachError(
            "Slackwater is attached to this Spark application already. Use that handle, or call its detach() first."
        )
    tuned = tune_session(spark) if tune else []
    try:
        bridge = SparkBridge(spark, watchdog_s=watchdog_s, enforce=chosen.enforces, options=options)
    except AttachError:
        restore(spark, tuned)
        raise
    system.setProperty(marker, chosen.name)

    def released() -> None:
        system.clearProperty(marker)
        restore(spark, tuned)

    handle = Handle(bridge, engine, released)
    if address is not None:
        try:
            handle.serve(identity_of(spark), *address, forwarding)
        except SlackwaterError:
            handle.detach()
            raise
    _handles[spark.sparkContext.applicationId] = handle
    return handle


class Handle:
    """An attached session. Also a context manager: leaving the block detaches."""

    def __init__(self, bridge: SparkBridge, engine: Engine, released: Any) -> None:
        self._bridge = bridge
        self._engine = engine
        self._released = released
        self._stop = threading.Event()
        self._switches: deque[Policy] = deque()
        self._decisions = 0
        self._decision_s: deque[float] = deque(maxlen=5000)
        self._cpu_s = 0.0
        self._told: set[str] = set()
        self._oddities = Oddities()
        self._endpoint: Endpoint | None = None
        self._forwarder: Forwarder | None = None
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
        self._thread.join(timeout=5)
        if self._forwarder is not None:
            self._forwarder.close()
        if self._endpoint is not None:
            self._endpoint.close()
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
        self._switches.append(policy_for(policy, knob=knob, memory_bound=memory_bound, period_s=period_s))

    @property
    def url(self) -> str | None:
        """Where the endpoint answers; None when nothing is served."""
        return self._endpoint.url if self._endpoint is not None else None

    def serve(self, identity: Identity, host: str, port: int, forwarding: Forwarding | None = None) -> None:
        """Open the endpoint; `attach(serve=…)` does."""
        if forwarding is not None:
            self._forwarder = Forwarder(identity.application_id, forwarding, self._bridge.wake)
        self._endpoint = Endpoint(
            application_id=identity.application_id,
            name=identity.name,
            reads={"/api/status": lambda: overview(identity, self._engine)},
            changes=self._forwarder.routes() if self._forwarder is not None else None,
            host=host,
            port=port,
        )
        log.info("Slackwater answers at %s", self._endpoint.url)

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

    def room_for(self, seconds: float) -> bool:
        """Will a lane stay free for so long, by what is expected of all queries?"""
        return self._engine.room_for(seconds, time.time())

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
                while self._switches:
                    self._engine.switch(self._switches.popleft(), report.wall_ts)
                begun = time.perf_counter()
                forwarder = self._forwarder
                if forwarder is not None:
                    self._engine.hear(forwarder.heard())
                commands = self._engine.step(report)
                if forwarder is not None:
                    forwarder.publish(self._engine.words())
                self._decision_s.append(time.perf_counter() - begun)
                self._decisions += 1
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
                    return
                troubles += 1
                if troubles == 1:
                    what = first_line(error)
                    log.warning("the scheduler stumbled and tries again: %s: %s", type(error).__name__, what)
                commands = Commands(enforce=self._engine.policy.enforces, wake_after_s=0.1)
                self._stop.wait(min(2.0, 0.1 * troubles))

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


def _check_session(spark: Any) -> None:
    module = type(spark).__module__
    if module.startswith("pyspark.sql.connect"):
        raise AttachError(
            "this is a Spark Connect session: its driver runs elsewhere, and the scheduler must sit beside the "
            "queries' threads in the driver. Run attach() in the application that hosts the queries "
            "(a classic SparkSession), for example on the Connect server's side."
        )
    if not hasattr(spark, "_jsparkSession") or not hasattr(spark, "sparkContext"):
        raise AttachError(f"attach() needs a SparkSession, but got {type(spark).__name__}.")
    context = spark.sparkContext._jsc  # noqa: SLF001
    if context is None or context.sc().isStopped():
        raise AttachError("this Spark session is stopped. Create a new one, then attach to it.")


def _check_address(serve: bool | int | str) -> tuple[str, int] | None:
    """Host and port of an endpoint; None for no endpoint."""
    if serve is False:
        return None
    if serve is True:
        return LOOPBACK, 0
    host, _, port = (LOOPBACK, ":", str(serve)) if isinstance(serve, int) else str(serve).rpartition(":")
    if not port.isdigit() or not 0 <= int(port) < 65536:
        raise ConfigurationError(f"serve={serve!r}: True, a port, or 'host:port' is needed, such as '127.0.0.1:4050'.")
    return host.strip("[]") or LOOPBACK, int(port)


def _check_forwarding(forward: bool | Forwarding) -> Forwarding | None:
    if isinstance(forward, Forwarding):
        return forward
    if not isinstance(forward, bool):
        raise ConfigurationError(f"forward={forward!r}: True, or slackwater.Forwarding(peers=…), is needed.")
    return Forwarding() if forward else None


def _check_options(queries: dict[str, QueryOptions] | None) -> dict[str, QueryOptions]:
    for name, value in (queries or {}).items():
        if not isinstance(value, QueryOptions):
            raise ConfigurationError(
                f"queries[{name!r}] is {value!r}: give slackwater.QueryOptions(target_latency_s=…, "
                "priority_class=…, deadline=…)."
            )
    return dict(queries or {})
