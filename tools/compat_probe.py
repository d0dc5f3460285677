"""Run by tools/compat.py on each version: attach, run a windowed query and a join, and tell what could not be done.

The last line is JSON: `notes` has what the scheduler said itself, and what it should have known and did not.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

import slackwater
from slackwater.drivers.spark.doctor import session_facts

if TYPE_CHECKING:
    from collections.abc import Callable

_WAIT_S = 240.0


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def main() -> None:
    kept = _Kept()
    logging.getLogger("slackwater").addHandler(kept)
    with tempfile.TemporaryDirectory() as scratch:
        builder = SparkSession.builder.master("local[2]").config("spark.scheduler.mode", "FAIR")
        for key, value in {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.warehouse.dir": scratch,
            "spark.local.dir": scratch,
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch}",
            "spark.log.level": "ERROR",
        }.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        missing = _missing(spark)
        spark.stop()
    print(json.dumps({"notes": [*kept.lines, *missing]}))


def _missing(spark: Any) -> list[str]:
    """What the scheduler ought to know of a windowed query and of a join, and does not."""
    out = []
    if session_facts(spark).local_checkpoint_manager is None:
        out.append("no checkpoint manager for local disks: tune=True leaves it")
    with slackwater.attach(spark, serve=True) as handle:
        rows = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
        rows = rows.withWatermark("timestamp", "1 second")
        counted = rows.groupBy(F.window("timestamp", "5 seconds")).count()
        windowed = counted.writeStream.format("noop").queryName("windowed").start()
        joined = rows.alias("a").join(rows.alias("b"), F.expr("a.value = b.value AND a.timestamp = b.timestamp"))
        join = joined.writeStream.format("noop").queryName("join").start()
        _until(lambda: any(entry.name == "windowed" for entry in handle.expectations()))
        _until(lambda: all(status.batches >= 3 for status in handle.status()) and len(handle.status()) == 2)
        _until(lambda: any(status.last_latency_s is not None for status in handle.status()))
        windowed.stop()
        join.stop()
    return out


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("the scheduler did not come to know what it should within time")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
