"""A file that changes while an application is attached: read again, compared, and handed on, by a thread of its own."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slackwater.config.schema import setting_at
from slackwater.config.sources import shown
from slackwater.errors import SlackwaterError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path as FilePath

    from slackwater.config.resolve import Resolved
    from slackwater.config.schema import Path

log = logging.getLogger("slackwater")

_LOOK_S = 2.0
_ENDING_S = 3.0


@dataclass(frozen=True, slots=True)
class Change:
    """What a newer file changes: what can take effect now, and what needs a restart of the application."""

    before: Resolved
    after: Resolved
    live: tuple[Path, ...]
    later: tuple[Path, ...]


def compared(before: Resolved, after: Resolved) -> Change:
    paths = before.changed(after)
    live = tuple(path for path in paths if setting_at(path).live)
    return Change(before, after, live, tuple(path for path in paths if path not in live))


class FileWatch:
    """Looks every few seconds whether the file is another. One that cannot be used, or is gone, changes nothing.

    `read` resolves all settings anew; `apply` puts a change into effect, and may raise: it is told, and tried no more.
    """

    def __init__(
        self,
        first: Resolved,
        read: Callable[[], Resolved],
        apply: Callable[[Change], None],
        every_s: float = _LOOK_S,
    ) -> None:
        if first.file is None:
            raise ValueError("there is no file to watch")
        self._file: FilePath = first.file
        self._now, self._read, self._apply, self._every_s = first, read, apply, every_s
        self._stamp = self._stamped()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slackwater-config", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def resolved(self) -> Resolved:
        """What was last read and could be used."""
        return self._now

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_ENDING_S)

    def look(self) -> None:
        """Once; the thread calls it again and again."""
        stamp = self._stamped()
        if stamp is None or stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            change = compared(self._now, self._read())
        except SlackwaterError as error:
            log.warning("the configuration was changed and cannot be used, so that nothing changes: %s", error)
            return
        if not change.live and not change.later:
            log.info("%s was written anew; no setting has changed", self._file)
        for path in change.later:
            log.warning("%s: takes effect when the application is attached again", _told(change, path))
        # What needs a restart is not tried again with each further change.
        self._now = change.after
        if change.live:
            try:
                self._apply(change)
            except Exception as error:
                log.warning("the changed configuration could not take effect: %s: %s", type(error).__name__, error)
                return
        for path in change.live:
            log.info("%s: in effect", _told(change, path))

    def _stamped(self) -> tuple[int, int, int] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self.look()
            except Exception as error:
                log.warning("the configuration could not be looked at: %s: %s", type(error).__name__, error)


def _told(change: Change, path: Path) -> str:
    setting = setting_at(path)
    before, after = shown(setting, change.before.value(path)), shown(setting, change.after.value(path))
    origin = change.after.values[path].where if path in change.after.values else "default"
    return f"{'.'.join(path)} is {after} instead of {before} ({origin})"
