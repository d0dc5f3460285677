"""RIoTBench, VoipStream and SYN on Spark: row for row what their oracles say, as streams, at once, and in windows."""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from slackwater.workloads import syn
from slackwater.workloads.base import QuerySpec
from slackwater.workloads.rate_source import row_times_ms
from slackwater.workloads.riot import RiotEtl, RiotStats, RiotWindows
from slackwater.workloads.riot.windows import RiotWindowsOracle
from slackwater.workloads.syn import Syn
from slackwater.workloads.voip import Voip, VoipWindows
from slackwater.workloads.voip.windows import VoipWindowsOracle
from tests.spark.test_workloads import CREATED_MS, by_window, numbered

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from slackwater.workloads.finite import FiniteWorkload

pytestmark = pytest.mark.spark

# The whole chain keeps a fifth; one in ten rows that come to the blocking operator is held, for 100 ms on average.
HELD = syn.blocking(selectivity=0.2, rounds=3, holds_in_1000=100)
CASES: dict[str, tuple[FiniteWorkload, int]] = {
    "riot-etl": (RiotEtl(), 150),
    "riot-stats": (RiotStats(), 240),
    "voip": (Voip(), 400),
    "syn": (Syn(length=3, base_rounds=4), 600),
    "syn-blocking": (HELD, 150),
}


def write(rows: Iterable[Mapping[str, Any]], folder: Path, files: int = 3) -> str:
    """The rows as files of JSON lines, in order: Spark takes files in the order of their times."""
    folder.mkdir()
    rows = list(rows)
    size = math.ceil(len(rows) / files)
    for number in range(files):
        path = folder / f"{number}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows[number * size : (number + 1) * size]))
        os.utime(path, (1_700_000_000 + number,) * 2)
    return str(folder)


def to_its_end(frame: Any, folder: Path) -> int:
    """Run a stream into Parquet files; how many batches it took."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(200)
    return sum(file.name.isdigit() for file in (folder / "checkpoint" / "commits").iterdir())


@pytest.mark.parametrize("name", CASES)
def test_a_stream_in_three_batches_and_a_static_frame_give_the_rows_of_the_oracle(spark, tmp_path, name):
    workload, size = CASES[name]
    rows = workload.generate(3, size)
    expected = workload.expected(rows)
    streams: dict[str, Any] = {}
    static: dict[str, Any] = {}
    for table, ddl in workload.tables.items():
        inbox = write(rows[table], tmp_path / table)
        streams[table] = spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).json(inbox)
        static[table] = spark.read.schema(ddl).json(inbox)
    for stage in workload.stages:
        batches = to_its_end(stage.build(streams), tmp_path / stage.name)
        assert batches == 3 if set(stage.reads) <= set(workload.tables) else batches >= 1
        given = str(tmp_path / stage.name / "rows")
        streams[stage.name] = spark.readStream.schema(stage.columns).parquet(given)
        static[stage.name] = stage.build(static)
        assert static[stage.name].dtypes == streams[stage.name].dtypes
        if stage.name in workload.outputs:
            assert expected[stage.name]
            assert sorted(tuple(row) for row in spark.read.parquet(given).collect()) == expected[stage.name]
            assert sorted(tuple(row) for row in static[stage.name].collect()) == expected[stage.name]


def test_generated_messages_and_rows_hold_what_the_queries_must_survive():
    """What the test above is worth: it saw rejects, gaps, a false positive of the filter, and rows that were held."""
    etl = RiotEtl()
    answer = etl.expected(etl.generate(3, CASES["riot-etl"][1]))
    assert answer["rejects"]
    assert any(row[8] for row in answer["annotated"])
    assert any(None in row[3:8] for row in answer["annotated"])
    assert any(row[9] is None for row in answer["annotated"])
    (held,) = HELD.expected(HELD.generate(3, CASES["syn-blocking"][1])).values()
    assert any(row[3] for row in held)


WINDOWED: dict[str, tuple[Any, Any, QuerySpec]] = {
    "voip": (VoipWindows(), VoipWindowsOracle, QuerySpec("q", 300, 4.0, 1.0, 300, 7)),
    "riot": (RiotWindows(), RiotWindowsOracle, QuerySpec("q", 100, 4.0, 1.0, 300, 7)),
    "riot-json": (RiotWindows(payload="json"), RiotWindowsOracle, QuerySpec("q", 50, 4.0, 1.0, 0, 3, slide_s=2.0)),
}


@pytest.mark.parametrize("name", WINDOWED)
def test_whole_windows_have_the_rows_of_the_oracle(spark, name):
    workload, oracle_of, spec = WINDOWED[name]
    found = by_window(workload.from_numbers(numbered(spark, spec.rate), spec))
    oracle = oracle_of(spec, CREATED_MS)
    whole = {start: rows for start, rows in found.items() if start + spec.window_ms <= CREATED_MS + 10_000}
    assert len(whole) >= 2
    assert whole == {start: oracle.expected(start) for start in whole}


@pytest.mark.parametrize("name", ["voip", "riot-json"])
def test_windows_leave_a_stream_when_the_watermark_has_passed_them(spark, tmp_path, name):
    workload, oracle_of, spec = WINDOWED[name]
    numbers = np.arange(10 * spec.rate)
    times = row_times_ms(numbers, spec.rate, CREATED_MS)
    rows = ({"value": number, "at_ms": at} for number, at in zip(numbers.tolist(), times.tolist(), strict=True))
    reader = spark.readStream.schema("value BIGINT, at_ms BIGINT").option("maxFilesPerTrigger", 1)
    stream = reader.json(write(rows, tmp_path / "numbers")).selectExpr("timestamp_millis(at_ms) AS timestamp", "value")
    to_its_end(workload.from_numbers(stream, spec), tmp_path)
    found = by_window(spark.read.parquet(str(tmp_path / "rows")))
    oracle = oracle_of(spec, CREATED_MS)
    due = oracle.windows_due(CREATED_MS - 10_000, CREATED_MS + 9_900)
    assert len(due) >= 2
    assert found == {window.start_ms: oracle.expected(window.start_ms) for window in due}
