"""Run by tools/package.py under spark-submit --py-files: attach from the zip and let a query be gated."""

from __future__ import annotations

import json
import time

from pyspark.sql import SparkSession

import slackwater


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with slackwater.attach(spark) as handle:
        stream = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
        query = stream.writeStream.format("noop").queryName("zipped").start()
        deadline = time.monotonic() + 120
        while not (any(status.batches >= 2 for status in handle.status())):
            if time.monotonic() > deadline:
                raise SystemExit(f"no batches: {handle.status()}")
            time.sleep(0.1)
        granted = [entry for entry in handle.story("zipped") if entry.kind == "requested"]
        said = {
            "file": slackwater.__file__,
            "version": slackwater.__version__,
            "policy": handle.policy,
            "batches": handle.status()[0].batches,
            "gated": bool(granted),
        }
        query.stop()
    spark.stop()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
