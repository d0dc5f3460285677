"""Klink's own delay statistics from the time at which Kafka took a row in.

Spark's progress tells the least, mean and largest event time of a batch, and nothing of any other column: when rows
were ingested cannot be seen from outside a query. So the query has to say it, in one line:

    events = tell_delays(parsed, "event_time")          # before withWatermark; `timestamp` is Kafka's

The scheduler then expects a watermark by the mean delay of events (Klink Eq. 3-6) instead of by the lag of the largest
event time. Spark's watermark follows that largest one, and with many rows a second the fastest of them decides; so this
is for streams whose watermark suffers the delay of a single event: few rows, or a heartbeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.drivers.spark.wire import DELAYS
from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def tell_delays(frame: DataFrame, event_time: str, ingested: str = "timestamp", watermarked: int = 0) -> DataFrame:
    """The frame itself; each of its batches also tells number, sum, squares and cubes of its rows' delays.

    watermarked: which of the query's watermarked inputs it is, from the left.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # Spark's own convention; loaded on use

    if watermarked < 0:
        raise ConfigurationError(f"tell_delays(watermarked={watermarked}): inputs count from 0.")
    delay_s = (F.unix_micros(F.col(ingested)) - F.unix_micros(F.col(event_time))) / 1e6
    return frame.observe(
        f"{DELAYS}{watermarked}",
        F.count(delay_s).alias("rows"),
        F.sum(delay_s).alias("total_s"),
        F.sum(delay_s * delay_s).alias("squares"),
        F.sum(delay_s * delay_s * delay_s).alias("cubes"),
    )
