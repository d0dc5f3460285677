"""Bringing a past window into memory before it is executed again: how long before, and whether it pays (Aion 3.2).

Staging costs as much as reading the window once, so it pays only where an execution from memory is so much faster that
the reader of its result notices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from slackwater.core.cost import CostModel

# Tries of each way before the comparison is believed: the first ones pay for code generation.
_TRIES: Final = 3


@dataclass(slots=True)
class StagingCosts:
    """`gain_s`: by so much an execution must be sooner for staging to be worth its work."""

    gain_s: float = 0.05
    staging: CostModel = field(default_factory=CostModel)
    direct: CostModel = field(default_factory=CostModel)
    staged: CostModel = field(default_factory=CostModel)
    _tries: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})

    def executed(self, seconds: float, rows: int, *, staged: bool) -> None:
        (self.staged if staged else self.direct).observe(rows, seconds)
        self._tries[staged] += 1

    @property
    def known(self) -> bool:
        """Both ways have been tried."""
        return min(self._tries.values()) >= _TRIES

    def pays(self, rows: int) -> bool:
        if self._tries[False] < _TRIES:
            return False
        return self._tries[True] < _TRIES or self.saved_s(rows) >= self.gain_s

    def saved_s(self, rows: int) -> float:
        return self.direct.batch_s(rows) - self.staged.batch_s(rows)

    def execution_s(self, rows: int) -> float:
        """What an execution takes, as far as is known."""
        return self.direct.batch_s(rows)

    def lead_s(self, rows: int) -> float:
        """How long before the execution to begin."""
        return self.staging.batch_s(rows)


@dataclass(frozen=True, slots=True)
class Staged:
    """A past window in memory: the files that were read, and the frame that holds their rows of it."""

    names: frozenset[str]
    frame: Any
    bytes: int
