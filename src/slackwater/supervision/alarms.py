"""The book of alarms: raised once, taken back when all has been well for a while, never flapping. Pure."""

from __future__ import annotations

from collections import Counter, deque
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_ACTIVE = 2000
_MOST_RECENT = 200


class Kind(StrEnum):
    """What goes wrong."""

    DEAD = "dead query"
    GIVEN_UP = "given up"
    STOPPED = "offsets stopped"
    STALLED = "watermark stalled"
    BEHIND = "falling behind"
    DROPPED = "rows dropped as late"
    MEMORY = "memory bound reached"
    SCHEDULER = "scheduler not in charge"


class Alarm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Something that is wrong, or was. `query` is a name, `key` the run that it was seen in; empty: it concerns all."""

    kind: str
    query: str
    key: str
    since_wall_ts: float
    what: str
    what_to_do: str
    cleared_wall_ts: float | None = None


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What a channel is handed: an alarm that was raised or taken back."""

    event: Literal["raised", "cleared"]
    alarm: Alarm
    application: str = ""
    application_id: str = ""

    @property
    def text(self) -> str:
        """In one line."""
        alarm = self.alarm
        whose = f"{alarm.query}: " if alarm.query else ""
        if self.event == "cleared":
            return f"over: {alarm.kind}: {whose}{alarm.what}"
        return f"{alarm.kind}: {whose}{alarm.what} {alarm.what_to_do}"


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What `GET /api/alarms` and `Handle.alarms()` tell. `raised` counts by kind, since the application was attached.

    watched: whether anybody looks; without it nothing is ever active.
    """

    watched: bool
    active: tuple[Alarm, ...] = ()
    recent: tuple[Alarm, ...] = ()
    raised: dict[str, int] = {}
    undelivered: int = 0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's word about one query (or all): wrong, right, or neither, which leaves an alarm as it is.

    whose: what stays the same when a query is started again; one alarm for each kind and `whose`.
    hold_s: it must be wrong for so long before it is an alarm. clear_s: it must be right for so long to end one.
    """

    kind: Kind
    whose: str
    verdict: Literal["wrong", "right", "neither"]
    query: str = ""
    key: str = ""
    what: str = ""
    what_to_do: str = ""
    hold_s: float = 0.0
    clear_s: float = 0.0


class _Since(msgspec.Struct):
    wrong_wall_ts: float | None = None
    right_wall_ts: float | None = None


class Book:
    """Hand it every rule's findings once a look; it answers with what to tell."""

    def __init__(self) -> None:
        self._active: dict[tuple[Kind, str], Alarm] = {}
        self._since: dict[tuple[Kind, str], _Since] = {}
        self._recent: deque[Alarm] = deque(maxlen=_MOST_RECENT)
        self._raised: Counter[str] = Counter()

    def look(self, findings: Iterable[Finding], now_wall_ts: float) -> list[Notice]:
        """Alarms of which no rule says anything any more are taken back: what they were about is gone."""
        notices: list[Notice] = []
        seen: set[tuple[Kind, str]] = set()
        for finding in findings:
            at = (finding.kind, finding.whose)
            seen.add(at)
            notices += self._take(at, finding, now_wall_ts)
        for at in [at for at in self._active if at not in seen]:
            notices.append(self._clear(at, now_wall_ts))
        self._since = {at: since for at, since in self._since.items() if at in seen}
        return notices

    def _take(self, at: tuple[Kind, str], finding: Finding, now_wall_ts: float) -> list[Notice]:
        active = self._active.get(at)
        since = self._since.setdefault(at, _Since())
        if finding.verdict == "wrong":
            since.right_wall_ts = None
            since.wrong_wall_ts = now_wall_ts if since.wrong_wall_ts is None else since.wrong_wall_ts
            if active is not None:
                words = {"what": finding.what, "what_to_do": finding.what_to_do, "key": finding.key}
                self._active[at] = msgspec.structs.replace(active, **words)
            elif now_wall_ts - since.wrong_wall_ts >= finding.hold_s and len(self._active) < _MOST_ACTIVE:
                return [self._raise(at, finding, now_wall_ts)]
            return []
        since.wrong_wall_ts = None
        if finding.verdict == "neither":
            since.right_wall_ts = None
            return []
        since.right_wall_ts = now_wall_ts if since.right_wall_ts is None else since.right_wall_ts
        if active is not None and now_wall_ts - since.right_wall_ts >= finding.clear_s:
            return [self._clear(at, now_wall_ts)]
        return []

    def _raise(self, at: tuple[Kind, str], finding: Finding, now_wall_ts: float) -> Notice:
        alarm = Alarm(
            kind=str(finding.kind),
            query=finding.query,
            key=finding.key,
            since_wall_ts=now_wall_ts,
            what=finding.what,
            what_to_do=finding.what_to_do,
        )
        self._active[at] = alarm
        self._raised[alarm.kind] += 1
        return Notice(event="raised", alarm=alarm)

    def _clear(self, at: tuple[Kind, str], now_wall_ts: float) -> Notice:
        alarm = msgspec.structs.replace(self._active.pop(at), cleared_wall_ts=now_wall_ts)
        self._recent.append(alarm)
        return Notice(event="cleared", alarm=alarm)

    def told(self, undelivered: int = 0) -> Told:
        """From any thread: the newest first."""
        active = sorted(self._active.copy().values(), key=lambda alarm: -alarm.since_wall_ts)
        recent = tuple(reversed(tuple(self._recent)))
        raised = dict(self._raised)
        return Told(watched=True, active=tuple(active), recent=recent, raised=raised, undelivered=undelivered)
