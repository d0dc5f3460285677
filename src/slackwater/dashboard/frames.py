"""One second of an application in as few bytes as will do: built once, for all who read.

A reader first gets a `whole` frame: who the queries are, where all of them stand, what ran and left in the last minutes.
Then a `tick` each second: numbers that always move as columns in the order of the queries, whatever else changed as
rows. Times are seconds since `t0`, which every whole frame names.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from slackwater.core.records import Left, Ran, Records
    from slackwater.endpoint.overview import Overview, QueryOverview

MOST_TURNS = 1500
MOST_LEFT = 3000
MOST_SPANS = 60
LONGEST_REASON = 240

Source = Callable[[], "Overview"]
Row = list[Any]


class Frame:
    """What is to be sent at one second. `whole` is put into bytes only if a reader needs it."""

    def __init__(self, number: int, facts: int, tick: bytes, whole: Callable[[], bytes]) -> None:
        self.number = number
        self.facts = facts
        self.tick = tick
        self._make_whole = whole
        self._whole: bytes | None = None

    def whole(self) -> bytes:
        """Only of the newest frame: what ran and left is kept up to that one."""
        if self._whole is None:
            self._whole = self._make_whole()
        return self._whole

    def after(self, number: int | None, facts: int | None) -> bytes:
        """For a reader that has frame `number` with those facts: the tick, or all of it if anything is missing."""
        return self.tick if number == self.number - 1 and facts == self.facts else self.whole()


class Frames:
    """Makes frames of an application, one after the other. One thread uses it."""

    def __init__(self, source: Source, records: Records) -> None:
        self._source = source
        self._records = records
        self._number = 0
        self._facts: tuple[Any, ...] = ()
        self._facts_number = 0
        self._t0 = 0.0
        self._index: dict[str, int] = {}
        self._rows: list[Row] = []
        self._ran_number = self._left_number = 0
        self._ran: deque[Ran] = deque(maxlen=MOST_TURNS)
        self._left: deque[Left] = deque(maxlen=MOST_LEFT)

    def next(self) -> Frame:
        overview = self._source()
        if not self._number:
            self._t0 = float(math.floor(overview.wall_ts))
        self._number += 1
        self._learn_facts(overview)
        rows = [_row(at, query) for at, query in enumerate(overview.queries)]
        changed = [row for row, before in zip(rows, self._rows, strict=False) if row != before]
        changed += rows[len(self._rows) :]
        self._rows = rows
        ran, self._ran_number = self._records.ran.news(self._ran_number)
        left, self._left_number = self._records.left.news(self._left_number)
        self._ran.extend(ran)
        self._left.extend(left)
        common = self._common(overview)
        tick = {
            **common,
            "rows": changed,
            "ran": [self._turn(entry) for entry in ran[-MOST_TURNS:]],
            "left": [self._leaving(entry) for entry in left[-MOST_LEFT:]],
        }
        return Frame(
            self._number,
            self._facts_number,
            _event("tick", self._number, tick),
            lambda: self._whole(overview, common),
        )

    def _learn_facts(self, overview: Overview) -> None:
        facts = tuple((query.key, query.name, query.ui_url) for query in overview.queries)
        if facts != self._facts or not self._facts_number:
            self._facts = facts
            self._facts_number += 1
            self._index = {query.key: at for at, query in enumerate(overview.queries)}
            self._rows = []

    def _whole(self, overview: Overview, common: dict[str, Any]) -> bytes:
        about = {
            "id": overview.application_id,
            "name": overview.name,
            "master": overview.master,
            "ui_url": overview.ui_url,
            "version": overview.version,
            "pid": overview.python_pid,
        }
        content = {
            "t0": self._t0,
            "application": about,
            "queries": self._facts,
            **common,
            "rows": self._rows,
            "ran": [self._turn(entry) for entry in self._ran],
            "left": [self._leaving(entry) for entry in self._left],
        }
        return _event("whole", self._number, content)

    def _common(self, overview: Overview) -> dict[str, Any]:
        memory, scheduler, queries = overview.memory, overview.scheduler, overview.queries
        spans = self._records.ruled
        return {
            "t": self._since(overview.wall_ts),
            "policy": overview.policy,
            "parameters": overview.parameters,
            "cores": overview.cores,
            "lanes": overview.lanes,
            "memory": None
            if memory is None
            else [
                round(memory.used_bytes),
                round(memory.live_bytes),
                round(memory.max_bytes),
                None if memory.bound_bytes is None else round(memory.bound_bytes),
                memory.rules,
                memory.cycles,
            ],
            "ruled": [
                [self._since(span.began_wall_ts), None if span.ended_wall_ts is None else self._since(span.ended_wall_ts)]
                for span in islice(tuple(spans), max(0, len(spans) - MOST_SPANS), None)
            ],
            "scheduler": None
            if scheduler is None
            else [
                scheduler.gates_open,
                scheduler.gates_opened,
                scheduler.decisions,
                round(scheduler.decision_ms_p99, 2),
                round(scheduler.cpu_s, 3),
                self._since(scheduler.last_decision_wall_ts),
            ],
            "live": [
                [_rounded(query.slack_s) for query in queries],
                [_rounded(query.slack_low_s) for query in queries],
                [_rounded(query.slack_high_s) for query in queries],
                [_rounded(query.watermark_lag_s) for query in queries],
                [round(query.backlog_rows) if math.isfinite(query.backlog_rows) else None for query in queries],
            ],
            "late": overview.told.get("late", []),
        }

    def _since(self, wall_ts: float) -> float:
        return round(wall_ts - self._t0, 3)

    def _turn(self, ran: Ran) -> Row:
        """The query's place, or its name where it has gone."""
        return [
            self._index.get(ran.key, ran.name),
            str(ran.stage),
            ran.lane,
            self._since(ran.began_wall_ts),
            round(ran.ended_wall_ts - ran.began_wall_ts, 3),
            ran.rows,
            round(ran.waited_s, 2),
            ran.batch_id,
            ran.reason[:LONGEST_REASON],
        ]

    def _leaving(self, left: Left) -> Row:
        return [self._index.get(left.key, left.name), self._since(left.left_wall_ts), round(left.latency_s, 2)]


def _row(at: int, query: QueryOverview) -> Row:
    return [
        at,
        query.stage,
        query.priority_class,
        query.state_bytes,
        _rounded(query.last_latency_s),
        query.batches,
        query.dropped_rows,
        query.reason[:LONGEST_REASON],
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 2)


def _event(kind: str, number: int, content: dict[str, Any]) -> bytes:
    return b"event: %b\nid: %d\ndata: %b\n\n" % (kind.encode(), number, msgspec.json.encode(content))
