"""RIoTBench's ETL and STATS: messages of sensors, cleaned and put together again, and followed by statistics.

- `senml`: sensors, kinds of readings, and seeded messages.
- `parse`: messages to readings on Spark, with the range and Bloom filters.
- `etl`, `stats`: the two applications on Spark.
- `oracle`: their answers in plain Python.
- `windows`: STATS in tumbling windows, for the benchmark.
"""

from __future__ import annotations

from slackwater.workloads.riot.etl import RiotEtl
from slackwater.workloads.riot.stats import RiotStats
from slackwater.workloads.riot.windows import RiotWindows

__all__ = ["RiotEtl", "RiotStats", "RiotWindows"]
