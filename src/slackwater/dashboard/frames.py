"""One second of an application in as few bytes as will do: built once, for all who read.

A reader first gets a `whole` frame: who the queries are, where all of them stand, what ran and left in the last
minutes. Then a `tick` each second: numbers that always move as columns in the order of the queries, whatever else
changed as rows. Times are seconds since `t0`, which every whole frame names.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from slackwater.core.records import Left, Log, Ran, Records
    from slackwater.endpoint.overview import Overview, QueryOverview

MOST_TURNS = 1500
MOST_LEFT = 3000
MOST_SPANS = 60
LONGEST_REASON = 240
MOST_CHOICES = 8
MOST_ADVICE = 60
LONGEST_ADVICE = 600

Source = Callable[[], "Overview"]
Row = list[Any]
T = TypeVar("T")


class Frame:
    """What is to be sent at one second. `whole` is put into bytes only if a reader needs it."""

    def __init__(self, number: int, facts: int, tick: bytes, whole: Callable[[], bytes]) -> None:
        self.number = number
        self.facts = facts
        self.tick = tick
        self._make_whole = whole
        self._whole: bytes | None = None

    def whole(self) -> bytes:
        if self._whole is None:
            self._whole = self._make_whole()
        return self._whole

    def after(self, number: int | None, facts: int | None) -> bytes:
        """For a reader that has frame `number` with those facts: the tick, or all of it if anything is missing."""
        return self.tick if number == self.number - 1 and facts == self.facts else self.whole()


class _News(Generic[T]):
    """What was added to a log since it was last asked for."""

    def __init__(self, log: Log[T]) -> None:
        self._log = log
        self._number = 0

    def take(self) -> list[T]:
        found = self._log.after(self._number)
        if found:
            self._number = found[-1][0]
        return [entry for _, entry in found]


class _Terms(msgspec.Struct, frozen=True):
    """How frames name things: times since t0, queries by their place in `queries`."""

    t0: float
    queries: tuple[tuple[str, str, str | None], ...]
    index: dict[str, int]

    def since(self, wall_ts: float) -> float:
        return round(wall_ts - self.t0, 3)

    def turn(self, ran: Ran) -> Row:
        """The query's place, or its name where it has gone."""
        return [
            self.index.get(ran.key, ran.name),
            str(ran.stage),
            ran.lane,
            self.since(ran.began_wall_ts),
            round(ran.ended_wall_ts - ran.began_wall_ts, 3),
            ran.rows,
            round(ran.waited_s, 2),
            ran.batch_id,
            ran.reason[:LONGEST_REASON],
        ]

    def leaving(self, left: Left) -> Row:
        return [self.index.get(left.key, left.name), self.since(left.left_wall_ts), round(left.latency_s, 2)]


