"""`attach`: one line that schedules every streaming query of a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from slackwater.core.engine import EngineSettings
from slackwater.core.model import QueryOptions
from slackwater.drivers.spark.bridge import SparkBridge
from slackwater.drivers.spark.handle import Handle
from slackwater.drivers.spark.sessions import remember
from slackwater.drivers.spark.telling import identity_of
from slackwater.drivers.spark.tune import restore
from slackwater.drivers.spark.tune import tune as tune_session
from slackwater.drivers.spark.watching import recording_of, watchers_of
from slackwater.endpoint.server import LOOPBACK
from slackwater.errors import AttachError, ConfigurationError, SlackwaterError
from slackwater.forwarding.settings import Forwarding
from slackwater.policies.assembly import engine_for

if TYPE_CHECKING:
    from pathlib import Path

    from slackwater.core.model import Knob, Policy
    from slackwater.recording.recorder import Recording

_ATTACHED_PROPERTY = "slackwater.attached."


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
    record: str | Path | Recording | None = None,
    shadow: str | None = None,
) -> Handle:
    """Schedule every streaming query of this session's Spark context, running ones included.

    `memory_bound` is the share of the heap from which on `klink` lets those queries go first that free most;
    `period_s` asks the policy no more often than that. `serve` opens an HTTP endpoint where others on this host can
    read where every query stands: True for any free port on loopback, a port, or "host:port"; announced for the
    middleware and the command line. `forward` tells schedulers of applications that are chained to this one, by folders
    or tables that one writes and the other reads, what they need to know, and listens to them; it serves as well.
    `record` writes a trace of what happens to a new file, for `slackwater replay` and `slackwater advise`; `shadow`
    names a policy whose decisions are computed beside the one in force, with what it would bring (`handle.shadow()`).
    Nothing else changes: start and stop queries as before. `detach()`, or the end of a `with` block, gives plain
    Spark back with the queries still running; so does a scheduler that is not heard from for `watchdog_s`.
    """
    _check_session(spark)
    if not 0.5 <= watchdog_s <= 60:
        raise ConfigurationError(f"watchdog_s={watchdog_s!r}: from 0.5 to 60 seconds is sensible.")
    options = _check_options(queries)
    forwarding = _check_forwarding(forward)
    recording = recording_of(record)
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
    try:
        watchers = watchers_of(spark, engine, recording, shadow, knob)
    except SlackwaterError:
        bridge.detach()
        restore(spark, tuned)
        raise
    system.setProperty(marker, chosen.name)

    def released() -> None:
        system.clearProperty(marker)
        restore(spark, tuned)

    handle = Handle(bridge, engine, released, watchers)
    if address is not None:
        try:
            handle.serve(identity_of(spark), *address, forwarding)
        except SlackwaterError:
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
