"""Chained queries on a real Spark: the chain is found from sink and source, and its words reach whom they concern."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

import slackwater
from slackwater.core.model import Window
from slackwater.core.words import Demand, Words
from slackwater.endpoint.access import read_token
from slackwater.endpoint.discovery import announced
from slackwater.forwarding.courier import PATH
from slackwater.forwarding.letters import Letter, encode
from tests.spark.support import eventually, rates

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slackwater import Handle

pytestmark = pytest.mark.spark


def test_a_chain_is_found_scheduled_by_its_readers_windows_and_told_to_neighbours(
    spark: Any, attach: Callable[..., Handle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACKWATER_RUNTIME_DIR", str(tmp_path / "run"))
    lake, place = tmp_path / "lake", f"file:{tmp_path}/lake"
    handle = attach(policy="klink", forward=True)
    enrich = (
        rates(spark)
        .writeStream.format("parquet")
        .queryName("enrich")
        .option("path", f"{lake}/")
        .option("checkpointLocation", str(tmp_path / "enrich"))
        .start()
    )
    eventually(lambda: enrich.recentProgress, 60)
    counts = spark.readStream.schema("timestamp timestamp, value long").parquet(str(lake))
    counts = counts.withWatermark("timestamp", "1 second").groupBy(F.window("timestamp", "2 seconds")).count()
    counts.writeStream.format("memory").queryName("counted").outputMode("append").start()

    def first() -> Any:
        states = [handle._engine.state(view.key) for view in handle._engine.views if view.name == "enrich"]
        return states and states[0]

    # What its next turn is for, by its reader's words; and its own lag, from what its reader saw.
    found = eventually(lambda: (state := first()) and state.outlook().need, 60)
    eventually(lambda: (state := first()) and state._downstream.sight, 60)
    assert found.slide_s == 2.0
    assert found.end_event_ts % 2.0 == pytest.approx(0.0, abs=1e-6)
    rows = eventually(lambda: len(got := spark.table("counted").orderBy("window").collect()) >= 3 and got, 60)
    assert [row["count"] for row in rows[1:]] == [20] * (len(rows) - 1)

    (told,) = announced(tmp_path / "run")
    demand = Demand(place, (Window(5.0, 5.0),), 1.0, time.time() - 5.0, 0.5, ("elsewhere",))
    words = Words(reads=frozenset({place}), demands=(demand,))
    headers = {"authorization": f"Bearer {read_token(tmp_path / 'run' / told.token_file)}"}

    def answered() -> Any:
        letter = encode(Letter(application_id="elsewhere", sent_wall_ts=time.time(), words=words))
        answer = httpx2.post(f"{handle.url}{PATH}", content=letter, headers=headers, timeout=20).raise_for_status()
        said = msgspec.json.decode(answer.content, type=Letter).words
        return any(ready.event_ts % 5.0 == pytest.approx(1.0) for one in said.supplies for ready in one.ready) and said

    said = eventually(answered, 60)
    assert place in said.writes
    assert {supply.place for supply in said.supplies} == {place}
    assert said.demands == ()


def test_what_is_no_forwarding_is_refused_before_anything_is_attached(spark: Any) -> None:
    with pytest.raises(slackwater.ConfigurationError, match="True, or slackwater"):
        slackwater.attach(spark, forward="yes")  # type: ignore[arg-type]
    with slackwater.attach(spark) as handle:
        assert handle.forwarded() == (0, 0)
