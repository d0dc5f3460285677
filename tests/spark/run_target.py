"""A PySpark script that knows nothing of Slackwater but asks, for the test, whether its query is held by a gate."""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

from slackwater.endpoint import discovery
from tests.spark.support import batches, eventually, is_gated, rates, start

builder = SparkSession.builder.appName("a script").config("spark.ui.enabled", "false")
if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not under spark-submit, which has its own settings
    builder = builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
spark = builder.getOrCreate()
query = start(rates(spark))
eventually(lambda: batches(query) >= 2, 60)
announced = discovery.announced(discovery.default_folder())
print(
    json.dumps(
        {
            "arguments": sys.argv[1:],
            "main": __name__,
            "gated": is_gated(query),
            "announced": [found.name for found in announced if found.pid == os.getpid()],
        }
    )
)
# The query still runs and the session is not stopped: plain Python would end all the same.
sys.exit(3)
