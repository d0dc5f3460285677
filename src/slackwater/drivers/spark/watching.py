"""Who watches an attached session: the recorder of `attach(record=…)`, the policy of `attach(shadow=…)`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slackwater._version import __version__
from slackwater.drivers.spark.doctor import session_facts
from slackwater.drivers.spark.sessions import tell
from slackwater.errors import ConfigurationError, SlackwaterError
from slackwater.recording.recorder import Recorder, Recording
from slackwater.replay.shadow import Shadow

if TYPE_CHECKING:
    from slackwater.core.engine import Engine
    from slackwater.core.model import Knob
    from slackwater.drivers.spark.handle import Watcher
    from slackwater.recording.records import Plain

Record = str | Path | Recording


def watchers_of(
    spark: Any, engine: Engine, recording: Recording | None, shadow: str | None, knob: Knob
) -> list[Watcher]:
    """All or none: what has begun is closed where another cannot."""
    found: list[Watcher] = []
    try:
        if recording is not None:
            found.append(_recorder(spark, engine, recording))
        if shadow is not None:
            found.append(_shadow(spark, engine, shadow, knob))
    except SlackwaterError:
        for watcher in found:
            watcher.close()
        raise
    return found


def recording_of(record: Record | None) -> Recording | None:
    if record is None or isinstance(record, Recording):
        return record
    if isinstance(record, str | Path) and str(record):
        return Recording(record)
    raise ConfigurationError(f"record={record!r}: the path of a new file, or slackwater.Recording(path, …), is needed.")


def _recorder(spark: Any, engine: Engine, where: Recording) -> Recorder:
    """Tells of itself under `told["recording"]`, too."""
    context = spark.sparkContext
    found = Recorder(
        where,
        context.applicationId,
        engine,
        application=context.appName,
        spark=spark.version,
        master=context.master,
        session=_session(spark),
        version=__version__,
    )
    tell(spark, "recording", lambda: [] if found.closed else [asdict(found.status())])
    return found


def _shadow(spark: Any, engine: Engine, policy: str, knob: Knob) -> Shadow:
    """Tells of itself under `told["shadow"]`, too."""
    found = Shadow(policy, engine, knob=knob, session=_session(spark))
    tell(spark, "shadow", found.rows)
    return found


def _session(spark: Any) -> dict[str, Plain]:
    """What of the session's settings a replay and its advice need."""
    facts = session_facts(spark)
    return {
        "scheduler_mode": facts.scheduler_mode,
        "shuffle_partitions": facts.shuffle_partitions,
        "state_store_provider": facts.state_store_provider,
        "no_data_batches": facts.no_data_batches,
    }
