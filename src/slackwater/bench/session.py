"""A benchmark's Spark: the same for whoever competes, and read by its own reports."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from slackwater.bench.cpu import gc_log_option
from slackwater.drivers.spark.doctor import checkpoint_manager_class
from slackwater.drivers.spark.java import ensure_java
from slackwater.errors import SlackwaterError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from slackwater.bench.model import Collector
    from slackwater.bench.on_cluster import BenchCluster

_COLLECTORS = {"g1": "-XX:+UseG1GC", "parallel": "-XX:+UseParallelGC"}


def bench_session(
    scratch: Path,
    gc_log: Path,
    *,
    cores: int,
    heap: str,
    partitions: int,
    collector: Collector,
    more: Mapping[str, str],
    cluster: BenchCluster | None = None,
) -> SparkSession:
    """A new session in this process; Python tasks run what runs this. Without a cluster the driver runs them itself."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # a spec must be readable without Spark

    ensure_java()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    config = {
        "spark.master": f"local[{cores}]" if cluster is None else cluster.master,
        "spark.app.name": "slackwater-bench",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{gc_log_option(gc_log)} {_COLLECTORS[collector]}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": heap,
        "spark.local.dir": str(scratch / "local"),
        "spark.log.level": "ERROR",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **({} if cluster is None else cluster.settings(_COLLECTORS[collector])),
        **more,
    }
    builder = SparkSession.builder
    for key, value in config.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", _file_manager(spark))
    return spark


def _file_manager(spark: SparkSession) -> str:
    name = checkpoint_manager_class(spark)
    if name is None:
        raise SlackwaterError(
            f"Spark {spark.version} has no FileSystemBasedCheckpointFileManager; every run needs the same one."
        )
    return name


def progress_of(jvm: Any, stream: Any) -> list[dict[str, Any]]:
    """A query's own progress reports, in two calls to the JVM.

    PySpark would turn each report into objects, call by call. A report's toString is JSON, and Scala
    prints an array of them as "Array(…, …)".
    """
    reports = stream._jsq.recentProgress()  # noqa: SLF001
    printed = jvm.scala.runtime.ScalaRunTime.stringOf(reports)
    found: list[dict[str, Any]] = json.loads(f"[{printed.removeprefix('Array(').removesuffix(')')}]")
    return found
