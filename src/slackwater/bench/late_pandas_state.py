"""Late rows kept by hand on plain Spark: applyInPandasWithState, a state of rows for every window.

What a Spark user writes who needs all rows of a window in a function and does not want `collect_list`: rows are added
to the state of their window as they come, and leave when the watermark has passed its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

_STATE = "held BINARY"


def swept_rows(events: DataFrame, window_ms: int, delay_ms: int, keys: Sequence[str], salts: int) -> DataFrame:
    """The events with their window's `start_ms`, once the watermark has passed its end.

    salts: a window's rows are spread over so many states by their event time, so that not all of them are written anew
    with every batch.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  # Spark's own convention; loaded on use
    from pyspark.sql.streaming.state import GroupStateTimeout  # noqa: PLC0415

    start = F.unix_millis(F.window("event_time", f"{window_ms} milliseconds").start).alias("start_ms")
    salt = F.pmod(F.xxhash64("event_time"), F.lit(max(1, salts))).alias("salt")
    return (
        events.withWatermark("event_time", f"{delay_ms} milliseconds")
        .select(start, salt, *events.columns)
        .groupBy("start_ms", *keys, "salt")
        .applyInPandasWithState(
            _keeping(window_ms),
            "start_ms BIGINT, " + ", ".join(f"{name} {kind}" for name, kind in events.dtypes),
            _STATE,
            "append",
            GroupStateTimeout.EventTimeTimeout,
        )
    )


def _keeping(
    window_ms: int,
) -> Callable[[tuple[Any, ...], Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]:
    def keep(key: tuple[Any, ...], batches: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        import pandas as pd  # noqa: PLC0415
        import pyarrow as pa  # noqa: PLC0415

        held = [_unpacked(pa, state.get[0])] if state.exists else []
        if state.hasTimedOut:
            state.remove()
            yield pd.concat(held)
            return
        fresh = [batch.drop(columns=["salt"]) for batch in batches]
        state.update((_packed(pa, pd.concat([*held, *fresh])),))
        # A time-out must lie after the watermark; a window's rows may still come in the batch in which it ends.
        state.setTimeoutTimestamp(max(int(key[0]) + window_ms, state.getCurrentWatermarkMs() + 1))

    return keep


def _packed(pa: Any, rows: pd.DataFrame) -> bytes:
    table = pa.Table.from_pandas(rows, preserve_index=False)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return bytes(out.getvalue())


def _unpacked(pa: Any, held: bytes) -> Any:
    return pa.ipc.open_stream(held).read_all().to_pandas()
