"""Steering a real Spark application over HTTP: a paused query gets no batch, and loses no row."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

import slackwater
from slackwater.control.answers import ClassOrder, QueryOrder
from slackwater.control.client import Client, find
from slackwater.drivers.spark.sessions import stands_in
from tests.spark.support import Feed, Row, batches, eventually, rates, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slackwater import Handle

pytestmark = pytest.mark.spark

T0 = 1_000_000.0
NAMES = ("first", "held", "last")


def counts(stream: Any) -> Any:
    """Rows and their sum, for each key and ten seconds."""
    window = F.window("ts", "10 seconds")
    grouped = stream.withWatermark("ts", "1 second").groupBy(window, "k")
    return grouped.agg(F.count("*").alias("n"), F.sum("v").alias("total"))


def rows(file: int) -> list[Row]:
    return [(T0 + 10 * file + second, key, file + second) for second in range(10) for key in ("a", "b")]


def oracle(fed: list[Row], swept_before: float) -> set[tuple[float, str, int, int]]:
    found: dict[tuple[float, str], list[int]] = defaultdict(list)
    for ts, key, value in fed:
        found[ts // 10 * 10, key].append(value)
    return {(begin, k, len(v), sum(v)) for (begin, k), v in found.items() if begin + 10 <= swept_before}


def emitted(spark: Any, name: str) -> list[tuple[float, str, int, int]]:
    return [(row.window.start.timestamp(), row.k, row.n, row.total) for row in spark.table(name).collect()]


def went_on(queries: list[tuple[Any, int]]) -> bool:
    return all(batches(query) > before for query, before in queries)


def test_a_query_that_is_paused_over_http_gets_no_batch_and_loses_no_row(
    spark: Any, attach: Callable[..., Handle], feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACKWATER_RUNTIME_DIR", str(tmp_path / "run"))
    # So short a longest wait that the paused query is overdue all the time.
    attach(serve=True, max_wait_s=0.5)
    queries = {name: start(counts(feed.stream(spark)), sink="memory", name=name) for name in NAMES}
    fed = rows(0)
    feed.put(fed)
    eventually(lambda: all(batches(query) >= 1 for query in queries.values()))
    with Client(find()) as client:

        def stage(name: str) -> str:
            return client.query(name).query.stage

        assert client.order("/api/pause", QueryOrder(query="held")).done == "paused"
        eventually(lambda: stage("held") == "paused")
        before = batches(queries["held"])
        for file in range(1, 4):
            others = [(queries[name], batches(queries[name])) for name in ("first", "last")]
            feed.put(rows(file))
            fed += rows(file)
            eventually(partial(went_on, others))
        told = client.query("held")
        assert "is paused since" in told.explanation
        assert batches(queries["held"]) == before
        assert told.query.batches == before

        assert client.order("/api/class", ClassOrder(query="held", priority_class=-1)).name == "held"
        assert client.order("/api/resume", QueryOrder(query="held")).done == "resumed"
        feed.put([(T0 + 1000, "a", 0)])
        due = oracle(fed, T0 + 999)
        eventually(lambda: all(len(emitted(spark, name)) >= len(due) for name in NAMES), 60)
        for name in NAMES:
            assert sorted(emitted(spark, name)) == sorted(due), name
        told = client.query("held")
        assert told.query.priority_class == -1
        assert [line.what.split(" after")[0] for line in told.story if line.kind == "ordered"] == [
            "paused",
            "from class 0 to -1",
            "resumed",
        ]
        assert "The last window that left ended at" in told.explanation
        assert {left.latency_s for left in told.left}


def test_a_script_that_attaches_itself_takes_over_from_what_stood_in_for_it(
    spark: Any, attach: Callable[..., Handle]
) -> None:
    stood_in = attach(policy="round-robin")
    stands_in(stood_in)
    own = attach(policy="fcfs")
    assert not stood_in.attached
    assert own.policy == "fcfs"
    query = start(rates(spark))
    eventually(lambda: batches(query) >= 1)
    with pytest.raises(slackwater.AttachError, match="attached to this Spark application already"):
        slackwater.attach(spark)
