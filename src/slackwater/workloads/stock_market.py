"""Aion's stock market: are stocks whose price moves also those that people talk about?

As in the paper: minimum, maximum and mean of every stock's price in sliding windows of 10 s every 5 s; a warning when a
price has varied by 5 % or more; in a tumbling window, warnings per symbol and mentions per symbol in tweets, both
joined on the symbol, and their correlation. 10 000 events/s, windows of 30 s, 1664 bytes of payload.

Chosen here, where the paper says no more:

- The whole chain is one function over a window's rows, quotes and tweets (`kind`). A sliding window is cut where the
  rows end, and the first one of a stock has none before it to compare with.
- A price has varied when the minimum or maximum of a sliding window is 5 % or more off the mean of the one before.
- Every stock that was quoted has a row, with zeros where it had no warning or mention; the correlation over these is
  Pearson's, 0 where either count is the same for all.
- Prices are whole cents, so that sums are exact: a base for each stock, up to 1 % more or less in each quote, and now
  and then 8 % more or less for 5 s of event time. Stocks with low numbers jump more often (10 % of the time, down to
  0.1 %) and are mentioned more often.
- A tweet's price is 0: a null would make pandas read whole numbers as floats.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from slackwater.workloads.late_events import expected_by_window, late_rows, payload_sql, window_counts
from slackwater.workloads.rate_source import mixed, rate_rows, with_mixed

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from slackwater.workloads.base import Payload
    from slackwater.workloads.late_events import LateSpec

SYMBOLS = 100
JITTER_BP = 100
JUMP_BP = 800
WARNING_PERCENT = 5
SLIDE_S = 5
ROW_STREAM = 2
JUMP_STREAM = 3


@dataclass(frozen=True)
class StockMarket:
    name: str = "stock-market"
    window_s: float = 30.0
    rate: int = 10_000
    payload_bytes: int = 1664
    keys: tuple[str, ...] = ()
    schema: str = (
        "symbol STRING, low BIGINT, high BIGINT, mean DOUBLE, warnings BIGINT, mentions BIGINT, correlation DOUBLE"
    )

    def events(self, spark: SparkSession, spec: LateSpec) -> DataFrame:
        return self.from_numbers(rate_rows(spark, spec.rate), spec)

    def from_numbers(self, numbered: DataFrame, spec: LateSpec) -> DataFrame:
        rows = with_mixed(late_rows(numbered, spec), spec.seed, h=("value", ROW_STREAM)).selectExpr(
            "*",
            "h % 5 = 0 AS tweet",
            f"""IF(h % 5 = 0, (h div 5 % {SYMBOLS}) * (h div {5 * SYMBOLS} % {SYMBOLS}) div {SYMBOLS},
                   h div 5 % {SYMBOLS}) AS stock""",
            f"h div {5 * SYMBOLS**2} % {2 * JITTER_BP + 1} - {JITTER_BP} AS jitter",
        )
        slot = f"unix_millis(event_time) div {1000 * SLIDE_S} * {SYMBOLS} + stock"
        return (
            with_mixed(rows, spec.seed, jump=(slot, JUMP_STREAM))
            .selectExpr(
                "*", f"IF(jump % 1000 < {SYMBOLS} - stock, {JUMP_BP} * (1 - 2 * (jump div 1000 % 2)), 0) AS off"
            )
            .selectExpr(
                "arrival",
                "event_time",
                "IF(tweet, 'tweet', 'quote') AS kind",
                "concat('S', lpad(stock, 2, '0')) AS symbol",
                "IF(tweet, 0, (5000 + 310 * stock) * (10000 + jitter + off) div 10000) AS price",
                payload_sql("h", spec.payload_bytes),
            )
        )

    @staticmethod
    def function(rows: pd.DataFrame) -> pd.DataFrame:
        quotes, tweets = rows[rows["kind"] == "quote"], rows[rows["kind"] == "tweet"]
        found = quotes.groupby("symbol")["price"].agg(low="min", high="max", mean="mean")
        found["mean"] = [round(mean, 6) for mean in found["mean"].tolist()]
        found["warnings"] = _warnings_by_symbol(quotes).reindex(found.index, fill_value=0)
        found["mentions"] = tweets.groupby("symbol").size().reindex(found.index, fill_value=0)
        found["correlation"] = _correlation(found["warnings"].tolist(), found["mentions"].tolist())
        return found.reset_index()

    def expected(self, spec: LateSpec, created_ms: int, numbers: range) -> dict[int, list[Payload]]:
        def result(rows: NDArray[np.int64], event_ms: NDArray[np.int64]) -> list[Payload]:
            return _oracle(rows, event_ms, spec.seed)

        return expected_by_window(spec, created_ms, numbers, result)

    def window_counts(self, spec: LateSpec, created_ms: int, numbers: range) -> dict[int, int]:
        return window_counts(spec, created_ms, numbers)


def _warnings_by_symbol(quotes: pd.DataFrame) -> pd.Series:
    import pandas as pd  # noqa: PLC0415  # only workers need it

    slide = pd.Timedelta(seconds=SLIDE_S)
    last = quotes["event_time"].dt.floor(slide)
    twice = pd.concat([quotes.assign(start=last), quotes.assign(start=last - slide)])
    sliding = twice.groupby(["symbol", "start"])["price"].agg(["min", "max", "sum", "count"]).reset_index()
    before = sliding[["symbol", "start", "sum", "count"]].assign(start=sliding["start"] + slide)
    pairs = sliding.merge(before, on=["symbol", "start"], suffixes=("", "_before"))
    # Whole numbers on both sides: a mean in floating point could fall to either side of the 5 %.
    total, count = pairs["sum_before"], pairs["count_before"]
    risen = pairs["max"] * count * 100 >= total * (100 + WARNING_PERCENT)
    fallen = pairs["min"] * count * 100 <= total * (100 - WARNING_PERCENT)
    return pairs[risen | fallen].groupby("symbol").size()


def _correlation(left: list[int], right: list[int]) -> float:
    """Pearson's, from whole sums."""
    n, total_left, total_right = len(left), sum(left), sum(right)
    together = n * sum(a * b for a, b in zip(left, right, strict=True)) - total_left * total_right
    spread = (n * sum(a * a for a in left) - total_left**2) * (n * sum(b * b for b in right) - total_right**2)
    return round(together / math.sqrt(spread), 6) if spread else 0.0


