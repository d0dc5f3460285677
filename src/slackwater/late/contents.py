"""What a store holds, as its process knows it: files by window and batch, which batches count, who reads what. No I/O.

The store guards it: whoever calls has the store's lock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from slackwater.late.errors import StoreError
from slackwater.late.index import DataFile, Index
from slackwater.late.naming import DATA, DEAD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from slackwater.late.index import WindowInfo
    from slackwater.late.recovery import Found


class Contents:
    """`index` has the files of windows, `dead` those of dead letters, by name.

    committed: batches up to this one count. uncommitted: files by batch that an earlier run left; they do not count.
    """

    def __init__(self) -> None:
        self.index = Index()
        self.dead: dict[str, DataFile] = {}
        self.uncommitted: dict[int, set[str]] = {}
        self.committed = -1
        self._reserved: dict[int, set[int]] = defaultdict(set)  # by batch that is not committed: its windows
        self._pinned: Counter[str] = Counter()

    def load(self, found: Found, committed: int) -> None:
        """What a scan has found, instead of all that was known."""
        index = Index()
        for file in found.data:
            index.add(file)
        self.index, self.dead = index, {file.name: file for file in found.dead}
        self.uncommitted = dict(found.uncommitted)
        self._reserved.clear()
        self.committed = committed

    # Batches

    def begin(self, batch_id: int) -> list[str]:
        """The files that earlier attempts at a batch left; its windows are no longer reserved."""
        self._reserved.pop(batch_id, None)
        return self.of_batch(batch_id, DATA) + self.of_batch(batch_id, DEAD)

    def reserve(self, batch_id: int, windows: Iterable[int]) -> None:
        """A batch brings rows for these: they cannot be purged until it is committed."""
        self._reserved[batch_id].update(windows)

    def is_reserved(self, which: Callable[[int], bool]) -> bool:
        return any(which(window) for windows in self._reserved.values() for window in windows)

    def commit(self, batch_id: int) -> None:
        left = sorted(batch for batch in self.uncommitted if batch <= batch_id)
        if left:
            raise StoreError(
                f"batch {left[0]} has files from before this run and was not begun again, so their rows would "
                "count wrongly. Call begin() and write() in every batch, with no rows too."
            )
        self.committed = max(self.committed, batch_id)
        for batch in [batch for batch in self._reserved if batch <= batch_id]:
            del self._reserved[batch]

    # Windows

    def infos(self, purged: Callable[[int], bool]) -> list[WindowInfo]:
        alive = [window for window in self.index.windows() if not purged(window)]
        found = [self.info(window) for window in alive]
        return [info for info in found if info is not None]

    def info(self, window: int) -> WindowInfo | None:
        return self.index.info(window, self.committed)

    def rows_before(self, start_ms: int) -> dict[int, int]:
        """Rows by window, of those that start before."""
        infos = [self.info(window) for window in self.index.windows() if window < start_ms]
        return {info.start_ms: info.rows for info in infos if info is not None}

    def dead_counts(self) -> dict[int, int]:
        """Rows that came too late, by window."""
        counts: Counter[int] = Counter()
        for file in self.dead_files():
            for group in file.groups:
                counts[group.window] += group.rows
        return dict(sorted(counts.items()))

    # Files

    @property
    def disk_bytes(self) -> int:
        """Of the files that hold windows."""
        return sum(file.size for file in self.index.files.values())

    def enlist(self, file: DataFile) -> None:
        if file.name.startswith(f"{DEAD}/"):
            self.dead[file.name] = file
        else:
            self.index.add(file)
        self._leave(file.name)

    def drop(self, names: Iterable[str]) -> None:
        for name in names:
            self.index.drop(name)
            self.dead.pop(name, None)
            self._leave(name)

    def of_batch(self, batch_id: int, folder: str) -> list[str]:
        """Of this run and of earlier ones."""
        ours = self.index.batch_files(batch_id) if folder == DATA else []
        ours += [name for name, file in self.dead.items() if folder == DEAD and file.batch == batch_id]
        before = self.uncommitted.get(batch_id, ())
        return sorted({*ours, *(name for name in before if name.startswith(f"{folder}/"))})

    def counted(self) -> list[DataFile]:
        return [file for file in self.index.files.values() if file.batch <= self.committed]

    def dead_files(self) -> list[DataFile]:
        return [file for file in self.dead.values() if file.batch <= self.committed]

    def pin(self, names: Iterable[str]) -> None:
        """Somebody reads these: they are not collected."""
        self._pinned.update(names)

    def unpin(self, names: Iterable[str]) -> None:
        self._pinned.subtract(names)
        self._pinned += Counter()

    def collect(self, purged: Callable[[int], bool]) -> list[str]:
        """Take out the files in which nothing counts any more and that nobody reads; returns their names."""
        garbage = self.index.garbage(self.committed, purged)
        names = [file.name for file in garbage if not self._pinned[file.name]]
        for name in names:
            self.index.drop(name)
        return names

    def _leave(self, name: str) -> None:
        """A file from before this run is no longer that: it was replaced or deleted."""
        for batch, names in list(self.uncommitted.items()):
            names.discard(name)
            if not names:
                del self.uncommitted[batch]
