"""Which row groups hold a window. No I/O: files in, answers out.

A batch's file counts when its batch is committed. A compacted file stands for one window and names the batches that it
replaces: row groups of these batches no longer count for this window, whether or not they have been deleted yet. That
one rule makes every moment between "compacted" and "originals deleted" a valid state.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class Group:
    """A row group: rows of one window. `bytes` in memory, `disk_bytes` compressed; `events` that the rows stand for."""

    position: int
    window: int
    rows: int
    bytes: int
    disk_bytes: int
    event_ms_min: int | None
    event_ms_max: int | None
    events: int


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file as its footer describes it.

    batch: whose rows it holds; of a compacted file, the last batch that it replaces.
    replaces: rows by batch, of a compacted file; None for a batch's own file.
    """

    name: str
    size: int
    batch: int
    part: int
    groups: tuple[Group, ...]
    replaces: dict[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """Where a part of a window lies."""

    file: DataFile
    group: Group


@dataclass(frozen=True, slots=True)
class WindowInfo:
    """A window as the store holds it."""

    start_ms: int
    rows: int
    bytes: int
    disk_bytes: int
    files: int
    first_batch: int
    last_batch: int
    event_ms_min: int | None
    event_ms_max: int | None
    events: int


@dataclass(slots=True)
class Index:
    files: dict[str, DataFile] = field(default_factory=dict)
    _of_window: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    _compacted: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, file: DataFile) -> None:
        """A file of the same name is replaced."""
        self.drop(file.name)
        self.files[file.name] = file
        where = self._of_window if file.replaces is None else self._compacted
        for group in file.groups:
            where[group.window].add(file.name)

    def drop(self, name: str) -> None:
        file = self.files.pop(name, None)
        if file is None:
            return
        where = self._of_window if file.replaces is None else self._compacted
        for window in {group.window for group in file.groups}:
            where[window].discard(name)
            if not where[window]:
                del where[window]

    def batch_files(self, batch_id: int) -> list[str]:
        return sorted(name for name, file in self.files.items() if file.replaces is None and file.batch == batch_id)

    def compacted(self, window: int) -> DataFile | None:
        """The compacted file that counts: the one that replaces most."""
        found = [self.files[name] for name in self._compacted.get(window, ())]
        return max(found, key=lambda file: (len(file.replaces or ()), file.batch), default=None)

    def sources(self, window: int, through: int) -> list[Source]:
        """The row groups of a window, in order of batch id."""
        merged = self.compacted(window)
        replaced = (merged.replaces or {}) if merged else {}
        single = [self.files[name] for name in self._of_window.get(window, ())]
        single = [file for file in single if file.batch <= through and file.batch not in replaced]
        ordered = ([merged] if merged else []) + sorted(single, key=lambda file: (file.batch, file.part))
        return [Source(file, group) for file in ordered for group in file.groups if group.window == window]

    def windows(self) -> list[int]:
        return sorted(self._of_window.keys() | self._compacted.keys())

    def info(self, window: int, through: int) -> WindowInfo | None:
        sources = self.sources(window, through)
        if not sources:
            return None
        batches = {batch for source in sources for batch in (source.file.replaces or {source.file.batch: 0})}
        groups = [source.group for source in sources]
        return WindowInfo(
            start_ms=window,
            rows=sum(group.rows for group in groups),
            bytes=sum(group.bytes for group in groups),
            disk_bytes=sum(group.disk_bytes for group in groups),
            files=len({source.file.name for source in sources}),
            first_batch=min(batches),
            last_batch=max(batches),
            event_ms_min=min((g.event_ms_min for g in groups if g.event_ms_min is not None), default=None),
            event_ms_max=max((g.event_ms_max for g in groups if g.event_ms_max is not None), default=None),
            events=sum(group.events for group in groups),
        )

    def garbage(self, through: int, purged: Callable[[int], bool]) -> Iterator[DataFile]:
        """Committed files in which nothing counts any more: each window is purged, or is in a compacted file."""
        for file in self.files.values():
            if file.batch <= through and not any(self._counts(file, g.window, purged) for g in file.groups):
                yield file

    def _counts(self, file: DataFile, window: int, purged: Callable[[int], bool]) -> bool:
        if purged(window):
            return False
        merged = self.compacted(window)
        if merged is None or merged.name == file.name:
            return True
        covered = (merged.replaces or {}).keys()
        return not (covered >= file.replaces.keys() if file.replaces is not None else file.batch in covered)