def _oracle(numbers: NDArray[np.int64], event_ms: NDArray[np.int64], seed: int) -> list[Payload]:
    h = mixed(numbers, seed, ROW_STREAM)
    one, two = h // 5 % SYMBOLS, h // (5 * SYMBOLS) % SYMBOLS
    tweet = h % 5 == 0
    mentions = np.bincount((one * two // SYMBOLS)[tweet], minlength=SYMBOLS).tolist()

    stock, slot, jitter = one[~tweet], event_ms[~tweet] // (1000 * SLIDE_S), h[~tweet] // (5 * SYMBOLS**2)
    jump = mixed(slot * SYMBOLS + stock, seed, JUMP_STREAM)
    off = np.where(jump // 1000 % 2 == 0, JUMP_BP, -JUMP_BP) * (jump % 1000 < SYMBOLS - stock)
    price = (5000 + 310 * stock) * (10_000 + jitter % (2 * JITTER_BP + 1) - JITTER_BP + off) // 10_000

    by_stock: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for which, at, cents in zip(stock.tolist(), slot.tolist(), price.tolist(), strict=True):
        by_stock[which][at].append(cents)
    warnings = {which: sliding_warnings(slots) for which, slots in by_stock.items()}
    correlation = 0.0
    if len(set(warnings.values())) > 1 and len({mentions[which] for which in warnings}) > 1:
        pairs = [(count, mentions[which]) for which, count in warnings.items()]
        correlation = round(statistics.correlation(*zip(*pairs, strict=True)), 6)
    rows: list[Payload] = []
    for which, slots in by_stock.items():
        prices = [cents for slot_prices in slots.values() for cents in slot_prices]
        mean = round(sum(prices) / len(prices), 6)
        rows.append((f"S{which:02d}", min(prices), max(prices), mean, warnings[which], mentions[which], correlation))
    return rows


def sliding_warnings(slots: dict[int, list[int]]) -> int:
    """How many sliding windows, of two slots each, are 5 % off the mean of the one before."""
    sliding = {at: slots.get(at, []) + slots.get(at + 1, []) for at in range(min(slots) - 1, max(slots) + 1)}
    found = 0
    for at, prices in sliding.items():
        before = sliding.get(at - 1)
        if before and prices:
            off = (abs(100 * (extreme * len(before) - sum(before))) for extreme in (min(prices), max(prices)))
            found += max(off) >= sum(before) * WARNING_PERCENT
    return found
