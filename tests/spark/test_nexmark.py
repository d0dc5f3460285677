"""Spark's answers to NEXMark's queries are the oracle's, in batch and as streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql.streaming import DataStreamWriter

from slackwater.workloads.nexmark import (
    OUTPUT_MODE,
    QUERIES,
    Generator,
    GeneratorSettings,
    Rows,
    build,
    expected,
    run_query,
)
from slackwater.workloads.nexmark.run import stream, write_lines
from slackwater.workloads.nexmark.schema import AUCTION, BID
from tests.unit.nexmark_hand import CASES, auction, bid

if TYPE_CHECKING:
    from pathlib import Path

    from slackwater.workloads.nexmark.oracle import Answer

pytestmark = pytest.mark.spark

# 50 s of events: windows of 10 s end and sessions pause among them. Rows come up to a second late.
GENERATED = Generator(GeneratorSettings(seed=7, events_per_s=60, out_of_order_group=60)).rows(range(3000))

# Rows of state for the closing row alone: q5 has it in 5 windows, counted once for each side of its join; q4, q7 and q8
# have it on two sides of theirs.
CLOSING_STATE = {"q1": 0, "q2": 0, "q4": 2, "q5": 10, "q7": 2, "q8": 2, "q11": 1}


def must_keep(name: str, rows: Rows) -> int:
    """The rows of state that a stream may still need in the end; only q3 never forgets."""
    if name != "q3":
        return CLOSING_STATE[name]
    persons = sum(row.state in {"OR", "ID", "CA"} for row in rows.persons)
    return persons + sum(row.category == 10 for row in rows.auctions)


def run(spark: Any, name: str, rows: Rows, *, streaming: bool = False) -> Answer:
    return run_query(
        spark, name, persons=rows.persons, auctions=rows.auctions, bids=rows.bids, streaming=streaming, files=2
    )


@pytest.mark.parametrize("name", QUERIES)
def test_batch_answers_what_was_worked_out_by_hand(spark, name):
    assert run(spark, name, CASES[name].rows) == CASES[name].answer


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The streaming queries that the test starts."""
    found: list[Any] = []
    start = DataStreamWriter.start

    def start_and_note(writer: Any) -> Any:
        found.append(start(writer))
        return found[-1]

    monkeypatch.setattr(DataStreamWriter, "start", start_and_note)
    return found


@pytest.mark.parametrize("name", QUERIES)
def test_a_stream_answers_in_the_end_what_the_oracle_says_and_keeps_no_more_than_it_must(spark, started, name):
    # Those worked out by hand come first, years before the others, and share no id with them.
    rows = CASES[name].rows + GENERATED
    assert run(spark, name, rows, streaming=True) == expected(name, rows)
    kept = sum(operator["numRowsTotal"] for operator in started[0].lastProgress["stateOperators"])
    assert kept == must_keep(name, rows)
    assert [table.name for table in spark.catalog.listTables() if table.name.startswith("nexmark")] == []


def streams(spark: Any, folder: Path) -> tuple[Any, Any]:
    (folder / "auctions").mkdir()
    (folder / "bids").mkdir()
    write_lines(AUCTION, [auction(1, until_ms=5_001)], folder / "auctions" / "0.json")
    write_lines(BID, [bid(1)], folder / "bids" / "0.json")
    return stream(spark, AUCTION, str(folder / "auctions")), stream(spark, BID, str(folder / "bids"))


def test_an_auction_that_is_open_for_longer_than_said_fails_a_stream_rather_than_lose_bids(spark, tmp_path):
    result = build("q4", None, *streams(spark, tmp_path), longest_auction="5 seconds")
    query = result.writeStream.format("noop").outputMode(OUTPUT_MODE).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match=r"auction 1 is open .* longer than longest_auction, 5 seconds"):
        query.awaitTermination(220)


@pytest.mark.parametrize(("mode", "refusal"), [("update", "correctness"), ("complete", "not supported in Complete")])
def test_spark_refuses_a_running_mean_of_what_streams_joined_and_grouped(spark, tmp_path, mode, refusal):
    """Why q4 settles: a plan of the definition's very form is refused in both modes that could update its answer."""
    auctions, bids = streams(spark, tmp_path)
    finals = auctions.join(bids, auctions["id"] == bids["auction"]).groupBy("id", "category").agg({"price": "max"})
    means = finals.groupBy("category").agg({"max(price)": "avg"})
    with pytest.raises(AnalysisException, match=refusal):
        means.writeStream.format("noop").outputMode(mode).start()
