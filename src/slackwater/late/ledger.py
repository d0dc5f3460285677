"""What is remembered of windows besides their rows: results that were emitted, and windows that were purged. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from slackwater.late.errors import PurgedWindowError

if TYPE_CHECKING:
    from collections.abc import Iterable


class Emission(msgspec.Struct, frozen=True, tag="emitted"):
    """A result of a window: its revision, its kind (on_time, late, final) and the execution that made it.

    number: of the execution, over all windows; windows that are executed together share it.
    """

    window: int
    revision: int
    kind: str
    execution: str
    number: int = 0


class Purge(msgspec.Struct, frozen=True, tag="purged"):
    """A window that is gone, with as many rows as were dropped."""

    window: int
    rows: int


class Horizon(msgspec.Struct, frozen=True, tag="horizon"):
    """Every window that starts before is gone; all that was remembered of them is forgotten, but for the rows.

    number: the greatest number that an execution has had, so that none is given twice.
    """

    before: int
    rows: int
    windows: int
    number: int = 0


Record = Emission | Purge | Horizon


@dataclass(frozen=True, slots=True)
class Emitted:
    """An execution's number, which grows from one to the next, and the revision of each window in it."""

    number: int
    revisions: dict[int, int]


@dataclass(slots=True)
class Ledger:
    """The sum of the journal's records; applying one twice changes nothing."""

    emissions: dict[int, dict[str, Emission]] = field(default_factory=dict)
    purges: dict[int, int] = field(default_factory=dict)
    horizon: Horizon | None = None
    number: int = 0

    def apply(self, record: Record) -> None:
        if not isinstance(record, Purge):
            self.number = max(self.number, record.number)
        if isinstance(record, Horizon):
            if self.horizon is None or record.before >= self.horizon.before:
                self.horizon = record
                self.emissions = {w: found for w, found in self.emissions.items() if w >= record.before}
                self.purges = {w: rows for w, rows in self.purges.items() if w >= record.before}
        elif self.horizon is not None and record.window < self.horizon.before:
            return
        elif isinstance(record, Purge):
            self.purges.setdefault(record.window, record.rows)
        else:
            self.emissions.setdefault(record.window, {}).setdefault(record.execution, record)

    def records(self) -> list[Record]:
        """As few records as give the same ledger."""
        found: list[Record] = [] if self.horizon is None else [self.horizon]
        found += [Purge(window, rows) for window, rows in sorted(self.purges.items())]
        for window in sorted(self.emissions):
            found += self.emissions_of(window)
        return found

    def purged(self, window: int) -> bool:
        return window in self.purges or (self.horizon is not None and window < self.horizon.before)

    @property
    def purged_rows(self) -> int:
        return sum(self.purges.values()) + (self.horizon.rows if self.horizon else 0)

    @property
    def purged_windows(self) -> int:
        return len(self.purges) + (self.horizon.windows if self.horizon else 0)

    def next_revision(self, window: int) -> int:
        return 1 + max((emission.revision for emission in self.emissions.get(window, {}).values()), default=0)

    def emissions_of(self, window: int) -> list[Emission]:
        return sorted(self.emissions.get(window, {}).values(), key=lambda emission: emission.revision)

    def emission(self, windows: Iterable[int], kind: str, execution: str) -> tuple[Emitted, list[Emission]]:
        """The numbers of an execution, and the records that are new with it: none of those that it had before."""
        known = {window: self.emissions.get(window, {}).get(execution) for window in windows}
        number = max((emission.number for emission in known.values() if emission), default=self.number + 1)
        fresh = [
            Emission(window, self.next_revision(window), kind, execution, number)
            for window, emission in known.items()
            if emission is None
        ]
        gone = sorted(emission.window for emission in fresh if self.purged(emission.window))
        if gone:
            raise PurgedWindowError(gone)
        found = [*(emission for emission in known.values() if emission), *fresh]
        return Emitted(number, {emission.window: emission.revision for emission in found}), fresh

    def horizon_at(self, before: int, dropped: dict[int, int]) -> Horizon:
        """The record that moves the horizon; `dropped` are the rows of windows that go by it."""
        old = self.horizon or Horizon(before, 0, 0)
        gone = {window: rows for window, rows in self.purges.items() if window < before}
        fresh = {window: rows for window, rows in dropped.items() if not self.purged(window)}
        rows = old.rows + sum(gone.values()) + sum(fresh.values())
        return Horizon(before, rows, old.windows + len(gone) + len(fresh), self.number)
