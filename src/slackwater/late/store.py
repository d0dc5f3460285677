"""Windows that outlive memory (Aion's p-buckets): rows by window, durable before Spark commits the batch they came in.

Three facts make every crash harmless. Spark runs a batch that it has not committed again, with the same id and the same
rows, so a batch's file is replaced whole and counts only when its batch is committed. A file appears whole or not at
all. And what a deletion removes no longer counted before: a purge is recorded first, and a compacted file names the
batches that it replaces.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from slackwater.late import compaction, manifest, opening
from slackwater.late.arrow import pa
from slackwater.late.compaction import CompactionRule
from slackwater.late.contents import Contents
from slackwater.late.errors import PurgedWindowError, StoreError
from slackwater.late.figures import facts_of
from slackwater.late.files import Files, files_at
from slackwater.late.footer import Settings, conformed, read_groups, write_batch, write_compacted
from slackwater.late.journal import Journal
from slackwater.late.ledger import Emitted, Purge
from slackwater.late.naming import DATA, DEAD, QUARANTINE
from slackwater.late.recovery import Problem, newest_surely_committed, put_aside, scan
from slackwater.late.verify import Verified, doubles, read_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from slackwater.late.index import DataFile, Source, WindowInfo
    from slackwater.late.ledger import Emission
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
        self._wanted = opening.Wanted(schema, kind, event_time, counted, purpose, owner)
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
        known = opening.claim(self.files, self._wanted, read_only=read_only)
        try:
            self._manifest, self._schema = known, known.arrow_schema()
            return self._load(known, committed_batch, read_only=read_only)
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
        rows = conformed(tables, self.schema, self.about.schema_text)
        with self._lock:
            self._check_writing(batch_id)
            self._check_alive(rows)
            self._held.reserve(batch_id, rows)
        return self._replace(batch_id, rows, DATA, part)

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
        rows = conformed(tables, self.schema, self.about.schema_text)
        with self._lock:
            self._check_writing(batch_id)
        self._replace(batch_id, rows, DEAD, part)
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
            return self._held.infos(self._journal.ledger.purged)

    def window(self, window: int) -> WindowInfo | None:
        with self._lock:
            self._opened()
            return None if self._journal.ledger.purged(window) else self._held.info(window)

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
            yield from self._batches(sources[window])

    def read(self, window: int, *, through: int | None = None) -> Any:
        self._opened()
        return pa.Table.from_batches(self.rows(window, through=through), self._schema)

    def dead_counts(self) -> dict[int, int]:
        """Rows that came too late, by window."""
        with self._lock:
            self._opened()
            return self._held.dead_counts()

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
                merged = compaction.tables(self._batches(sources))
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
                info = self._held.info(window)
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
                self._journal.append([ledger.horizon_at(start_ms, self._held.rows_before(start_ms))])
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
                emitted, fresh = self._journal.ledger.emission(windows, kind, execution)
                if fresh:
                    self._journal.append(fresh)
                return emitted

    def revision(self, window: int) -> int:
        """Of the window's last result; 0 before the first."""
        with self._lock:
            self._opened()
            return self._journal.ledger.next_revision(window) - 1

    def emissions(self, window: int) -> list[Emission]:
        with self._lock:
            return self._journal.ledger.emissions_of(window)

    @property
    def disk_bytes(self) -> int:
        """Of the files that hold windows."""
        with self._lock:
            return self._held.disk_bytes

    def facts(self) -> dict[str, Any]:
        """The store in figures."""
        with self._lock:
            known, quarantined = self._opened(), len(self.files.listed(QUARANTINE))
            return facts_of(known, self._held, self._journal.ledger, quarantined_files=quarantined)

    # Within

    def _load(self, known: Manifest, committed: int | None, *, read_only: bool) -> Opened:
        if committed is None:
            committed = newest_surely_committed(self.files)
        found = scan(self.files, known.store, committed, attempts=5 if read_only else 1)
        lost: list[Problem] = []
        self._journal.load(lambda name, reason: lost.append(Problem(name, reason)))
        with self._lock:
            self._held.load(found, committed)
            self._writable = not read_only
        problems, swept = found.problems + lost, 0
        if not read_only:
            problems = put_aside(self.files, problems)
            self.files.remove_all(found.temporary)
            if lost:
                self._journal.fold()
            swept = len(found.temporary) + self.collect()
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

    def _replace(self, batch_id: int, rows: Mapping[int, Any], folder: str, part: int | None) -> DataFile | None:
        """A batch's file in a folder; without `part`, instead of all that earlier attempts left there."""
        file = None
        if rows:
            ordered = sorted(rows.items())
            file = write_batch(
                self.files, self.settings, self._schema, batch_id, ordered, part=part or 0, folder=folder
            )
            self._enlist(file)
        if part is None:
            with self._lock:
                names = self._held.of_batch(batch_id, folder)
            self._remove(name for name in names if file is None or name != file.name)
        return file

    def _batches(self, sources: Iterable[Source]) -> Iterator[Any]:
        for source in sources:
            yield from read_groups(self.files, source.file, [source.group.position])

    def _enlist(self, file: DataFile) -> None:
        with self._lock:
            self._held.enlist(file)

    def _remove(self, names: Iterable[str]) -> None:
        names = list(names)
        self.files.remove_all(names)
        with self._lock:
            self._held.drop(names)

    def _dead_files(self) -> list[DataFile]:
        with self._lock:
            self._opened()
            return self._held.dead_files()
