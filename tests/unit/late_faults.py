"""Files that stop the world: at a step of their choice, before it, after it, or in the middle of a write.

A power cut is a crash that takes along what was not synced: files lose their content, renames and deletions of a folder
that was not synced are undone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pafs

from slackwater.late.files import Files

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


class Crash(BaseException):
    """Not an Exception: no handler of the code under test may survive it."""


@dataclass
class Faults:
    """Counts steps and crashes at one of them; `steps` tells afterwards what could have been stopped."""

    at: int | None = None
    steps: list[str] = field(default_factory=list)

    def step(self, what: str) -> None:
        self.steps.append(what)
        if self.at is not None and len(self.steps) - 1 == self.at:
            raise Crash(what)


class FaultyFiles(Files):
    def __init__(self, root: Path, faults: Faults | None = None, *, rename: bool | None = None) -> None:
        super().__init__(pafs.LocalFileSystem(), str(root), rename=rename)
        self.faults = faults or Faults()
        self._unsynced: set[Path] = set()
        self._undo: dict[str, list[Callable[[], object]]] = {}

    def write(self, name: str, produce: Callable[[Any], None]) -> None:
        self.faults.step(f"before write {name}")
        sink = pa.BufferOutputStream()
        produce(sink)
        content = sink.getvalue().to_pybytes()
        path = Path(self.path(name))
        self._unsynced.add(path)
        path.write_bytes(content[: len(content) // 2])
        self.faults.step(f"in write {name}")
        path.write_bytes(content)
        self.faults.step(f"after write {name}")
        if not self.rename_into_place:
            self._unsynced.discard(path)

    def sync(self, name: str) -> None:
        self.faults.step(f"before sync {name}")
        self._unsynced.discard(Path(self.path(name)))
        self.faults.step(f"after sync {name}")

    def rename(self, name: str, to: str) -> None:
        source, target = Path(self.path(name)), Path(self.path(to))
        content, old = source.read_bytes(), target.read_bytes() if target.exists() else None
        self.faults.step(f"before rename {to}")
        super().rename(name, to)
        if source in self._unsynced:
            self._unsynced.add(target)

        def undo() -> None:
            source.write_bytes(content)
            target.unlink(missing_ok=True) if old is None else target.write_bytes(old)

        self._undo.setdefault(to.rpartition("/")[0], []).append(undo)
        self.faults.step(f"after rename {to}")

    def remove(self, name: str) -> None:
        path = Path(self.path(name))
        content = path.read_bytes() if path.exists() else None
        self.faults.step(f"before remove {name}")
        super().remove(name)
        if content is not None:
            undo = self._undo.setdefault(name.rpartition("/")[0], [])
            undo.append(lambda: path.write_bytes(content))
        self.faults.step(f"after remove {name}")

    def sync_folder(self, folder: str) -> None:
        self.faults.step(f"before sync folder {folder}")
        self._undo.pop(folder, None)
        self.faults.step(f"after sync folder {folder}")

    def make_folder(self, folder: str) -> None:
        if self.exists(folder):
            return
        self.faults.step(f"before folder {folder}")
        super().make_folder(folder)
        self.faults.step(f"after folder {folder}")

    def cut_power(self, chance: random.Random | None = None) -> None:
        """With `chance`, some of what was not synced made it to the disk all the same."""
        for undo in [undo for undos in self._undo.values() for undo in reversed(undos)]:
            if chance is None or chance.random() < 0.5:
                undo()
        for path in self._unsynced:
            if path.exists():
                path.write_bytes(b"")
