"""A trace as read back: its records by kind, checked to belong together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slackwater.core.model import QueryFacts, QueryOptions, Window
from slackwater.errors import ConfigurationError
from slackwater.recording.frames import records_in
from slackwater.recording.records import (
    Batch,
    Cut,
    End,
    Gone,
    Granted,
    Head,
    Host,
    Learnt,
    Lost,
    Places,
    Query,
    Switched,
    Worked,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from slackwater.recording.records import Record


@dataclass(frozen=True)
class TracedQuery:
    """A run of a query: what was known of it, its batches in order of time, and when it was there.

    worked: what the tasks of its batches took, by their ids.
    """

    about: Query
    batches: tuple[Batch, ...] = ()
    grants: tuple[Granted, ...] = ()
    learnt: tuple[Learnt, ...] = ()
    places: Places | None = None
    gone: Gone | None = None
    worked: Mapping[int, Worked] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.about.name

    def facts(self) -> QueryFacts:
        about = self.about
        return QueryFacts(
            key=about.key,
            name=about.name,
            query_id=about.query_id,
            gated=about.gated,
            windows=tuple(Window(*window) for window in about.windows),
            input_delays_s=about.input_delays_s,
            watermark_policy="max" if about.watermark_policy == "max" else "min",
            emits_at_sweep=about.emits_at_sweep,
            stateful=about.stateful,
            min_interval_s=about.interval_s,
            options=QueryOptions(
                target_latency_s=about.target_latency_s,
                priority_class=about.priority_class,
                deadline=about.deadline_s,
            ),
        )


@dataclass(frozen=True)
class Trace:
    """A recorded span of an application. `ended`: on purpose; else it was cut off, or is still written."""

    head: Head
    queries: tuple[TracedQuery, ...]
    hosts: tuple[Host, ...]
    switched: tuple[Switched, ...] = ()
    lost: Lost | None = None
    cut: Cut | None = None
    ended: bool = False
    from_wall_ts: float = 0.0
    to_wall_ts: float = 0.0

    @property
    def seconds(self) -> float:
        return self.to_wall_ts - self.from_wall_ts

    @property
    def cores(self) -> int:
        """Those that were there most of the time."""
        counts = [host.cores for host in self.hosts if host.cores > 0]
        return max(set(counts), key=lambda cores: (counts.count(cores), cores)) if counts else 1

    @property
    def batches(self) -> int:
        return sum(len(query.batches) for query in self.queries)


@dataclass
class _Gathered:
    about: Query
    batches: list[Batch] = field(default_factory=list)
    grants: list[Granted] = field(default_factory=list)
    learnt: list[Learnt] = field(default_factory=list)
    places: Places | None = None
    gone: Gone | None = None
    worked: dict[int, Worked] = field(default_factory=dict)

    def add_worked(self, more: Worked) -> None:
        before = self.worked.get(more.batch_id)
        if before is not None:
            more = Worked(more.number, more.batch_id, before.cpu_s + more.cpu_s, before.run_s + more.run_s)
        self.worked[more.batch_id] = more

    def query(self) -> TracedQuery:
        batches = tuple(sorted(self.batches, key=lambda batch: (batch.offsets_wall_ts, batch.batch_id)))
        return TracedQuery(
            self.about, batches, tuple(self.grants), tuple(self.learnt), self.places, self.gone, self.worked
        )


def read_trace(path: Path, *, salvage: bool = False) -> Trace:
    """Raises ConfigurationError, with where and why, for what is not a trace; see `frames.records_in`."""
    return trace_of(records_in(path, salvage=salvage), str(path))


def trace_of(records: Iterable[Record], name: str = "the trace") -> Trace:
    found = _Gathering(name)
    for record in records:
        found.add(record)
    return found.trace()


class _Gathering:
    """Records of a trace as they come."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._head: Head | None = None
        self._queries: dict[int, _Gathered] = {}
        self._hosts: list[Host] = []
        self._switched: list[Switched] = []
        self._lost: Lost | None = None
        self._cut: Cut | None = None
        self._ended = False

    def add(self, record: Record) -> None:
        if isinstance(record, Head):
            if self._head is not None:
                raise ConfigurationError(f"{self._name} has a second head: two traces seem to have been joined.")
            self._head = record
        elif self._head is None:
            raise ConfigurationError(f"{self._name} does not begin with a head: it is not a whole trace.")
        elif isinstance(record, Query):
            if record.number in self._queries:
                raise ConfigurationError(f"{self._name} describes query {record.number} twice.")
            self._queries[record.number] = _Gathered(record)
        elif isinstance(record, Batch | Worked | Granted | Learnt | Places | Gone):
            self._add_of_query(record)
        else:
            self._add_of_all(record)

    def _add_of_query(self, record: Batch | Worked | Granted | Learnt | Places | Gone) -> None:
        query = self._queries.get(record.number)
        if query is None:
            raise ConfigurationError(f"{self._name} tells of query {record.number}, which it has not described.")
        match record:
            case Batch():
                query.batches.append(record)
            case Worked():
                query.add_worked(record)
            case Granted():
                query.grants.append(record)
            case Learnt():
                query.learnt.append(record)
            case Places():
                query.places = record
            case Gone():
                query.gone = record

    def _add_of_all(self, record: Host | Switched | Lost | Cut | End) -> None:
        match record:
            case Host():
                self._hosts.append(record)
            case Switched():
                self._switched.append(record)
            case Lost():
                self._lost = record
            case Cut():
                self._cut = record
            case End():
                self._ended = True

    def trace(self) -> Trace:
        head, queries = self._head, self._queries
        if head is None:
            raise ConfigurationError(f"{self._name} holds no records: the recording ended before it had begun.")
        times = [host.wall_ts for host in self._hosts]
        times += [batch.ended_wall_ts for query in queries.values() for batch in query.batches]
        return Trace(
            head=head,
            queries=tuple(queries[number].query() for number in sorted(queries)),
            hosts=tuple(self._hosts),
            switched=tuple(self._switched),
            lost=self._lost,
            cut=self._cut,
            ended=self._ended,
            from_wall_ts=head.wall_ts,
            to_wall_ts=max([head.wall_ts, *times]),
        )
