"""One consumer's place in a log of what happened: each entry is taken once, and what was missed is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from slackwater.core.records import Log

T = TypeVar("T")


class Cursor(Generic[T]):
    """Begins before the first entry; `missed` are those that the log had dropped before they were taken."""

    def __init__(self, log: Log[T]) -> None:
        self._log = log
        self._number = 0
        self.missed = 0

    def take(self) -> list[T]:
        if self._log.added == self._number:
            return []
        found = self._log.after(self._number)
        if found:
            self.missed += found[0][0] - self._number - 1
            self._number = found[-1][0]
        return [entry for _, entry in found]
