"""Windows that late events make be executed again: what the four workloads of Aion (section 5) share.

A row's event time is `arrival - W·i`: the window that is open when it arrives, or the i-th before it. The paper draws i
from a log-normal distribution (mean 0 and standard deviation 1 of the logarithm); here `i = max(0, round(X) - 1)` of
such an X, at most `past_windows`. Spark may read a batch twice, so nothing is drawn: 31 bits mixed from a row's number
are held against thresholds of the CDF.

`bursts` is another of the paper's shapes, a mix of normal distributions, with parameters chosen here: as many late rows
in all as the log-normal one has, about 34 %, but four times as dense in the first 10 s of every 60 s as in the others,
and about one, four or eight windows late.

A generator and its oracle share constants and no code. An oracle knows a row's arrival by the rate source's rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from slackwater.errors import ConfigurationError
from slackwater.workloads.rate_source import mixed, row_times_ms, with_mixed

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from slackwater.workloads.base import Payload

PAST_WINDOWS_MAX = 10
LATENESS_STREAM = 1
BURST_CYCLE_S = 60
BURST_S = 10

# A row reaches back k windows or more when its 31 bits are at least the k-th of these: 2^31 · P(i < k).
# Log-normal: P = Φ(ln(k + ½)). Bursts: a share of 0.228 (quiet) or 0.914 (in a burst) is late, which is as many in all;
# those are max(1, round(Y)) windows late, Y from 0.6·N(1, 0.4) + 0.3·N(4, 0.6) + 0.1·N(8, 0.6).
# fmt: off
LOG_NORMAL = (1411824834, 1761457971, 1921684351, 2005146886, 2052735149,
              2081734166, 2100330478, 2112748723, 2121319714, 2127400209)
QUIET = (1657044438, 1920221363, 1952195585, 1981076895, 2068670796,
         2097526846, 2098742000, 2108362704, 2137560671, 2147179102)
BURST = (185726810, 1238434508, 1366331397, 1481856638, 1832232239,
         1947656440, 1952517054, 1990999871, 2107791740, 2146265463)
# fmt: on


@dataclass(frozen=True)
class LateSpec:
    """One stream with late events; with the source's creation time it fixes every result."""

    name: str
    rate: int
    window_s: float
    past_windows: int
    payload_bytes: int
    seed: int
    bursts: bool = False
    slide_s: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.past_windows <= PAST_WINDOWS_MAX:
            raise ConfigurationError(
                f"late events can reach back 1 to {PAST_WINDOWS_MAX} windows; got past_windows={self.past_windows}."
            )
        if not 0 < self.slide_ms <= self.window_ms:
            raise ConfigurationError(
                f"a window is at least 1 ms long and slides by its own length at most; got window_s={self.window_s}, "
                f"slide_s={self.slide_s}."
            )
        if self.payload_bytes < 1:
            raise ConfigurationError(f"a payload has at least 1 byte; got payload_bytes={self.payload_bytes}.")

    @property
    def window_ms(self) -> int:
        return round(self.window_s * 1000)

    @property
    def slide_ms(self) -> int:
        return self.window_ms if self.slide_s is None else round(self.slide_s * 1000)


class LateWorkload(Protocol):
    """A generator in Spark, a function over the rows of one window, and an oracle outside Spark.

    The function is for `groupBy(window("event_time", …), *keys).applyInPandas(function, schema)` and for whoever keeps
    a window's rows otherwise. Rows may come to it in any order.
    """

    @property
    def name(self) -> str: ...

    @property
    def window_s(self) -> float:
        """Aion's, as are `rate` and `payload_bytes` (Table 1)."""
        ...

    @property
    def rate(self) -> int: ...

    @property
    def payload_bytes(self) -> int: ...

    @property
    def keys(self) -> tuple[str, ...]:
        """What rows are grouped by beside the window."""
        ...

    @property
    def schema(self) -> str:
        """Of what the function returns, as DDL."""
        ...

    def events(self, spark: SparkSession, spec: LateSpec) -> DataFrame:
        """The stream: `arrival`, `event_time`, the workload's fields, `payload`."""
        ...

    def from_numbers(self, numbered: DataFrame, spec: LateSpec) -> DataFrame:
        """The same from a frame of (value, timestamp), streaming or not."""
        ...

    @staticmethod
    def function(rows: pd.DataFrame) -> pd.DataFrame:
        """The result of one window and key."""
        ...

    def expected(self, spec: LateSpec, created_ms: int, numbers: range) -> dict[int, list[Payload]]:
        """By window start in ms, the sorted result rows of all keys, once the rows with these numbers have come."""
        ...

    def window_counts(self, spec: LateSpec, created_ms: int, numbers: range) -> dict[int, int]:
        """By window start in ms, how many of the rows with these numbers belong to it."""
        ...


