"""How a Parquet file of a store is written, by the driver or by a task.

Tasks get this code with their job (`travel_along`), so that executors need pyarrow, which Spark asks of them anyway,
and not this package: nothing in here may use more than that and the standard library.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from slackwater.late.arrow import pa, pc, pq

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slackwater.late.files import Files

KEY: Final = b"slackwater"
_PER_S: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def write_file(
    files: Files,
    name: str,
    schema: Any,
    head: Mapping[str, Any],
    tables: Iterable[tuple[int, Any]],
    *,
    event_time: str | None,
    counted: str | None,
    compression: str,
) -> None:
    """A row group for each pair of window and rows; the footer has `head` and says which group is whose."""
    groups: list[dict[str, Any]] = []

    def produce(stream: Any) -> None:
        with pq.ParquetWriter(stream, schema, compression=compression, write_page_checksum=True) as writer:
            for window, table in tables:
                writer.write_table(table, row_group_size=table.num_rows)
                low, high = event_span(table, event_time)
                entry = {"window": window, "rows": table.num_rows, "bytes": table.nbytes}
                entry |= {"event_ms_min": low, "event_ms_max": high}
                entry["events"] = None if counted is None else int(pc.sum(table[counted]).as_py() or 0)
                groups.append(entry)
            writer.add_key_value_metadata({KEY: json.dumps({**head, "groups": groups}).encode()})

    files.put(name, produce)


def event_span(table: Any, column: str | None) -> tuple[int | None, int | None]:
    if column is None:
        return None, None
    span = pc.min_max(table[column])
    return _ms(span["min"]), _ms(span["max"])


def _ms(scalar: Any) -> int | None:
    if not scalar.is_valid:
        return None
    if not pa.types.is_timestamp(scalar.type):
        return int(scalar.as_py())
    return int(scalar.value * 1_000 // _PER_S[scalar.type.unit])


def by_window(table: Any, column: str) -> list[tuple[int, Any]]:
    """Window start and rows, by window."""
    starts = sorted(pc.unique(table[column]).to_pylist())
    if len(starts) == 1:
        return [(starts[0], table)]
    ordered = table.take(pc.sort_indices(table, sort_keys=[(column, "ascending")]))
    counts = {entry["values"]: entry["counts"] for entry in pc.value_counts(ordered[column]).to_pylist()}
    found, begin = [], 0
    for start in starts:
        found.append((start, ordered.slice(begin, counts[start])))
        begin += counts[start]
    return found


def travel_along() -> None:
    """Let functions of these modules be pickled as they are, instead of by their names."""
    import importlib  # noqa: PLC0415 - in the driver alone

    from pyspark import cloudpickle  # noqa: PLC0415

    for name in ("slackwater.errors", *(f"slackwater.late.{name}" for name in _TRAVELLERS)):
        cloudpickle.register_pickle_by_value(importlib.import_module(name))


_TRAVELLERS: Final = ("errors", "files", "functions", "naming", "parts", "writing")
