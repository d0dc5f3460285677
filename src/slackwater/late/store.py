"""Windows that outlive memory (Aion's p-buckets): rows by window, durable before Spark commits the batch they came in.

Three facts make every crash harmless. Spark runs a batch that it has not committed again, with the same id and the same
rows, so a batch's file is replaced whole and counts only when its batch is committed. A file appears whole or not at
all. And what a deletion removes no longer counted before: a purge is recorded first, and a compacted file names the
batches that it replaces.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from slackwater.errors import ConfigurationError
from slackwater.late import compaction, manifest
from slackwater.late.arrow import pa
from slackwater.late.compaction import CompactionRule
from slackwater.late.contents import Contents
from slackwater.late.errors import PurgedWindowError, StoreError
from slackwater.late.files import Files, files_at
from slackwater.late.footer import Settings, read_groups, write_batch, write_compacted
from slackwater.late.journal import Journal
from slackwater.late.ledger import Emission, Purge
from slackwater.late.naming import DATA, DEAD, JOURNAL, LOCK, MANIFEST, QUARANTINE, TEMPORARY
from slackwater.late.recovery import Problem, newest_surely_committed, quarantine, scan
from slackwater.late.verify import Verified, doubles, read_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from slackwater.late.index import DataFile, Source, WindowInfo
    from slackwater.late.manifest import Kind, Manifest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Opened:
    """What was found. `uncommitted` are batches with files that do not count; Spark will run them again."""

    committed: int
    files: int
    windows: int
    uncommitted: tuple[int, ...]
    swept: int
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Emitted:
    """An execution's number, which grows from one to the next, and the revision of each window in it."""

    number: int
    revisions: dict[int, int]


