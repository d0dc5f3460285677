"""The documentation's blocks that need Spark run as printed, on the session of the run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from tools.pages import blocks, pages

import slackwater
from slackwater.drivers.spark.sessions import handle_of
from tests.doc_blocks import ROOT, needs_spark, run_blocks, runnable
from tests.spark.support import batches, eventually, rates, start

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tools.pages import Block

pytestmark = pytest.mark.spark

WITH_SPARK = [page for page in pages(ROOT) if needs_spark(page)]


@pytest.fixture
def detached(spark: Any) -> Iterator[None]:
    """Pages attach and go on to the next thing; whatever they attached is detached."""
    yield
    for query in spark.streams.active:
        query.stop()
    handle = handle_of(spark)
    if handle is not None:
        handle.detach()


def detach_before(spark: Any, block: Block) -> None:
    """Two blocks that attach are two applications to the reader."""
    handle = handle_of(spark)
    if handle is not None and "attach(" in block.code:
        handle.detach()


class Given(dict[str, Any]):
    """What pages take for granted, made when a block asks for it."""

    def __init__(self, spark: Any, folder: Path) -> None:
        super().__init__(spark=spark, slackwater=slackwater, F=F, window=F.window, folder=folder)
        self["out"], self["checkpoint"] = str(folder / "counts"), str(folder / "checkpoint-of-counts")

    def __missing__(self, name: str) -> Any:
        rows = rates(self["spark"]).withColumn("event_time", F.col("timestamp"))
        if name == "query":
            query = start(rates(self["spark"]))
            eventually(lambda: batches(query))
            query.stop()
            return query
        if name == "batch":
            numbers = self["spark"].range(100).select((F.col("id") % 3).alias("key"), F.col("id").alias("x"))
            return numbers.withColumns({"window": F.floor(F.col("x") / 10), "a": F.col("x"), "b": F.lit(1)})
        return {
            "df": rows.withColumn("key", F.expr("value % 3")),
            "events": rows.withColumn("campaign", F.expr("value % 3")),
            "parsed": rows,
            "rows": rates(self["spark"]).withColumn("at", F.unix_millis("timestamp")),
        }[name]


@pytest.mark.usefixtures("detached")
@pytest.mark.parametrize("page", WITH_SPARK, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_as_printed(spark: Any, tmp_path: Path, page: Path) -> None:
    scope = run_blocks(runnable(page), Given(spark, tmp_path), before=lambda block: detach_before(spark, block))
    if page.name == "README.md":
        handle = handle_of(spark)
        assert handle is not None
        eventually(lambda: len(handle.status()) == 2)
        assert [query.exception() for query in spark.streams.active] == [None, None]
    if page.name == "late.md":
        found = {(row["window"], row["key"]): row["mean"] for row in scope["result"].collect()}
        assert found[(0, 0)] == 4.5


@pytest.mark.usefixtures("detached")
def test_the_quickstarts_three_queries_run_as_printed(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = {block.file: block for block in blocks(ROOT, ROOT / "docs" / "quickstart.md") if block.file}
    nap = time.sleep
    # A minute of looking, and the end of the session, are for the reader.
    monkeypatch.setattr(time, "sleep", lambda seconds: nap(min(seconds, 0.1)))
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    run_blocks([saved["three_queries.py"]], {})
    said = capsys.readouterr().out
    assert "look at http://127.0.0.1:" in said
    assert {f"{name}: " in said for name in ("clicks", "orders", "visits")} == {True}
    assert spark.streams.active == []
    assert handle_of(spark) is None
