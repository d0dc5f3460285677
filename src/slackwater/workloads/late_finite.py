"""Aion's four workloads over given rows, through windows that are corrected when rows come late.

A third of rows is late, by the paper's log-normal distribution: `i = max(0, round(X) - 1)` windows, here at most three.
Each workload runs twice, in tumbling windows and in windows that slide by half their length. The windows' functions are
the workloads' own; answers come from plain Python over the same rows.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from slackwater.workloads.average import Average
from slackwater.workloads.bigrams import Bigrams
from slackwater.workloads.finite import Stage, window_starts_ms
from slackwater.workloads.linear_road_60s import LinearRoad60s
from slackwater.workloads.stock_market import StockMarket, sliding_warnings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from slackwater.late.query import LateQuery
    from slackwater.workloads.finite import Answers, Frames, Rows
    from slackwater.workloads.late_events import LateWorkload

    OneRow = Mapping[str, Any]
    Result = list[tuple[Any, ...]]

FIRST_MS = 1_600_000_000_000
WINDOWS = 5
PAST_WINDOWS = 3
WATERMARK_S = 1.0
STALENESS = 0.05
DAY_MS = 86_400_000


@dataclass(frozen=True)
class LateFinite:
    """fields: DDL of a row beside its time. row: draws one. result: that of a window's rows."""

    name: str
    about: str
    workload: LateWorkload
    fields: str
    row: Callable[[random.Random], dict[str, Any]]
    result: Callable[[Sequence[OneRow]], Result]

    @property
    def tables(self) -> dict[str, str]:
        return {"events": f"event_ms BIGINT, {self.fields}"}

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(
            Stage(name, ("events",), partial(_windowed, self.workload, slide_ms), self.workload.schema, _with_start)
            for name, slide_ms in self._slides_ms().items()
        )

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self._slides_ms())

    def generate(self, seed: int, size: int) -> Rows:
        rng = random.Random(f"{self.name}-{seed}")
        rows = []
        for number in range(size):
            arrival_ms = FIRST_MS + number * WINDOWS * self._window_ms // size
            late = min(PAST_WINDOWS, max(0, round(rng.lognormvariate(0, 1)) - 1))
            rows.append({"event_ms": arrival_ms - late * self._window_ms, **self.row(rng)})
        return {"events": rows}

    def closing(self, rows: Rows) -> Rows:
        newest = max(rows["events"], key=_event_ms)
        return {"events": [dict(newest) | {"event_ms": newest["event_ms"] + DAY_MS}]}

    def expected(self, rows: Rows) -> Answers:
        return {name: self._expected(rows["events"], slide_ms) for name, slide_ms in self._slides_ms().items()}

    def _expected(self, rows: Sequence[OneRow], slide_ms: int) -> Result:
        windows: defaultdict[int, list[OneRow]] = defaultdict(list)
        for row in rows:
            for start_ms in window_starts_ms(row["event_ms"], self._window_ms, slide_ms):
                windows[start_ms].append(row)
        return [(start_ms, *found) for start_ms in sorted(windows) for found in self.result(windows[start_ms])]

    @property
    def _window_ms(self) -> int:
        return round(1000 * self.workload.window_s)

    def _slides_ms(self) -> dict[str, int]:
        return {"tumbling": self._window_ms, "sliding": self._window_ms // 2}


def _windowed(workload: LateWorkload, slide_ms: int, frames: Frames) -> LateQuery:
    from slackwater import late  # noqa: PLC0415  # Spark is loaded on use

    events = frames["events"].selectExpr("timestamp_millis(event_ms) AS event_time", "*").drop("event_ms")
    windows = late.window(
        events,
        "event_time",
        workload.window_s,
        slide_ms / 1000,
        watermark=WATERMARK_S,
        allowed_lateness=(PAST_WINDOWS + 1) * workload.window_s,
        staleness=STALENESS,
    )
    return windows.groupBy(*workload.keys).apply(workload.function, workload.schema)


def _with_start(latest: DataFrame) -> DataFrame:
    return latest.selectExpr("window.start AS window_start", *(c for c in latest.columns if c != "window"))


def _event_ms(row: OneRow) -> int:
    event_ms: int = row["event_ms"]
    return event_ms


def _number(rng: random.Random) -> dict[str, Any]:
    return {"number": rng.randrange(1_000_000)}


def _average(rows: Sequence[OneRow]) -> Result:
    numbers = [row["number"] for row in rows]
    return [(round(sum(numbers) / len(numbers), 6), len(numbers), sum(numbers))]


def _post(rng: random.Random) -> dict[str, Any]:
    return {"payload": " ".join(f"w{int(40 * rng.random() ** 2)}" for _ in range(rng.randrange(1, 12)))}


def _bigrams(rows: Sequence[OneRow]) -> Result:
    pairs = [f"{first} {second}" for row in rows for first, second in pairwise(row["payload"].split())]
    counts = Counter(pairs)
    top = sorted(counts, key=lambda bigram: (-counts[bigram], bigram))[:20]
    return [(bigram, counts[bigram], len(pairs), len(counts)) for bigram in top]


def _quote_or_tweet(rng: random.Random) -> dict[str, Any]:
    """Ten stocks; the first ones jump, and are talked about, more often."""
    stock = int(10 * rng.random() ** 2)
    if rng.randrange(5) == 0:
        return {"kind": "tweet", "symbol": f"S{stock:02d}", "price": 0}
    off = rng.choice((-8, 8)) if rng.random() < 0.05 / (1 + stock) else rng.uniform(-1, 1)
    return {"kind": "quote", "symbol": f"S{stock:02d}", "price": round(100 * (50 + 3 * stock) * (1 + off / 100))}


def _stocks(rows: Sequence[OneRow]) -> Result:
    quotes: defaultdict[str, list[OneRow]] = defaultdict(list)
    mentions: Counter[str] = Counter()
    for row in rows:
        if row["kind"] == "quote":
            quotes[row["symbol"]].append(row)
        else:
            mentions[row["symbol"]] += 1
    warnings = {symbol: sliding_warnings(_by_slot(quoted)) for symbol, quoted in quotes.items()}
    correlation = 0.0
    if len(set(warnings.values())) > 1 and len({mentions[symbol] for symbol in warnings}) > 1:
        pairs = [(count, mentions[symbol]) for symbol, count in warnings.items()]
        correlation = round(statistics.correlation(*zip(*pairs, strict=True)), 6)
    found = []
    for symbol, quoted in sorted(quotes.items()):
        prices = [row["price"] for row in quoted]
        mean = round(sum(prices) / len(prices), 6)
        found.append((symbol, min(prices), max(prices), mean, warnings[symbol], mentions[symbol], correlation))
    return found


def _by_slot(quoted: Sequence[OneRow]) -> dict[int, list[int]]:
    """Prices by the 5 s in which they were quoted."""
    slots: defaultdict[int, list[int]] = defaultdict(list)
    for row in quoted:
        slots[row["event_ms"] // 5000].append(row["price"])
    return slots


def _report(rng: random.Random) -> dict[str, Any]:
    """Four segments, every other one congested; cars that stand report most often, and some stand at one place."""
    standing = (2, 6, 10, 18)
    car = rng.choice(standing) if rng.randrange(10) == 0 else rng.randrange(320)
    stands = car in standing
    segment = car % 4
    return {
        "car": car,
        "speed": 0 if stands else rng.randrange(15, 35) if segment % 2 == 0 else rng.randrange(50, 70),
        "xway": 0,
        "lane": 1 if stands else rng.randrange(1, 4),
        "dir": int(car >= 280),
        "segment": segment,
        "position": 5280 * segment + (1000 * (car % 8) if stands else rng.randrange(5280)),
    }


def _roads(rows: Sequence[OneRow]) -> Result:
    segments: defaultdict[tuple[int, ...], list[OneRow]] = defaultdict(list)
    for row in rows:
        segments[row["xway"], row["dir"], row["segment"]].append(row)
    found = []
    for segment, reports in sorted(segments.items()):
        cars = len({row["car"] for row in reports})
        mph = sum(row["speed"] for row in reports) / len(reports)
        seen = Counter((row["lane"], row["position"], row["car"]) for row in reports)
        stopped = [sighting for sighting, times in seen.items() if times >= 4]
        standing = Counter((lane, position) for lane, position, _ in stopped)
        accidents = sum(count >= 2 for count in standing.values())
        toll = 2 * (cars - 50) ** 2 if cars > 50 and mph <= 40 and accidents == 0 else 0
        found.append((*segment, cars, round(mph, 6), len({car for *_, car in stopped}), accidents, toll))
    return found


LATE_FINITE = (
    LateFinite("average", "Aion's average, with late rows", Average(), "number BIGINT", _number, _average),
    LateFinite("bigrams", "Aion's bigrams of text, with late rows", Bigrams(), "payload STRING", _post, _bigrams),
    LateFinite(
        "stock-market",
        "Aion's stock market, with late rows",
        StockMarket(),
        "kind STRING, symbol STRING, price BIGINT",
        _quote_or_tweet,
        _stocks,
    ),
    LateFinite(
        "linear-road-60s",
        "Aion's Linear Road, with late rows",
        LinearRoad60s(),
        "car BIGINT, speed BIGINT, xway BIGINT, lane BIGINT, dir BIGINT, segment BIGINT, position BIGINT",
        _report,
        _roads,
    ),
)