class WindowStore:
    """A store at a local path or a URI. One process writes it; threads of it may call whatever they like.

    schema: the columns of every window; None: those of the store that is there.
    kind: "rows", or "aggregates" for partial aggregates as rows.
    event_time: the column that the footers' least and greatest event time come from.
    counted: the column that says how many events a row stands for; None: one.
    purpose: what the windows are kept for, in words; a store that was made for something else is refused.
    owner: an id of the query that its checkpoint keeps; another one is refused.

    In each batch: `begin`, then `write` and `dead`; after Spark's commit (at the latest in the next batch) `commit`.
    """

    def __init__(
        self,
        location: str | Path | Files,
        schema: Any = None,
        *,
        kind: Kind | None = None,
        event_time: str | None = None,
        counted: str | None = None,
        purpose: str | None = None,
        owner: str | None = None,
        rule: CompactionRule | None = None,
        fold_after: int = 64,
        compression: str = "zstd",
    ) -> None:
        self.files = location if isinstance(location, Files) else files_at(location)
        self.rule = rule or CompactionRule()
        self._asked = (schema, kind, owner)
        self._event_time = event_time
        self._counted = counted
        self._purpose = purpose
        self._compression = compression
        self._journal = Journal(self.files, fold_after)
        self._held = Contents()
        self._manifest: Manifest | None = None
        self._schema: Any = None
        self._writable = False
        self._lock = threading.RLock()  # guards the fields above; never held while rows are read or written
        self._maintenance = threading.RLock()  # one compaction, purge or emission at a time

    # Opening and closing

    def open(self, committed_batch: int | None = -1, *, read_only: bool = False) -> Opened:
        """Find out what is there; batches after `committed_batch` do not count (-1: none is committed yet).

        committed_batch None: without Spark's commit log, all but the newest batch count.
        read_only: nothing is created, swept or moved, and another process may be writing.
        """
        schema, kind, owner = self._asked
        found_manifest = manifest.load(self.files)
        if found_manifest is None and (read_only or schema is None):
            raise ConfigurationError(
                f"there is no store of windows at {self.files}: store.json is missing. "
                "Give the folder that holds it; a query creates it when it first runs."
            )
        if not read_only:
            if found_manifest is None:
                self._check_empty()
            for folder in ("", DATA, DEAD, JOURNAL, TEMPORARY):
                self.files.make_folder(folder)
            self.files.acquire()
        try:
            if found_manifest is None:
                found_manifest = manifest.create(
                    self.files, schema, kind or "rows", owner, self._event_time, self._counted, self._purpose
                )
            manifest.check(found_manifest, self.files, schema, kind, owner, self._purpose)
            self._manifest = found_manifest
            self._schema = found_manifest.arrow_schema()
            return self._load(found_manifest, committed_batch, read_only=read_only)
        except BaseException:
            self.files.release()
            raise

    def close(self) -> None:
        self.files.release()
        self._manifest, self._writable = None, False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def settings(self) -> Settings:
        """What is needed to write a part of a batch elsewhere; `adopt` takes it in."""
        known = self._opened()
        return Settings(known.store, known.kind, known.event_time, known.counted, self._compression)

    @property
    def schema(self) -> Any:
        self._opened()
        return self._schema

    @property
    def about(self) -> Manifest:
        return self._opened()

    @property
    def committed(self) -> int:
        return self._held.committed

    @property
    def horizon_ms(self) -> int | None:
        """Every window that starts before is gone for good; None: no such line is drawn yet."""
        with self._lock:
            horizon = self._journal.ledger.horizon
            return None if horizon is None else horizon.before

    def own(self, owner: str) -> None:
        """Say whose store it is, once the query's id is known; what has an owner keeps it."""
        with self._lock:
            self._manifest = manifest.own(self.files, self._opened(), owner)

    # Batches

    def begin(self, batch_id: int) -> None:
        """Forget what an attempt at this batch left, parts and dead letters included: it may have routed otherwise."""
        with self._lock:
            self._check_writing(batch_id)
            names = self._held.begin(batch_id)
        self._remove(names)

    def write(self, batch_id: int, tables: Mapping[int, Any], *, part: int | None = None) -> DataFile | None:
        """Rows by window start (ms since the epoch), durable when it returns; None when there are none.

        Writing a batch again replaces it. With `part`, one file of several, and `begin` must come first.
        Raises PurgedWindowError when a window is gone: nothing is written then.
        """
        rows = self._conformed(tables)
        with self._lock:
            self._check_writing(batch_id)
            self._check_alive(rows)
            self._held.reserve(batch_id, rows)
        file = None
        if rows:
            ordered = sorted(rows.items())
            file = write_batch(self.files, self.settings, self._schema, batch_id, ordered, part=part or 0)
            self._enlist(file)
        if part is None:
            self._remove(name for name in self._of_batch(batch_id, DATA) if file is None or name != file.name)
        return file

    def adopt(self, files: Iterable[DataFile]) -> None:
        """Take in parts of a batch that tasks have written, dead letters too."""
        for file in files:
            windows = {group.window: None for group in file.groups}
            with self._lock:
                self._check_writing(file.batch)
                if not file.name.startswith(f"{DEAD}/"):
                    self._check_alive(windows)
                    self._held.reserve(file.batch, windows)
            self._enlist(file)

    def dead(self, batch_id: int, tables: Mapping[int, Any], *, part: int | None = None) -> int:
        """Keep rows that came after their window was purged, by window; returns how many. Replaces like `write`."""
        rows = self._conformed(tables)
        with self._lock:
            self._check_writing(batch_id)
        file = None
        if rows:
            ordered = sorted(rows.items())
            file = write_batch(self.files, self.settings, self._schema, batch_id, ordered, part=part or 0, folder=DEAD)
            self._enlist(file)
        if part is None:
            self._remove(name for name in self._of_batch(batch_id, DEAD) if file is None or name != file.name)
        return sum(table.num_rows for table in rows.values())

    def commit(self, batch_id: int) -> None:
        """Spark has committed this batch: its rows count from now on. Earlier ones are no matter."""
        with self._lock:
            self._opened()
            self._held.commit(batch_id)

    # Windows

    def windows(self) -> list[WindowInfo]:
        with self._lock:
            self._opened()
            alive = [window for window in self._held.index.windows() if not self._journal.ledger.purged(window)]
            found = [self._held.index.info(window, self._held.committed) for window in alive]
        return [info for info in found if info is not None]

    def window(self, window: int) -> WindowInfo | None:
        with self._lock:
            self._opened()
            purged = self._journal.ledger.purged(window)
            return None if purged else self._held.index.info(window, self._held.committed)

    def sources(self, window: int, *, through: int | None = None) -> list[Source]:
        """The row groups of a window in order of batch id; `path` gives what Spark can read."""
        with self._lock:
            self._opened()
            if self._journal.ledger.purged(window):
                return []
            return self._held.index.sources(window, self._held.committed if through is None else through)

    def path(self, source: Source) -> str:
        return self.files.uri(source.file.name)

    @contextmanager
    def reading(self, windows: Iterable[int], *, through: int | None = None) -> Iterator[dict[int, list[Source]]]:
        """The sources of some windows, whose files are not deleted until the block ends."""
        with self._lock:
            sources = {window: self.sources(window, through=through) for window in windows}
            names = {source.file.name for found in sources.values() for source in found}
            self._held.pin(names)
        try:
            yield sources
        finally:
            with self._lock:
                self._held.unpin(names)

    def rows(self, window: int, *, through: int | None = None) -> Iterator[Any]:
        """The record batches of a window, lazily, in order of batch id. Files that it reads wait with their deletion.

        through: count batches up to this one, to see rows of a batch that is being written.
        """
        with self.reading([window], through=through) as sources:
            for source in sources[window]:
                yield from read_groups(self.files, source.file, [source.group.position])

    def read(self, window: int, *, through: int | None = None) -> Any:
        self._opened()
        return pa.Table.from_batches(self.rows(window, through=through), self._schema)

    def dead_counts(self) -> dict[int, int]:
        """Rows that came too late, by window."""
        counts: Counter[int] = Counter()
        for file in self._dead_files():
            for group in file.groups:
                counts[group.window] += group.rows
        return dict(sorted(counts.items()))

    def dead_rows(self) -> Iterator[tuple[int, Any]]:
        """Window and record batch, in order of batch id."""
        for file in sorted(self._dead_files(), key=lambda file: (file.batch, file.part)):
            for group in file.groups:
                for batch in read_groups(self.files, file, [group.position]):
                    yield group.window, batch

    # Upkeep

    def worth_compacting(self, window: int, executions_expected: float) -> bool:
        info = self.window(window)
        return info is not None and self.rule.pays(info, executions_expected)

    def compact(self, window: int, *, through: int | None = None) -> WindowInfo | None:
        """Merge a window's committed rows into one file; None when they are in one already.

        through: those of batches up to this one, so that an execution over these can be repeated as it was.
        """
        with self._maintenance:
            self._check_writable()
            last = None if through is None else min(through, self._held.committed)
            with self.reading([window], through=last) as found:
                sources = found[window]
                if len({source.file.name for source in sources}) < 2:
                    return None
                batches = (
                    batch
                    for source in sources
                    for batch in read_groups(self.files, source.file, [source.group.position])
                )
                merged = compaction.tables(batches)
                replaces = compaction.replaced(sources)
                file = write_compacted(self.files, self.settings, self._schema, window, merged, replaces)
                with self._lock:
                    self._held.index.add(file)
            self.collect()
            return self.window(window)

    def is_purged(self, window: int) -> bool:
        with self._lock:
            return self._journal.ledger.purged(window)

    def purge(self, window: int) -> bool:
        """Drop a window for good. False when a batch that is not committed brings rows for it: try after the commit."""
        with self._maintenance:
            self._check_writable()
            with self._lock:
                if self._journal.ledger.purged(window):
                    return True
                if self._held.is_reserved(lambda brought: brought == window):
                    return False
                info = self._held.index.info(window, self._held.committed)
                self._journal.append([Purge(window, info.rows if info else 0)])
            self.collect()
            return True

    def purge_before(self, start_ms: int) -> bool:
        """Drop every window that starts before, those that never had rows too, and all that is remembered of them.

        Keeps the journal small in a stream without end. False as with `purge`.
        """
        with self._maintenance:
            self._check_writable()
            with self._lock:
                ledger = self._journal.ledger
                if ledger.horizon is not None and start_ms <= ledger.horizon.before:
                    return True
                if self._held.is_reserved(lambda brought: brought < start_ms):
                    return False
                index, committed = self._held.index, self._held.committed
                infos = [index.info(window, committed) for window in index.windows() if window < start_ms]
                dropped = {info.start_ms: info.rows for info in infos if info is not None}
                self._journal.append([ledger.horizon_at(start_ms, dropped)])
            self.collect()
            return True

    def collect(self) -> int:
        """Delete files in which nothing counts any more and that nobody is reading; returns how many."""
        with self._maintenance:
            self._check_writable()
            with self._lock:
                names = self._held.collect(self._journal.ledger.purged)
            self.files.remove_all(names)
            return len(names)

    def verify(self) -> Verified:
        """Read every file of committed batches, and compare it with the footers."""
        with self._maintenance:  # nothing is deleted meanwhile
            with self._lock:
                listed = [*self._held.counted(), *self._dead_files()]
            found = read_all(self.files, sorted(listed, key=lambda file: file.name))
            with self._lock:
                doubles(self._held.index, found)
        return found

    # Emissions

    def emit(self, windows: Iterable[int], kind: str, execution: str) -> Emitted:
        """Record the results of an execution *before* they go out. One that is repeated has the numbers that it had.

        Before, because then a crash leaves a gap in the numbers, and never two results with the same one.
        """
        with self._maintenance:
            self._check_writable()
            with self._lock:
                ledger = self._journal.ledger
                known = {window: ledger.known(window, execution) for window in windows}
                number = max((emission.number for emission in known.values() if emission), default=ledger.number + 1)
                fresh = [
                    Emission(window, ledger.next_revision(window), kind, execution, number)
                    for window, emission in known.items()
                    if emission is None
                ]
                gone = sorted(emission.window for emission in fresh if ledger.purged(emission.window))
                if gone:
                    raise PurgedWindowError(gone)
                if fresh:
                    self._journal.append(fresh)
                found = [*(emission for emission in known.values() if emission), *fresh]
                return Emitted(number, {emission.window: emission.revision for emission in found})

    def revision(self, window: int) -> int:
        """Of the window's last result; 0 before the first."""
        with self._lock:
            self._opened()
            return self._journal.ledger.next_revision(window) - 1

    def emissions(self, window: int) -> list[Emission]:
        with self._lock:
            found = self._journal.ledger.emissions.get(window, {}).values()
            return sorted(found, key=lambda emission: emission.revision)

    @property
    def disk_bytes(self) -> int:
        """Of the files that hold windows."""
        with self._lock:
            return sum(file.size for file in self._held.index.files.values())

    def facts(self) -> dict[str, Any]:
        """The store in figures."""
        with self._lock:
            known, ledger = self._opened(), self._journal.ledger
            windows = self.windows()
            data = list(self._held.index.files.values())
            return {
                "kind": known.kind,
                "owner": known.owner,
                "format": known.format,
                "committed_batch": self._held.committed,
                "windows": len(windows),
                "rows": sum(info.rows for info in windows),
                "bytes": sum(info.bytes for info in windows),
                "files": len(data),
                "compacted_files": sum(file.replaces is not None for file in data),
                "disk_bytes": self.disk_bytes,
                "uncommitted_batches": sorted(self._held.uncommitted),
                "purged_windows": ledger.purged_windows,
                "purged_rows": ledger.purged_rows,
                "purged_before_ms": ledger.horizon.before if ledger.horizon else None,
                "dead_rows": sum(self.dead_counts().values()),
                "dead_files": len(self._held.dead),
                "emissions": sum(len(found) for found in ledger.emissions.values()),
                "quarantined_files": len(self.files.listed(QUARANTINE)),
            }

    # Within

    def _check_empty(self) -> None:
        """A new store goes into a folder of its own; what a crash left while creating one is no matter."""
        if any(self.files.listed(folder) for folder in (DATA, DEAD, JOURNAL)):
            raise StoreError(
                f"{self.files} holds files of a store, but store.json is missing. Restore it from a backup, "
                "or use a new location."
            )
        strangers = self.files.names("") - {DATA, DEAD, JOURNAL, TEMPORARY, LOCK, MANIFEST}
        if strangers:
            raise ConfigurationError(
                f"{self.files} is not empty and holds no store: {min(strangers)!r} is there. Give a folder of its own."
            )

    def _load(self, known: Manifest, committed: int | None, *, read_only: bool) -> Opened:
        if committed is None:
            committed = newest_surely_committed(self.files)
        found = scan(self.files, known.store, committed, attempts=5 if read_only else 1)
        lost: list[Problem] = []
        self._journal.load(lambda name, reason: lost.append(Problem(name, reason)))
        with self._lock:
            self._held.load(found, committed)
            self._writable = not read_only
        problems = found.problems + lost
        swept = 0
        if not read_only:
            problems = [quarantine(self.files, each) if each.name else each for each in problems]
            self.files.remove_all(found.temporary)
            if lost:
                self._journal.fold()
            swept = len(found.temporary) + self.collect()
        for problem in () if read_only else problems:
            where = f", moved to {problem.moved_to}" if problem.moved_to else ""
            log.warning("%s: %s%s", self.files, problem.reason, where)
        waiting = tuple(sorted(self._held.uncommitted))
        if len(waiting) > 1 and not read_only:
            log.warning("%s: batches %s are not committed; is this the query's own checkpoint?", self.files, waiting)
        return Opened(committed, len(self._held.index.files), len(self.windows()), waiting, swept, tuple(problems))

    def _opened(self) -> Manifest:
        if self._manifest is None:
            raise StoreError(f"the store at {self.files} is not open. Call open(committed_batch) first.")
        return self._manifest

    def _check_writable(self) -> None:
        self._opened()
        if not self._writable:
            raise StoreError(f"the store at {self.files} is open for reading only.")

    def _check_writing(self, batch_id: int) -> None:
        self._check_writable()
        if batch_id <= self._held.committed:
            raise StoreError(
                f"batch {batch_id} cannot be written: batches up to {self._held.committed} are committed, and Spark "
                "does not run them again. Is the query's checkpoint another one than before?"
            )

    def _check_alive(self, windows: Mapping[int, object]) -> None:
        gone = sorted(window for window in windows if self._journal.ledger.purged(window))
        if gone:
            raise PurgedWindowError(gone)

    def _conformed(self, tables: Mapping[int, Any]) -> dict[int, Any]:
        """Windows without rows left out; columns in the store's order and of its types."""
        self._opened()
        found = {}
        for window, table in tables.items():
            if not table.num_rows:
                continue
            if table.schema.equals(self._schema, check_metadata=False):
                found[window] = table
                continue
            try:
                found[window] = table.select(self._schema.names).cast(self._schema)
            except (pa.ArrowException, KeyError, ValueError) as error:
                raise StoreError(
                    f"rows of window {window} do not fit the store's columns: {error}. The store holds:\n"
                    f"{self._opened().schema_text}"
                ) from error
        return found

    def _enlist(self, file: DataFile) -> None:
        with self._lock:
            self._held.enlist(file)

    def _of_batch(self, batch_id: int, folder: str) -> list[str]:
        with self._lock:
            return self._held.of_batch(batch_id, folder)

    def _remove(self, names: Iterable[str]) -> None:
        names = list(names)
        self.files.remove_all(names)
        with self._lock:
            self._held.drop(names)

    def _dead_files(self) -> list[DataFile]:
        with self._lock:
            self._opened()
            return self._held.dead_files()
