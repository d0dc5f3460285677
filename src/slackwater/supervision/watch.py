"""The thread that looks once a second, asks the rules, and tells."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import msgspec

from slackwater.supervision.alarms import Book, Notice, Told
from slackwater.supervision.channels import Outbox, Webhook, by_function
from slackwater.supervision.progress import Behind, Stalled, Stopped
from slackwater.supervision.rules import Dead, Dropped, GivenUp, Memory, Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from slackwater.supervision.seen import Rule, Seen
    from slackwater.supervision.settings import Alarms

log = logging.getLogger("slackwater")

_LOOK_S = 1.0
_ENDING_S = 3.0
_TROUBLES_TOLD = 1


def all_rules() -> list[Rule]:
    return [Dead(), GivenUp(), Stopped(), Stalled(), Behind(), Dropped(), Memory(), Scheduler()]


class AlarmWatch:
    """`look` says what is there now (None: nothing), and is called on this thread only. What fails here stays here."""

    def __init__(self, settings: Alarms, look: Callable[[], Seen | None], every_s: float = _LOOK_S) -> None:
        self._look, self._every_s = look, every_s
        self._rules = all_rules()
        self._book = Book()
        self._settings = settings
        self._outboxes = _outboxes(settings)
        self._let_go = 0
        self._troubles = 0
        self._stop = threading.Event()
        self._lock = threading.Lock()  # settings and channels change together
        self._thread = threading.Thread(target=self._run, name="slackwater-alarms", daemon=True)
        self._thread.start()

    def change(self, settings: Alarms) -> None:
        """Other thresholds and channels from the next look on; alarms that are active stay."""
        with self._lock:
            before, self._settings = self._settings, settings
            if (before.webhook, before.tell) == (settings.webhook, settings.tell):
                return
            old, self._outboxes = self._outboxes, _outboxes(settings)
        for outbox in old:
            outbox.close()
            self._let_go += outbox.undelivered

    def told(self) -> Told:
        return self._book.told(self._let_go + sum(outbox.undelivered for outbox in self._outboxes))

    def close(self) -> None:
        self._stop.set()
        self._thread.join(_ENDING_S)
        for outbox in self._outboxes:
            outbox.close()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                seen = self._look()
                if seen is not None:
                    self._once(seen)
                self._troubles = 0
            except Exception as error:
                self._troubles += 1
                if self._troubles == _TROUBLES_TOLD:
                    log.warning("the alarms could not be looked after (%s: %s)", type(error).__name__, error)

    def _once(self, seen: Seen) -> None:
        with self._lock:
            settings, outboxes = self._settings, self._outboxes
        findings = [finding for rule in self._rules for finding in rule.findings(seen, settings)]
        for notice in self._book.look(findings, seen.now_wall_ts):
            self._tell(_signed(notice, seen), settings, outboxes)

    def _tell(self, notice: Notice, settings: Alarms, outboxes: tuple[Outbox, ...]) -> None:
        if settings.log:
            log.log(logging.WARNING if notice.event == "raised" else logging.INFO, "%s", notice.text)
        for outbox in outboxes:
            outbox.put(notice)


def _signed(notice: Notice, seen: Seen) -> Notice:
    overview = seen.overview
    return msgspec.structs.replace(notice, application=overview.name, application_id=overview.application_id)


def _outboxes(settings: Alarms) -> tuple[Outbox, ...]:
    found = []
    if settings.webhook is not None:
        found.append(Outbox("webhook", Webhook(settings.webhook)))
    if settings.tell is not None:
        found.append(Outbox("tell", by_function(settings.tell)))
    return tuple(found)
