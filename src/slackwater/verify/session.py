"""A small Spark of this process's own, in which all queries of a verification run."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from slackwater.drivers.spark.doctor import checkpoint_manager_class
from slackwater.drivers.spark.java import ensure_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession


@contextmanager
def small_session(scratch: Path, more: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Two cores and 1 GB, with `more` settings; stopped at the end."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # Spark is loaded on use

    ensure_java()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    config = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        # Spark's workers put frames together in a way that pandas warns of, once for each task.
        "spark.executorEnv.PYTHONWARNINGS": "ignore::FutureWarning",
        "spark.local.dir": str(scratch / "local"),
        # Queries that are stopped in the middle of a batch have much to say; those that fail are told of anyway.
        "spark.log.level": "FATAL",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(more or {}),
    }
    builder = SparkSession.builder.master("local[2]").appName("slackwater-verify")
    for key, value in config.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    faster = checkpoint_manager_class(spark)
    if faster is not None:
        spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", faster)
    try:
        yield spark
    finally:
        spark.stop()
