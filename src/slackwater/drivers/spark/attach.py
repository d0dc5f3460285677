"""`attach`: one line that schedules every streaming query of a Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from slackwater.config.sources import CONF_PREFIX
from slackwater.core.engine import EngineSettings
from slackwater.drivers.spark.bridge import SparkBridge
from slackwater.drivers.spark.companions import Companions, Given
from slackwater.drivers.spark.handle import Handle
from slackwater.drivers.spark.sessions import give_way, remember
from slackwater.drivers.spark.telling import identity_of
from slackwater.drivers.spark.tune import restore
from slackwater.drivers.spark.tune import tune as tune_session
from slackwater.drivers.spark.watching import recording_of, watchers_of
from slackwater.endpoint.server import LOOPBACK
from slackwater.errors import AttachError, ConfigurationError, SlackwaterError
from slackwater.policies.assembly import engine_for
from slackwater.telemetry.spans import Spans

if TYPE_CHECKING:
    from slackwater.core.model import Knob, Policy, QueryOptions
    from slackwater.forwarding.settings import Forwarding
    from slackwater.recording.recorder import Recording
    from slackwater.supervision.settings import Alarms, Supervision

_ATTACHED_PROPERTY = "slackwater.attached."
_BETWEEN = "\x1e"
_NO_SETTINGS = ("spark", "config", "record", "shadow")


def attach(
    spark: Any,
    policy: str | Policy | None = None,
    *,
    lanes: int | Literal["auto"] | None = None,
    knob: Knob | None = None,
    tune: bool | None = None,
    queries: dict[str, QueryOptions] | None = None,
    max_wait_s: float | None = None,
    target_latency_s: float | None = None,
    confidence: float | None = None,
    memory_bound: float | None = None,
    period_s: float | None = None,
    watchdog_s: float | None = None,
    serve: bool | int | str | None = None,
    forward: bool | Forwarding | None = None,
    otel: bool | None = None,
    supervise: bool | Supervision | None = None,
    alarms: bool | Alarms | None = None,
    record: str | Path | Recording | None = None,
    shadow: str | None = None,
    config: str | Path | None = None,
) -> Handle:
    """Schedule every streaming query of this session's Spark context, running ones included.

    What is not given (None) comes from the environment (`SLACKWATER_…`), else from Spark's conf
    (`spark.slackwater.…`), else from `slackwater.toml` (`config`, else `$SLACKWATER_CONFIG`, else in the working
    directory), else it is the default: policy "klink", lanes "auto", knob "balanced", tune False, max_wait_s 30,
    target_latency_s 2, confidence 0.95, memory_bound 0.75, no period, watchdog_s 3; no endpoint, no forwarding, no
    supervision. While attached, a file that changes is read again.

    `memory_bound` is the share of the heap from which on `klink` lets those queries go first that free most;
    `period_s` asks the policy no more often than that. `serve` opens an HTTP endpoint where others on this host can
    read where every query stands: True for any free port on loopback, a port, or "host:port"; announced for the
    middleware and the command line. `forward` tells schedulers of applications that are chained to this one, by folders
    or tables that one writes and the other reads, what they need to know, and listens to them; it serves as well.
    `otel` makes each batch a span, through the OpenTelemetry that the application has set up.
    `supervise` starts queries that die again, from their checkpoints; `alarms` tells when something goes wrong, by
    default where the application serves or is supervised.
    `record` writes a trace of what happens to a new file, for `slackwater replay` and `slackwater advise`; `shadow`
    names a policy whose decisions are computed beside the one in force, with what it would bring (`handle.shadow()`).
    Nothing else changes: start and stop queries as before. `detach()`, or the end of a `with` block, gives plain
    Spark back with the queries still running; so does a scheduler that is not heard from for `watchdog_s`.
    """
    arguments = {name: value for name, value in locals().items() if name not in _NO_SETTINGS}
    _check_session(spark)
    given = Given(arguments, Path(config) if config is not None else None, conf_of(spark))
    resolved = given.resolve()
    chosen = resolved.settings()
    if not 0.5 <= chosen.watchdog_s <= 60:
        raise ConfigurationError(f"watchdog_s={chosen.watchdog_s!r}: from 0.5 to 60 seconds is sensible.")
    address = check_address(chosen.serve if chosen.forward is None or chosen.serve is not False else True)
    recording = recording_of(record)
    settings = EngineSettings(
        lanes=chosen.lanes,
        max_wait_s=chosen.max_wait_s,
        target_latency_s=chosen.target_latency_s,
        hold_for_readers=chosen.forward is not None,
        confidence=chosen.confidence,
    )
    engine = engine_for(
        chosen.policy,
        settings,
        knob=chosen.knob,
        memory_bound=chosen.memory_bound,
        period_s=chosen.period_s,
    )
    marker = _ATTACHED_PROPERTY + spark.sparkContext.applicationId
    system = spark._jvm.java.lang.System  # noqa: SLF001 - PySpark has no public door to the JVM
    if system.getProperty(marker) is not None and not give_way(spark.sparkContext.applicationId):
        raise AttachError(
            "Slackwater is attached to this Spark application already. Use that handle, or call its detach() first."
        )
    tuned = tune_session(spark) if chosen.tune else []
    try:
        bridge = SparkBridge(
            spark, watchdog_s=chosen.watchdog_s, enforce=engine.policy.enforces, options=chosen.queries
        )
    except AttachError:
        restore(spark, tuned)
        raise
    try:
        watchers = watchers_of(spark, engine, recording, shadow, chosen.knob)
        if watchers:
            bridge.tell_task_times()
    except SlackwaterError:
        bridge.detach()
        restore(spark, tuned)
        raise
    system.setProperty(marker, engine.policy.name)

    def released() -> None:
        system.clearProperty(marker)
        restore(spark, tuned)

    handle = Handle(bridge, engine, released, watchers)
    try:
        identity = identity_of(spark)
        if chosen.otel:
            handle.follow("opentelemetry", Spans(engine.records))
        companions = Companions(handle, spark, identity, engine.records)
        handle.accompany(companions)
        companions.start(chosen, resolved, given)
        if address is not None:
            handle.serve(identity, *address, chosen.forward)
    except BaseException:  # a full disk, too: nobody would have the handle to detach
        handle.detach()
        raise
    remember(spark.sparkContext.applicationId, handle)
    return handle


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


def check_address(serve: bool | int | str) -> tuple[str, int] | None:
    """Host and port of an endpoint; None for no endpoint."""
    if serve is False:
        return None
    if serve is True:
        return LOOPBACK, 0
    host, _, port = (LOOPBACK, ":", str(serve)) if isinstance(serve, int) else str(serve).rpartition(":")
    if not port.isdigit() or not 0 <= int(port) < 65536:
        raise ConfigurationError(f"serve={serve!r}: True, a port, or 'host:port' is needed, such as '127.0.0.1:4050'.")
    return host.strip("[]") or LOOPBACK, int(port)


def conf_of(spark: Any) -> dict[str, str]:
    """What Spark's conf says of us, the session's own before that of the context. One call to the JVM."""
    told = str(spark._jsparkSession.conf().getAll().mkString(_BETWEEN))  # noqa: SLF001 - PySpark would take hundreds
    pairs = (entry.partition(" -> ") for entry in told.split(_BETWEEN))
    return {key: value for key, _, value in pairs if key.startswith(CONF_PREFIX)}
