"""Run in a process of its own: a FIFO context, attached, detached, stopped while attached, and a second one."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from pyspark.sql import SparkSession

import slackwater
from slackwater.drivers.spark.java import ensure_java
from tests.spark.support import batches, eventually, is_gated, rates, start, task_order


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def session(scratch: str) -> Any:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.sql.warehouse.dir", scratch).config("spark.local.dir", scratch)
    builder = builder.config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={scratch}")
    return builder.config("spark.log.level", "OFF").getOrCreate()


def threads(spark: Any) -> list[str]:
    return [thread.getName() for thread in spark._jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()]


def main() -> None:
    ensure_java()
    log = Kept()
    logging.getLogger("slackwater").addHandler(log)
    logging.getLogger("slackwater").setLevel(logging.INFO)
    said: dict[str, Any] = {}

    spark = session(sys.argv[1])
    said["mode"] = spark.sparkContext._jsc.sc().getSchedulingMode().toString()
    handle = slackwater.attach(spark, "round-robin")
    queries = [start(rates(spark)) for _ in range(3)]
    eventually(lambda: all(batches(query) >= 2 for query in queries))
    said["gated"] = all(is_gated(query) for query in queries)
    said["ordinary"] = spark.range(10).count()
    said["batches"] = [batches(query) for query in queries]
    said["order_while_attached"] = task_order(spark)
    said["advice"] = list(log.lines)
    handle.detach()
    said["order_after_detach"] = task_order(spark)
    for query in queries:
        query.stop()

    handle = slackwater.attach(spark, "klink")
    query = start(rates(spark))
    eventually(lambda: batches(query) >= 1)
    query.stop()
    stopped = spark
    spark.stop()
    eventually(lambda: not handle._thread.is_alive())
    said["scheduler_alive_after_stop"] = handle._thread.is_alive()
    try:
        slackwater.attach(stopped)
    except slackwater.AttachError as error:
        said["attach_to_stopped"] = str(error)

    spark = session(sys.argv[1])
    eventually(lambda: "slackwater-watchdog" not in threads(spark))
    said["watchdog_alive_after_stop"] = "slackwater-watchdog" in threads(spark)
    with slackwater.attach(spark, "klink"):
        query = start(rates(spark))
        said["batches_in_the_next_session"] = eventually(lambda: batches(query))
        query.stop()
    handle.detach()
    spark.stop()
    said["log"] = log.lines
    print(json.dumps(said))


if __name__ == "__main__":
    main()
