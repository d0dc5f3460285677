"""NEXMark's eight queries over given rows, all at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from slackwater.workloads.finite import Stage
from slackwater.workloads.nexmark.generator import Generator, GeneratorSettings
from slackwater.workloads.nexmark.oracle import expected
from slackwater.workloads.nexmark.queries import QUERIES, build
from slackwater.workloads.nexmark.run import TABLES, typed
from slackwater.workloads.nexmark.schema import Rows as NexmarkRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from slackwater.workloads.finite import Answers, Frames, Rows

LONGEST_AUCTION = "1 hour"
SPAN_S = 60
CLOSING_MS = 3 * 3_600_000

_COLUMNS = {
    "q1": "auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), dateTime TIMESTAMP, extra STRING",
    "q2": "auction BIGINT, price BIGINT",
    "q3": "name STRING, city STRING, state STRING, id BIGINT",
    "q4": "starttime TIMESTAMP, category BIGINT, total BIGINT, auctions BIGINT",
    "q5": "auction BIGINT, num BIGINT",
    "q7": "auction BIGINT, price BIGINT, bidder BIGINT, dateTime TIMESTAMP, extra STRING",
    "q8": "id BIGINT, name STRING, starttime TIMESTAMP",
    "q11": "bidder BIGINT, bid_count BIGINT, starttime TIMESTAMP, endtime TIMESTAMP",
}
_KEYS = {"q4": ("category",), "q8": ("id", "starttime"), "q11": ("bidder", "starttime")}


@dataclass(frozen=True)
class NexmarkFinite:
    name: str = "nexmark"
    about: str = "NEXMark q1 q2 q3 q4 q5 q7 q8 q11 by the public definition"

    @property
    def tables(self) -> dict[str, str]:
        return {name: table.file_ddl for name, table in TABLES.items()}

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(_stage(name) for name in QUERIES)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(QUERIES)

    def generate(self, seed: int, size: int) -> Rows:
        """Out of order by less than the definition's 4 s."""
        per_s = max(20, size // SPAN_S)
        settings = GeneratorSettings(seed=seed, events_per_s=per_s, in_flight_auctions=10, out_of_order_group=20)
        rows = Generator(settings).rows(range(size))
        return _by_table(rows)

    def closing(self, rows: Rows) -> Rows:
        """One row for each table, long after all others. Its own window is never over, and nothing joins it."""
        event_ms = max(row["dateTime"] for table in rows.values() for row in table) + CLOSING_MS
        return _by_table(
            NexmarkRows.of(
                [(-1, "", "", "", "", "", event_ms, "")],
                [(-2, "", "", 0, 0, event_ms, event_ms, -3, 0, "")],
                [(-4, -5, 0, "", "", event_ms, "")],
            )
        )

    def expected(self, rows: Rows) -> Answers:
        given = NexmarkRows.of(**rows)
        return {name: expected(name, given) for name in QUERIES}


def _stage(name: str) -> Stage:
    query = QUERIES[name]
    # q1 waits for nothing, and so emits the bid that closes the windows of others.
    settle = _without_closing if name == "q1" else query.settle
    return Stage(name, query.reads, partial(_build, name), _COLUMNS[name], settle, _KEYS.get(name, ()))


def _build(name: str, frames: Frames) -> DataFrame:
    tables: dict[str, Any] = dict.fromkeys(TABLES)
    tables |= {table: typed(TABLES[table], frame) for table, frame in frames.items()}
    return build(name, **tables, longest_auction=LONGEST_AUCTION)


def _without_closing(emitted: DataFrame) -> DataFrame:
    return emitted.where("auction >= 0")


def _by_table(rows: NexmarkRows) -> Rows:
    return {name: [table.record(row) for row in getattr(rows, name)] for name, table in TABLES.items()}
