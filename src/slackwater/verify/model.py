"""What a verification runs, and what came out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

Row = tuple[Any, ...]
PLAIN = "spark"


@dataclass(frozen=True)
class Trial:
    """Who schedules the queries, and what happens to them on their way.

    policy: None for plain Spark. restarts: all queries are stopped after some batches and started again from their
    checkpoints. kill_scheduler: the scheduler's thread dies after some batches, and nobody starts another; plain Spark
    has none to kill.
    """

    policy: str | None
    restarts: bool = False
    kill_scheduler: bool = False

    @property
    def name(self) -> str:
        return self.policy or PLAIN

    @property
    def kills(self) -> bool:
        return self.kill_scheduler and self.policy is not None


@dataclass(frozen=True)
class Settings:
    """files: how many each table comes in, one in each micro-batch, before the one that closes all windows.

    timeout_s: within which all queries of a trial must have done everything. watchdog_s: after so long without its
    scheduler a query goes on by itself.
    """

    files: int = 4
    timeout_s: float = 600.0
    watchdog_s: float = 1.0

    def __post_init__(self) -> None:
        if self.files < 2:
            raise ConfigurationError(
                f"files is {self.files}; give 2 or more, so that there is a middle in which things happen."
            )
        if not self.timeout_s > 0:
            raise ConfigurationError(f"a timeout of {self.timeout_s:g} s; give more than 0.")


@dataclass(frozen=True)
class Differences:
    """What distinguishes an answer from the one that is expected; rows that occur twice count twice.

    different: pairs (expected, found) of rows with the same key.
    """

    expected_rows: int
    found_rows: int
    missing: tuple[Row, ...] = ()
    surplus: tuple[Row, ...] = ()
    different: tuple[tuple[Row, Row], ...] = ()

    @property
    def equal(self) -> bool:
        return not (self.missing or self.surplus or self.different)


@dataclass(frozen=True)
class Outcome:
    """One trial: the differences of each output from the oracle's, or the error that ended it.

    batches: micro-batches by stage. decisions: of the scheduler; 0 for plain Spark. restarted_after,
    killed_after: batches of all stages together before that happened; None where it did not.
    """

    trial: Trial
    outputs: Mapping[str, Differences] = field(default_factory=dict)
    seconds: float = 0.0
    batches: Mapping[str, int] = field(default_factory=dict)
    decisions: int = 0
    restarted_after: int | None = None
    killed_after: int | None = None
    error: str | None = None

    @property
    def equal(self) -> bool:
        return self.error is None and all(differences.equal for differences in self.outputs.values())


@dataclass(frozen=True)
class Verdict:
    """A workload over some rows, all trials."""

    workload: str
    seed: int
    rows: Mapping[str, int]
    outcomes: tuple[Outcome, ...]

    @property
    def equal(self) -> bool:
        return all(outcome.equal for outcome in self.outcomes)
