"""What runs beside the scheduler, each on a thread of its own: supervision, alarms, a look at the configuration file.

None of them can hold the scheduler: they read what it has written down, and order as anybody does.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slackwater.config.resolve import resolve
from slackwater.config.schema import QUERIES
from slackwater.config.watch import FileWatch
from slackwater.drivers.spark.restart import RestartingSupervisor, is_stopped
from slackwater.drivers.spark.sessions import tell, untell
from slackwater.errors import ConfigurationError
from slackwater.supervision.alarms import Told
from slackwater.supervision.seen import Seen
from slackwater.supervision.watch import AlarmWatch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from slackwater.config.resolve import Resolved, Settings
    from slackwater.config.watch import Change
    from slackwater.core.records import Ended, Records
    from slackwater.drivers.spark.handle import Handle
    from slackwater.drivers.spark.sessions import Plain
    from slackwater.drivers.spark.telling import Identity

log = logging.getLogger("slackwater")

_TOLD_AS = "supervision"
_POLICY = frozenset({"policy", "knob", "memory_bound", "period_s"})


@dataclass(frozen=True, slots=True)
class SupervisedQuery:
    """One supervised query. `query` is the StreamingQuery that runs now, or ran last: not the one that died before."""

    query_id: str
    name: str
    state: str
    restarts: int
    next_try_wall_ts: float | None
    last_error: str | None
    why_not: str | None
    query: Any


@dataclass(frozen=True, slots=True)
class Given:
    """What attach() was given, so that all settings can be found again when the file has changed."""

    arguments: Mapping[str, Any]
    config: Path | None
    conf: Mapping[str, str]

    def resolve(self) -> Resolved:
        return resolve(self.arguments, config=self.config, conf=self.conf)


class Companions:
    def __init__(self, handle: Handle, spark: Any, identity: Identity, records: Records) -> None:
        self._handle, self._spark, self._identity, self._records = handle, spark, identity, records
        self._supervisor: RestartingSupervisor | None = None
        self._alarms: AlarmWatch | None = None
        self._file: FileWatch | None = None
        self._read = records.ended.added, records.ran.added, 0

    def start(self, settings: Settings, resolved: Resolved, given: Given) -> None:
        if settings.supervise is not None:
            self._supervisor = RestartingSupervisor(self._spark, settings.supervise, self._records)
            tell(self._spark, _TOLD_AS, self._supervision)
        if settings.alarms is not None:
            self._alarms = AlarmWatch(settings.alarms, self._look)
        if resolved.file is not None:
            again = Given(given.arguments, resolved.file, given.conf)
            self._file = FileWatch(resolved, again.resolve, self._apply)
            self._file.start()

    def alarms(self) -> Told:
        return self._alarms.told() if self._alarms is not None else Told(watched=False)

    def supervised(self) -> list[SupervisedQuery]:
        supervisor = self._supervisor
        if supervisor is None:
            return []
        return [
            SupervisedQuery(
                one.query_id,
                one.name,
                str(one.state),
                one.restarts,
                one.next_try_wall_ts,
                one.last_error,
                one.why_not,
                supervisor.query(one.query_id),
            )
            for one in supervisor.told()
        ]

    def release(self, query: str) -> None:
        if self._supervisor is None or not self._supervisor.release(query):
            names = ", ".join(one.name for one in self.supervised()) or "none"
            raise ConfigurationError(f"{query!r} is not supervised; supervised are: {names}.")

    def close(self) -> None:
        for companion in (self._file, self._supervisor, self._alarms):
            if companion is not None:
                try:
                    companion.close()
                except Exception as error:
                    log.warning("%s did not end well: %s", type(companion).__name__, type(error).__name__)
        untell(self._identity.application_id, _TOLD_AS)

    # ---- alarms ---------------------------------------------------------------------------------------------------

    def _look(self) -> Seen | None:
        """On the alarms' thread. Nothing is wrong with an application that was stopped."""
        if is_stopped(self._spark):
            return None
        records, supervisor = self._records, self._supervisor
        ended, ran, asked = self._read
        found: tuple[Ended, ...] = ()
        if supervisor is not None:
            before, asked = asked, supervisor.found.added
            found = tuple(supervisor.found.since(before, asked))
        self._read = now_ended, now_ran, _ = records.ended.added, records.ran.added, asked
        return Seen(
            overview=self._handle.overview(self._identity),
            ended=(*records.ended.since(ended, now_ended), *found),
            ran=tuple(records.ran.since(ran, now_ran)),
            supervised={one.query_id: one for one in supervisor.told()} if supervisor is not None else {},
        )

    def _supervision(self) -> list[dict[str, Plain]]:
        return [
            {
                "name": one.name,
                "query_id": one.query_id,
                "state": one.state,
                "restarts": one.restarts,
                "next_try_wall_ts": one.next_try_wall_ts,
                "last_error": one.last_error,
            }
            for one in self.supervised()
        ]

    # ---- a changed file -------------------------------------------------------------------------------------------

    def _apply(self, change: Change) -> None:
        """On the file's thread."""
        settings = change.after.settings()
        heads = {path[0] for path in change.live}
        if heads & _POLICY:
            self._handle.switch(
                settings.policy,
                knob=settings.knob,
                memory_bound=settings.memory_bound,
                period_s=settings.period_s,
            )
        if "alarms" in heads:
            self._change_alarms(settings)
        if QUERIES in heads:
            self._handle.change_options(settings.queries)
            running = {status.name for status in self._handle.status()}
            for path in change.live:
                if path[0] == QUERIES and path[2] == "priority_class" and path[1] in running:
                    options = settings.queries.get(path[1])
                    self._handle.set_class(path[1], options.priority_class if options is not None else 0)

    def _change_alarms(self, settings: Settings) -> None:
        watch = self._alarms
        if settings.alarms is None:
            if watch is not None:
                self._alarms = None
                watch.close()
        elif watch is None:
            self._alarms = AlarmWatch(settings.alarms, self._look)
        else:
            watch.change(settings.alarms)
