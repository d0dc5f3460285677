"""What is remembered of windows besides their rows: results that were emitted, and windows that were purged. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from slackwater.late.errors import PurgedWindowError, StoreError


class Emission(msgspec.Struct, frozen=True, tag="emitted"):
    """A result of a window: its number, its kind (on_time, late, final) and the execution that made it."""

    window: int
    revision: int
    kind: str
    execution: str


class Purge(msgspec.Struct, frozen=True, tag="purged"):
    """A window that is gone, with as many rows as were dropped."""

    window: int
    rows: int


class Horizon(msgspec.Struct, frozen=True, tag="horizon"):
    """Every window that starts before is gone; all that was remembered of them is forgotten, but for the rows."""

    before: int
    rows: int
    windows: int


Record = Emission | Purge | Horizon


@dataclass(slots=True)
class Ledger:
    """The sum of the journal's records; applying one twice changes nothing."""

    emissions: dict[int, dict[str, Emission]] = field(default_factory=dict)
    purges: dict[int, int] = field(default_factory=dict)
    horizon: Horizon | None = None

    def apply(self, record: Record) -> None:
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
            ordered = sorted(self.emissions[window].values(), key=lambda emission: emission.revision)
            found += ordered
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

    def known(self, window: int, execution: str) -> int | None:
        """The number that this execution has already."""
        emission = self.emissions.get(window, {}).get(execution)
        return None if emission is None else emission.revision

    def check(self, emission: Emission) -> None:
        if self.purged(emission.window):
            raise PurgedWindowError([emission.window])
        due = self.next_revision(emission.window)
        if emission.revision != due:
            raise StoreError(
                f"revision {emission.revision} of window {emission.window} (execution {emission.execution!r}) is out "
                f"of turn: the next one is {due}. Take the number from next_revision() right before emitted()."
            )

    def horizon_at(self, before: int, dropped: dict[int, int]) -> Horizon:
        """The record that moves the horizon; `dropped` are the rows of windows that go by it."""
        old = self.horizon or Horizon(before, 0, 0)
        gone = {window: rows for window, rows in self.purges.items() if window < before}
        fresh = {window: rows for window, rows in dropped.items() if not self.purged(window)}
        rows = old.rows + sum(gone.values()) + sum(fresh.values())
        return Horizon(before, rows, old.windows + len(gone) + len(fresh))
