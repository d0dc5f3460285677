"""Under spark-submit on a cluster: queries go on while an executor and a worker are killed and come back; late rows.

Arguments: a folder that everybody sees, and the cluster's own.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import slackwater
from slackwater import late
from slackwater.cluster import Standalone
from slackwater.policies.registry import create
from slackwater.workloads import ysb
from slackwater.workloads.base import emitted_rows, start_query
from tests.spark.support import Feed, eventually, is_gated, rates, task_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slackwater.workloads.base import RunningQuery

LONG_S = 180.0  # for a machine that is busy


class Watched:
    """klink, and the memory that it was shown."""

    name = "watched"
    enforces = True

    def __init__(self) -> None:
        self._klink = create("klink")
        self.memory_max_mb: set[int] = set()

    def decide(self, snapshot: slackwater.Snapshot) -> list[slackwater.Choice]:
        if snapshot.memory is not None:
            self.memory_max_mb.add(round(snapshot.memory.max_bytes / 2**20))
        return self._klink.decide(snapshot)


def slow(folder: str) -> Any:
    """Rows as they are; while the file `hold` is there, the first attempt of a task waits and says where it runs."""

    def pass_on(parts: Iterator[Any]) -> Iterator[Any]:
        import os  # noqa: PLC0415
        import time  # noqa: PLC0415
        from pathlib import Path  # noqa: PLC0415

        for part in parts:
            hold = Path(folder) / "hold"
            while hold.exists():
                (Path(folder) / "held").write_text(os.getcwd())  # noqa: PTH109 - a path is not what travels
                time.sleep(0.05)
            yield part

    return pass_on


def more_batches(queries: list[Any], count: int) -> None:
    before = [batch_id(query) for query in queries]
    eventually(lambda: all(batch_id(q) >= was + count for q, was in zip(queries, before, strict=True)), LONG_S)


def batch_id(query: Any) -> int:
    """In two calls: while it is waited for, PySpark's own way would take a core from the query."""
    progress = query._jsq.lastProgress()
    return -1 if progress is None else int(progress.batchId())


def windows_against_oracle(spark: Any, running: RunningQuery) -> dict[str, int]:
    """Every window from the first that came out to the last: missing ones, wrong ones, right ones."""
    oracle = ysb.Ysb().oracle(running.spec, running.checkpoint)
    found = defaultdict(list)
    for row in emitted_rows(spark, running.spec.name):
        found[row.window_start_ms].append(row.payload)
    deadlines = [start + running.spec.window_ms + running.spec.delay_ms for start in found]
    due = oracle.windows_due(oracle.creation_ms, max(deadlines) + 1)
    return Counter(
        "missing"
        if window.start_ms not in found
        else "right"
        if sorted(found[window.start_ms]) == oracle.expected(window.start_ms)
        else "wrong"
        for window in due
    )


def late_results(spark: Any, folder: Path) -> list[list[Any]]:
    """Windows of 10 s: a row comes after its window has left, and corrects it."""
    feed = Feed(folder / "feed")
    rounds: list[list[tuple[float, str, int]]] = [
        [(1, "a", 1), (2, "b", 2), (12, "a", 4)],
        [(21.5, "a", 5), (3, "a", 6)],
    ]
    query = (
        late.window(
            feed.stream(spark, files_per_batch=1), "ts", "10 seconds", watermark=1, allowed_lateness=60, staleness=0.01
        )
        .groupBy("k")
        .agg(F.count("*").alias("n"), F.sum("v").alias("total"))
        .start(late.Append(folder / "out"), folder / "checkpoint", name="corrected")
    )
    for rows in rounds:
        feed.put(rows)
        query.processAllAvailable()

    def corrected() -> list[list[Any]]:
        rows = spark.read.parquet(str(folder / "out")).selectExpr(
            "cast(unix_seconds(window.start) as int)", "k", "n", "total", "kind"
        )
        found = sorted(list(row) for row in rows.collect())
        return found if any(row[-1] == "late" for row in found) else []

    found: list[list[Any]] = eventually(corrected, LONG_S)
    query.stop()
    return found


def main() -> None:
    folder, cluster = Path(sys.argv[1]), Standalone(Path(sys.argv[2]), detached=True)
    said: dict[str, Any] = {}
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    said["master"] = spark.sparkContext.master
    watched = Watched()
    handle = slackwater.attach(spark, watched)
    said["cores"] = [eventually(lambda: handle.capacity.cores == 2 and 2, LONG_S)]

    specs = ysb.specs(2, rate=100, window_s=2.0, delay_s=1.0, phases="spread", seed=3)
    running = [start_query(spark, ysb.Ysb(), spec, folder / "checkpoints" / spec.name, None) for spec in specs]
    held = rates(spark).select("value").mapInArrow(slow(str(folder)), "value long")
    passing = held.writeStream.format("memory").queryName("passing").start()
    queries = [*(query.stream for query in running), passing]
    more_batches(queries, 2)
    said["gated"] = all(is_gated(query) for query in queries)
    said["order"] = task_order(spark)

    # An executor, in the middle of a task.
    (folder / "hold").touch()
    where = eventually(lambda: (folder / "held").exists() and (folder / "held").read_text(), LONG_S)
    said["executor_killed"] = cluster.kill_executor(where) is not None
    (folder / "hold").unlink()
    more_batches(queries, 1)
    said["cores"].append(eventually(lambda: handle.capacity.cores == 2 and 2, LONG_S))

    # A worker, with its executor.
    cluster.kill_worker(0)
    capacity = eventually(lambda: (c := handle.capacity).cores == 1 and c.lanes <= 2 and c, LONG_S)
    said["cores"].append(capacity.cores)
    said["lanes_with_one_core"] = eventually(lambda: handle.capacity.lanes == 1 and 1, LONG_S)
    more_batches(queries, 2)
    said["status_with_a_dead_worker"] = [worker.condition for worker in cluster.status().workers]
    said["revived"] = cluster.revive()
    said["cores"].append(eventually(lambda: handle.capacity.cores == 2 and 2, LONG_S))
    more_batches(queries, 2)

    for query in queries:
        query.stop()
    said["windows"] = [windows_against_oracle(spark, query) for query in running]
    values = sorted(row[0] for row in spark.table("passing").collect())
    said["values_once"] = len(values) > 0 and values == list(range(len(values)))
    said["late"] = late_results(spark, folder / "late")
    said["memory_max_mb"] = sorted(watched.memory_max_mb)
    said["gates_opened"] = handle.stats().gates_opened
    handle.detach()
    said["order_after_detach"] = task_order(spark)
    spark.stop()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