def late_rows(numbered: DataFrame, spec: LateSpec) -> DataFrame:
    """(value, timestamp) as (value, arrival, event_time)."""
    past = _past_windows_sql(LOG_NORMAL, spec)
    if spec.bursts:
        in_burst = f"(value div {spec.rate}) % {BURST_CYCLE_S} < {BURST_S}"
        past = f"CASE WHEN {in_burst} THEN {_past_windows_sql(BURST, spec)} ELSE {_past_windows_sql(QUIET, spec)} END"
    return with_mixed(numbered, spec.seed, lateness=("value", LATENESS_STREAM)).selectExpr(
        "value",
        "timestamp AS arrival",
        f"timestamp_millis(unix_millis(timestamp) - {spec.window_ms} * ({past})) AS event_time",
    )


def payload_sql(bits: str, size: int) -> str:
    """A string of so many bytes, different for different bits; it repeats, as hashing all of it would cost too much."""
    return f"rpad(md5(hex({bits})), {size}, md5(hex({bits}))) AS payload"


def _past_windows_sql(thresholds: tuple[int, ...], spec: LateSpec) -> str:
    return " + ".join(f"CAST(lateness >= {bits} AS INT)" for bits in thresholds[: spec.past_windows])


def event_times_ms(spec: LateSpec, created_ms: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The oracles' side of `late_rows`."""
    bits = mixed(numbers, spec.seed, LATENESS_STREAM)
    if spec.bursts:
        quiet = np.searchsorted(QUIET[: spec.past_windows], bits, side="right")
        burst = np.searchsorted(BURST[: spec.past_windows], bits, side="right")
        past = np.where(numbers // spec.rate % BURST_CYCLE_S < BURST_S, burst, quiet)
    else:
        past = np.searchsorted(LOG_NORMAL[: spec.past_windows], bits, side="right")
    times_ms: NDArray[np.int64] = row_times_ms(numbers, spec.rate, created_ms) - spec.window_ms * past
    return times_ms


def expected_by_window(
    spec: LateSpec,
    created_ms: int,
    numbers: range,
    result: Callable[[NDArray[np.int64], NDArray[np.int64]], list[Payload]],
) -> dict[int, list[Payload]]:
    """Ask `result(numbers, event times)` for the rows of each window, one window in memory at a time."""
    rows = _as_array(numbers)
    times_ms = event_times_ms(spec, created_ms, rows)
    starts_ms, places = _memberships(spec, times_ms)
    order = np.argsort(starts_ms, kind="stable")
    found, first = np.unique(starts_ms[order], return_index=True)
    groups = np.split(places[order], first[1:])
    return {
        start_ms: sorted(result(rows[group], times_ms[group]))
        for start_ms, group in zip(found.tolist(), groups, strict=False)
    }


def window_counts(spec: LateSpec, created_ms: int, numbers: range) -> dict[int, int]:
    """How many of these rows belong to each window, by its start in ms."""
    starts_ms, _ = _memberships(spec, event_times_ms(spec, created_ms, _as_array(numbers)))
    found, counts = np.unique(starts_ms, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _memberships(spec: LateSpec, times_ms: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(window start, place of the row) for every window that a row belongs to; windows are aligned to the epoch."""
    last_ms = times_ms - times_ms % spec.slide_ms
    starts_ms = np.concatenate([last_ms - back_ms for back_ms in range(0, spec.window_ms, spec.slide_ms)])
    places = np.tile(np.arange(times_ms.size), starts_ms.size // max(1, times_ms.size))
    inside = times_ms[places] < starts_ms + spec.window_ms
    return starts_ms[inside], places[inside]


def _as_array(numbers: range) -> NDArray[np.int64]:
    return np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64)
