"""Start the tests' JVMs in half the time: Spark's classes from an archive, and no second compiler.

`make test` writes the archive once (`python -m tests.fast_java`): a JVM that has run a few of Spark's streaming paths
dumps the classes that it loaded. Java checks an archive against itself and the class path, and goes on without one that
does not fit; so it can make tests faster and nothing else. Tests are over before the optimising compiler pays.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(__file__).parents[1] / "build" / "spark-classes.jsa"
# What PySpark's launcher gives to the JVM of a driver, besides what a session asks for; what Flink's scripts give.
VARIABLE = "SPARK_SUBMIT_OPTS"
FLINK_VARIABLE = "FLINK_ENV_JAVA_OPTS"
# For JVMs that load other classes than a driver, and are as short-lived.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def use() -> None:
    """Have this process and those that it starts launch fast JVMs."""
    # With one compiler Java keeps so little compiled code that Spark's would be thrown out and compiled again for ever.
    options = [os.environ.get(VARIABLE, ""), "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    if ARCHIVE.exists() and ARCHIVE.stat().st_size:
        options += [f"-XX:SharedArchiveFile={ARCHIVE}", "-Xlog:disable", "-Xlog:all=error:stderr"]
    os.environ[VARIABLE] = " ".join(options).strip()
    os.environ[FLINK_VARIABLE] = SHORT_LIVED


def write() -> None:
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    fresh = ARCHIVE.with_suffix(".new")
    options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={fresh} -Xlog:disable"
    done = subprocess.run(
        [sys.executable, "-m", "tests.fast_java", "warm-up"],
        env={**os.environ, VARIABLE: options},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode == 0 and fresh.exists():
        fresh.replace(ARCHIVE)
        sys.stdout.write("==> Spark's classes are in an archive: the tests' JVMs start faster\n")
    else:
        sys.stdout.write(f"==> no archive of Spark's classes (the tests run without): {done.stderr[-500:]}\n")


def warm_up() -> None:
    """Load what most tests load: files, JSON, joins, windows with watermarks, state, foreachBatch, the gate."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only the child needs Spark
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    import slackwater  # noqa: PLC0415
    from slackwater.drivers.spark.java import ensure_java  # noqa: PLC0415

    ensure_java()
    with tempfile.TemporaryDirectory() as folder:
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
            .config("spark.local.dir", f"{folder}/local")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("OFF")
        handle = slackwater.attach(spark)
        rows = spark.range(1000).select(
            F.timestamp_seconds(F.col("id")).alias("at"), F.to_json(F.struct(F.col("id"))).alias("text")
        )
        rows.write.parquet(f"{folder}/rows")
        found = spark.readStream.schema(rows.schema).parquet(f"{folder}/rows").withWatermark("at", "1 second")
        counts = (
            found.select("at", F.from_json("text", "id long").id.alias("id"))
            .join(spark.range(7).select(F.col("id").alias("key")), F.expr("id % 7 = key"))
            .groupBy(F.window("at", "10 seconds"), "key")
            .agg(F.count("*").alias("rows"), F.max("id").alias("most"))
        )
        queries = [
            counts.writeStream.format("memory").queryName("counts").option("checkpointLocation", f"{folder}/1").start(),
            counts.writeStream.foreachBatch(lambda batch, _: batch.write.mode("append").parquet(f"{folder}/out"))
            .option("checkpointLocation", f"{folder}/2")
            .start(),
        ]
        for query in queries:
            query.processAllAvailable()
            query.stop()
        spark.table("counts").orderBy("key").collect()
        spark.read.parquet(f"{folder}/out").toPandas()
        handle.detach()
        spark.stop()


if __name__ == "__main__":
    warm_up() if "warm-up" in sys.argv else write()