class Frames:
    """Makes frames of an application, one after the other. One thread at a time uses it."""

    def __init__(self, source: Source, records: Records) -> None:
        self._source = source
        self._records = records
        self._number = 0
        self._facts = 0
        self._terms = _Terms(0.0, (), {})
        self._rows: list[Row] = []
        self._advice: list[str] = []
        self._ran_news, self._left_news = _News(records.ran), _News(records.left)
        self._ran: deque[Ran] = deque(maxlen=MOST_TURNS)
        self._left: deque[Left] = deque(maxlen=MOST_LEFT)

    def next(self) -> Frame:
        overview = self._source()
        terms = self._learn_terms(overview)
        self._number += 1
        rows = [_row(at, query, terms) for at, query in enumerate(overview.queries)]
        changed = [row for row, before in zip(rows, self._rows, strict=False) if row != before]
        changed += rows[len(self._rows) :]
        self._rows = rows
        ran, left = self._ran_news.take(), self._left_news.take()
        self._ran.extend(ran)
        self._left.extend(left)
        common = self._common(overview, terms)
        advice = _advice(overview)
        tick = {
            **common,
            **({"advice": advice} if advice != self._advice else {}),
            "rows": changed,
            "ran": [terms.turn(entry) for entry in ran[-MOST_TURNS:]],
            "left": [terms.leaving(entry) for entry in left[-MOST_LEFT:]],
        }
        self._advice = advice
        common = {**common, "advice": advice}
        return Frame(
            self._number,
            self._facts,
            _event("tick", self._number, tick),
            partial(_whole, self._number, overview, terms, common, rows, tuple(self._ran), tuple(self._left)),
        )

    def _learn_terms(self, overview: Overview) -> _Terms:
        queries = tuple((query.key, query.name, query.ui_url) for query in overview.queries)
        if queries != self._terms.queries or not self._facts:
            t0 = self._terms.t0 or float(math.floor(overview.wall_ts))
            self._terms = _Terms(t0, queries, {query.key: at for at, query in enumerate(overview.queries)})
            self._facts += 1
            self._rows = []
        return self._terms

    def _common(self, overview: Overview, terms: _Terms) -> dict[str, Any]:
        memory, scheduler, queries = overview.memory, overview.scheduler, overview.queries
        return {
            "t": terms.since(overview.wall_ts),
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
                [terms.since(span.began_wall_ts), span.ended_wall_ts and terms.since(span.ended_wall_ts)]
                for span in tuple(self._records.ruled)[-MOST_SPANS:]
            ],
            "scheduler": None
            if scheduler is None
            else [
                scheduler.gates_open,
                scheduler.gates_opened,
                scheduler.decisions,
                round(scheduler.decision_ms_p99, 2),
                round(scheduler.cpu_s, 3),
                terms.since(scheduler.last_decision_wall_ts),
                scheduler.enforces,
            ],
            "live": [
                [_rounded(query.slack_s) for query in queries],
                [_rounded(query.slack_low_s) for query in queries],
                [_rounded(query.slack_high_s) for query in queries],
                [_rounded(query.watermark_lag_s) for query in queries],
                [round(query.backlog_rows) if math.isfinite(query.backlog_rows) else None for query in queries],
            ],
            "late": overview.told.get("late", []),
            "shadow": _shadow(overview, terms),
        }


def _shadow(overview: Overview, terms: _Terms) -> dict[str, Any] | None:
    """What the policy of `attach(shadow=…)` would bring, and what it would run first; null: there is none."""
    rows = overview.told.get("shadow", [])
    if not rows:
        return None
    gain = dict(rows[0])
    for name in ("wall_ts", "advised_wall_ts"):
        if isinstance(at := gain.pop(name, None), int | float):
            gain[name.removesuffix("wall_ts") + "t"] = terms.since(at)
    wanted = [row for row in rows[1:] if row.get("start")]
    return {
        "gain": {name: round(value, 3) if isinstance(value, float) else value for name, value in gain.items()},
        "wanted": len(wanted),
        "choices": [
            [str(row.get("query", "")), str(row.get("reason", ""))[:LONGEST_REASON]] for row in wanted[:MOST_CHOICES]
        ],
    }


def _advice(overview: Overview) -> list[str]:
    rows = overview.told.get("shadow", [])[1:]
    return [str(row["advice"])[:LONGEST_ADVICE] for row in rows if "advice" in row][:MOST_ADVICE]


def _whole(
    number: int,
    overview: Overview,
    terms: _Terms,
    common: dict[str, Any],
    rows: list[Row],
    ran: tuple[Ran, ...],
    left: tuple[Left, ...],
) -> bytes:
    about = {
        "id": overview.application_id,
        "name": overview.name,
        "master": overview.master,
        "ui_url": overview.ui_url,
        "version": overview.version,
        "pid": overview.python_pid,
    }
    content = {
        "t0": terms.t0,
        "application": about,
        "queries": terms.queries,
        **common,
        "rows": rows,
        "ran": [terms.turn(entry) for entry in ran],
        "left": [terms.leaving(entry) for entry in left],
    }
    return _event("whole", number, content)


def _row(at: int, query: QueryOverview, terms: _Terms) -> Row:
    since = query.running_since_wall_ts
    return [
        at,
        query.stage,
        query.priority_class,
        query.state_bytes,
        _rounded(query.last_latency_s),
        query.batches,
        query.dropped_rows,
        query.reason[:LONGEST_REASON],
        query.lane,
        None if since is None else terms.since(since),
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 2)


def _event(kind: str, number: int, content: dict[str, Any]) -> bytes:
    return b"event: %b\nid: %d\ndata: %b\n\n" % (kind.encode(), number, msgspec.json.encode(content))
