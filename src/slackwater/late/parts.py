"""Where rows become durable: each task of a batch writes its own Parquet part, so nothing passes through the driver.

A part holds a row group for each window. Rows of windows that are gone go to a part of dead letters. Each task tells
the driver what it has written; a task that Spark runs again writes the same names again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from slackwater.late.arrow import pa
from slackwater.late.errors import StoreError
from slackwater.late.naming import DATA, DEAD, batch_name
from slackwater.late.writing import by_window, write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from slackwater.late.index import DataFile
    from slackwater.late.store import WindowStore

WINDOW: Final = "_window"
# Rows without an event time belong to no window; they are dead letters of this one.
NO_WINDOW: Final = -(2**62)


def write_parts(kept: DataFrame, store: WindowStore, batch_id: int, closed_ms: int | None = None) -> list[DataFile]:
    """Make a batch's rows durable, by one Spark job over them; `begin` must have been called.

    closed_ms: windows that start before take no more rows, whether or not they are gone yet.
    """
    from slackwater.late.footer import read_footer  # noqa: PLC0415 - not for tasks

    writer = _writer(store, batch_id, closed_ms)
    names = sorted(row[0] for row in kept.mapInArrow(writer, "name string").collect())
    try:
        files = [read_footer(store.files, name, store.about.store) for name in names]
    except FileNotFoundError as error:
        raise StoreError(
            f"a task has written {error.filename} and the driver cannot find it: the store must lie where the driver "
            "and all executors see the same files. Give a store on a shared file system or an object store."
        ) from error
    store.adopt(files)
    return files


def _writer(store: WindowStore, batch_id: int, closed_ms: int | None) -> Callable[[Iterator[Any]], Iterator[Any]]:
    import msgspec  # noqa: PLC0415 - not for tasks

    from slackwater.late.footer import batch_footer  # noqa: PLC0415

    settings, files = store.settings, store.files.elsewhere()
    horizon_ms = max(line for line in (NO_WINDOW + 1, store.horizon_ms, closed_ms) if line is not None)
    heads = {folder: msgspec.to_builtins(batch_footer(settings, batch_id, 0, folder)) for folder in (DATA, DEAD)}
    schema = store.schema.serialize().to_pybytes()
    how: dict[str, Any] = {
        "event_time": settings.event_time,
        "counted": settings.counted,
        "compression": settings.compression,
    }

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext  # noqa: PLC0415 - it runs in a task

        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        wanted = pa.ipc.read_schema(pa.py_buffer(schema))
        held = [batch for batch in batches if batch.num_rows]
        if not held:
            return
        tables = by_window(pa.Table.from_batches(held).select(wanted.names).cast(wanted), WINDOW)
        for folder, chosen in (
            (DATA, [(window, table) for window, table in tables if window >= horizon_ms]),
            (DEAD, [(window, table) for window, table in tables if window < horizon_ms]),
        ):
            if chosen:
                name = batch_name(folder, batch_id, part)
                write_file(files, name, wanted, {**heads[folder], "part": part}, chosen, **how)
                yield pa.RecordBatch.from_pydict({"name": [name]})

    return write
