"""What ran and what left since the application was attached, added up for each query.

Prometheus reads totals that only grow, and any number of collectors may read them, whenever they like. So each record
is counted here once, when it is taken, and never by who reads. `following` takes them every second, since the records
themselves keep only the last few thousand.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from slackwater.core.model import Stage
from slackwater.telemetry.catalogue import BATCH_BUCKETS_S, LATENCY_BUCKETS_S, WAIT_BUCKETS_S
from slackwater.telemetry.cursor import Cursor

if TYPE_CHECKING:
    from collections.abc import Callable

    from slackwater.core.records import Ended, Left, Ran, Records

LONGEST_LABEL: Final = 200
_KEPT_S: Final = 600.0
_MOST_QUERIES: Final = 2000
_MOST_PAST_RUNS: Final = 1000
_STAGES: Final = {Stage.DATA: "data", Stage.SWEEP: "sweep"}


@dataclass(slots=True)
class Distribution:
    """How many values lay at or below each bound but above the one before; the last count is of those beyond."""

    bounds: tuple[float, ...]
    counts: list[int]
    total: float = 0.0

    @classmethod
    def over(cls, bounds: tuple[float, ...]) -> Distribution:
        return cls(bounds, [0] * (len(bounds) + 1))

    def add(self, value: float) -> None:
        """A value below 0 comes from a clock that is ahead; the sum may never shrink."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += max(0.0, value)

    def copy(self) -> Distribution:
        return Distribution(self.bounds, list(self.counts), self.total)


@dataclass(slots=True)
class QueryTotals:
    """`label` is the query's name. `ended_wall_ts` is None while a run of it lives."""

    label: str
    latency_s: Distribution = field(default_factory=lambda: Distribution.over(LATENCY_BUCKETS_S))
    batch_s: Distribution = field(default_factory=lambda: Distribution.over(BATCH_BUCKETS_S))
    wait_s: Distribution = field(default_factory=lambda: Distribution.over(WAIT_BUCKETS_S))
    turns: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    failures: int = 0
    seen_wall_ts: float = 0.0
    ended_wall_ts: float | None = None

    def ran(self, batch: Ran) -> None:
        self.batch_s.add(batch.ended_wall_ts - batch.began_wall_ts)
        self.turns[_STAGES.get(batch.stage, "ungated")] += 1
        self.rows += batch.rows
        if batch.stage is Stage.DATA:
            self.wait_s.add(batch.waited_s)

    def left(self, window: Left) -> None:
        self.latency_s.add(window.latency_s)

    def ended(self, end: Ended) -> None:
        self.failures += end.error is not None

    def copy(self) -> QueryTotals:
        return QueryTotals(
            self.label,
            self.latency_s.copy(),
            self.batch_s.copy(),
            self.wait_s.copy(),
            Counter(self.turns),
            self.rows,
            self.failures,
            self.seen_wall_ts,
            self.ended_wall_ts,
        )


class Totals:
    """Any thread may take and read.

    A query that has ended is kept for `kept_s`, so that collectors see its last figures; a new run of the same name
    goes on where the last one was. Of runs with one name at the same time, the later ones are told apart by their id.
    """

    def __init__(
        self,
        records: Records,
        clock: Callable[[], float] = time.time,
        kept_s: float = _KEPT_S,
        most: int = _MOST_QUERIES,
        most_past_runs: int = _MOST_PAST_RUNS,
    ) -> None:
        self._ran, self._left, self._ended = Cursor(records.ran), Cursor(records.left), Cursor(records.ended)
        self._clock = clock
        self._kept_s = kept_s
        self._most = most
        self._most_past_runs = most_past_runs
        self._queries: dict[str, QueryTotals] = {}  # by label
        self._labels: dict[str, str] = {}  # by key of the run, past ones included: an overview may be a moment old
        self._holders: dict[str, str] = {}  # by label: the run that has it, or had it last
        self._lock = threading.Lock()

    @property
    def missed(self) -> int:
        return self._ran.missed + self._left.missed + self._ended.missed

    def take(self) -> None:
        """Count what is new. Ends come first, so that a run which follows another of its name has its label."""
        with self._lock:
            ran, left, ended = self._ran.take(), self._left.take(), self._ended.take()
            for end in ended:
                found = self._of(end.key, end.name)
                found.ended(end)
                if self._holders[found.label] == end.key:
                    found.ended_wall_ts = end.wall_ts
            for batch in ran:
                self._of(batch.key, batch.name).ran(batch)
            for window in left:
                self._of(window.key, window.name).left(window)
            self._forget()

    def label(self, key: str, name: str) -> str:
        """Under which name a run is told of; its totals are there from then on."""
        with self._lock:
            return self._of(key, name).label

    def queries(self) -> list[QueryTotals]:
        """As they are now, in order of their labels."""
        with self._lock:
            return [self._queries[label].copy() for label in sorted(self._queries)]

    def _of(self, key: str, name: str) -> QueryTotals:
        label = self._labels.get(key)
        if label is None:
            label = name[:LONGEST_LABEL] or key
            before = self._queries.get(label)
            if before is not None and before.ended_wall_ts is None:
                label = f"{label} [{key[:8]}]"
            self._labels[key], self._holders[label] = label, key
            self._queries.setdefault(label, QueryTotals(label)).ended_wall_ts = None
        found = self._queries[label]
        found.seen_wall_ts = self._clock()
        return found

    def _forget(self) -> None:
        now = self._clock()
        gone = [
            label
            for label, found in self._queries.items()
            if found.ended_wall_ts is not None and now - found.ended_wall_ts > self._kept_s
        ]
        beyond = len(self._queries) - len(gone) - self._most
        if beyond > 0:
            rest = sorted(self._queries.keys() - gone, key=lambda label: self._queries[label].seen_wall_ts)
            gone += rest[:beyond]
        if gone:
            dropped = set(gone)
            for label in dropped:
                del self._queries[label], self._holders[label]
            self._labels = {key: label for key, label in self._labels.items() if label not in dropped}
        if len(self._labels) - len(self._holders) > self._most_past_runs:
            past = [key for key, label in self._labels.items() if self._holders[label] != key]
            for key in past[: -self._most_past_runs]:
                del self._labels[key]
