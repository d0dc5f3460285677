"""Under spark-submit: a session that the script did not configure is attached to, and its queries are scheduled."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

import slackwater
from tests.spark.support import batches, eventually, is_gated, rates, start


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    said: dict[str, Any] = {"master": spark.sparkContext.master}
    with slackwater.attach(spark) as handle:
        queries = [start(rates(spark)) for _ in range(2)]
        eventually(lambda: all(batches(query) >= 2 for query in queries))
        said["gated"] = all(is_gated(query) for query in queries)
        said["cores"] = handle.capacity.cores
        said["scheduled"] = sorted(status.name for status in handle.status() if status.batches)
        said["started"] = sorted(query.name for query in queries)
        for query in queries:
            query.stop()
    spark.stop()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
