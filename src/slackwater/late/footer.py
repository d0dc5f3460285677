"""The Parquet files of a store: a row group for each window, and a footer that says which.

The footer alone rebuilds the index. It is read apart from the data (a few kB from the end of the file), parsed in
memory: what fails there is damage, what fails while reading is the file system's trouble.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from slackwater.late.arrow import pa, pq
from slackwater.late.errors import DamagedFileError, NewerFormatError, StoreError
from slackwater.late.index import DataFile, Group
from slackwater.late.naming import batch_name, batch_of, compacted_name, compaction_of
from slackwater.late.writing import KEY, write_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from slackwater.late.files import Files

FORMAT: Final = 1
_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 64 * 1024

Role = Literal["batch", "compacted", "dead"]


class GroupEntry(msgspec.Struct, frozen=True):
    window: int
    rows: int
    bytes: int
    event_ms_min: int | None = None
    event_ms_max: int | None = None
    events: int | None = None


class Footer(msgspec.Struct, frozen=True, kw_only=True):
    """`replaces` are pairs of batch id and rows."""

    format: int = FORMAT
    store: str
    kind: str
    role: Role
    batch: int
    part: int = 0
    groups: list[GroupEntry]
    replaces: list[tuple[int, int]] = []


class _Format(msgspec.Struct):
    format: int


class Settings(msgspec.Struct, frozen=True):
    """What writing a file needs."""

    store: str
    kind: str
    event_time: str | None = None
    counted: str | None = None
    compression: str = "zstd"


def conformed(tables: Mapping[int, Any], schema: Any, schema_text: str) -> dict[int, Any]:
    """Windows without rows left out; columns in the store's order and of its types."""
    found = {}
    for window, table in tables.items():
        if not table.num_rows:
            continue
        if table.schema.equals(schema, check_metadata=False):
            found[window] = table
            continue
        try:
            found[window] = table.select(schema.names).cast(schema)
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise StoreError(
                f"rows of window {window} do not fit the store's columns: {error}. The store holds:\n{schema_text}"
            ) from error
    return found


def write_batch(
    files: Files,
    settings: Settings,
    schema: Any,
    batch_id: int,
    tables: Iterable[tuple[int, Any]],
    *,
    part: int = 0,
    folder: str = "data",
) -> DataFile:
    """A batch's file, in place of one that an earlier attempt left; `tables` pairs of window and rows."""
    footer = batch_footer(settings, batch_id, part, folder)
    return _write(files, batch_name(folder, batch_id, part), settings, schema, footer, tables)


def batch_footer(settings: Settings, batch_id: int, part: int, folder: str) -> Footer:
    role: Role = "dead" if folder == "dead" else "batch"
    return Footer(store=settings.store, kind=settings.kind, role=role, batch=batch_id, part=part, groups=[])


def write_compacted(
    files: Files, settings: Settings, schema: Any, window: int, tables: Iterable[Any], replaces: dict[int, int]
) -> DataFile:
    """A file that stands for a window's rows of the batches in `replaces` (rows by batch)."""
    through = max(replaces)
    footer = Footer(
        store=settings.store,
        kind=settings.kind,
        role="compacted",
        batch=through,
        groups=[],
        replaces=sorted(replaces.items()),
    )
    pairs = ((window, table) for table in tables)
    return _write(files, compacted_name(window, through), settings, schema, footer, pairs)


def _write(
    files: Files, name: str, settings: Settings, schema: Any, footer: Footer, tables: Iterable[tuple[int, Any]]
) -> DataFile:
    write_file(
        files,
        name,
        schema,
        msgspec.to_builtins(footer),
        tables,
        event_time=settings.event_time,
        counted=settings.counted,
        compression=settings.compression,
    )
    return read_footer(files, name, settings.store)


def read_footer(files: Files, name: str, store: str) -> DataFile:
    """Raises DamagedFileError for what is not a whole file of this store, NewerFormatError for a later format."""
    with files.open(name) as source:
        size = int(source.size())
        tail = bytes(source.read_at(min(size, _TAIL_BYTES), size - min(size, _TAIL_BYTES)))
        length = int.from_bytes(tail[-8:-4], "little") + 8 if len(tail) > 8 else 0
        if tail[-4:] != _MAGIC or length > size:
            raise DamagedFileError(f"{name}: not a complete Parquet file ({size} bytes, no footer at its end)")
        if length > len(tail):
            tail = bytes(source.read_at(length, size - length))
    try:
        metadata = pq.read_metadata(pa.BufferReader(tail[-length:]))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DamagedFileError(f"{name}: its footer cannot be read: {error}") from error
    return _described(name, size, size - length, metadata, _own_footer(name, metadata), store)


def _own_footer(name: str, metadata: Any) -> Footer:
    text = (metadata.metadata or {}).get(KEY)
    if text is None:
        raise DamagedFileError(f"{name}: a Parquet file that no store wrote")
    try:
        if (found := msgspec.json.decode(text, type=_Format).format) > FORMAT:
            raise NewerFormatError(
                f"{name} has format {found}, and this version of Slackwater reads formats up to {FORMAT}. "
                "Nothing was changed. Use the newer version."
            )
        return msgspec.json.decode(text, type=Footer)
    except msgspec.DecodeError as error:
        raise DamagedFileError(f"{name}: its footer does not say what it holds: {error}") from error


def _described(name: str, size: int, data_end: int, metadata: Any, footer: Footer, store: str) -> DataFile:
    if footer.store != store:
        raise DamagedFileError(f"{name}: belongs to another store ({footer.store}, this one is {store})")
    compacted = footer.role == "compacted"
    named = compaction_of(name) if compacted else batch_of(name)
    windows = {entry.window for entry in footer.groups}
    if named != ((min(windows, default=0), footer.batch) if compacted else (footer.batch, footer.part)):
        raise DamagedFileError(f"{name}: its name does not fit its footer (batch {footer.batch}, part {footer.part})")
    if (footer.role == "dead") != name.startswith("dead/") or (compacted and len(windows) != 1):
        raise DamagedFileError(f"{name}: in the wrong place for what it is ({footer.role})")
    parts = [metadata.row_group(position) for position in range(metadata.num_row_groups)]
    if [part.num_rows for part in parts] != [entry.rows for entry in footer.groups]:
        raise DamagedFileError(f"{name}: its row groups are not those that its footer lists")
    groups = []
    for position, (part, entry) in enumerate(zip(parts, footer.groups, strict=True)):
        columns = [part.column(column) for column in range(part.num_columns)]
        disk_bytes = sum(column.total_compressed_size for column in columns)
        ends = [_start(column) + column.total_compressed_size for column in columns]
        if max(ends, default=0) > data_end:
            raise DamagedFileError(f"{name}: shorter than its footer says ({size} bytes)")
        span = (entry.event_ms_min, entry.event_ms_max)
        events = entry.rows if entry.events is None else entry.events
        groups.append(Group(position, entry.window, entry.rows, entry.bytes, disk_bytes, *span, events))
    replaces = dict(footer.replaces) if compacted else None
    if replaces is not None and (not replaces or sum(replaces.values()) != sum(group.rows for group in groups)):
        raise DamagedFileError(f"{name}: its rows are not as many as those of the batches that it replaces")
    return DataFile(name, size, footer.batch, footer.part, tuple(groups), replaces)


def _start(column: Any) -> int:
    first = column.dictionary_page_offset
    return int(column.data_page_offset if first is None else min(first, column.data_page_offset))


def read_groups(files: Files, file: DataFile, positions: list[int], batch_rows: int = 65_536) -> Iterator[Any]:
    """The record batches of row groups, one after the other, with their checksums compared."""
    try:
        with files.open(file.name) as source:
            opened = pq.ParquetFile(source, page_checksum_verification=True)
            yield from opened.iter_batches(batch_rows, row_groups=positions)
    except FileNotFoundError as error:
        raise DamagedFileError(
            f"{file.name} is gone, and not by this store's doing. Restore it, or open the store again without it."
        ) from error
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DamagedFileError(
            f"{file.name} cannot be read: {error}. `slackwater late verify` names every file that is damaged."
        ) from error
