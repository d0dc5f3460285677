"""What was changed, on disk before it is changed, so that it can be put back after a crash.

One small file, replaced as a whole: every write is a new file, synced and renamed over the old one. Names of processes
and threads hold for one boot; so does everything that translators change, and a journal of an earlier boot is empty.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from slackwater.errors import EnforcementError
from slackwater.translators.identity import ProcessId, ThreadId
from slackwater.translators.processes import Proc

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

FORMAT: Final = 1


class NicedProcess(msgspec.Struct, frozen=True):
    """A process with threads whose nice is ours.

    former: its main thread's nice before; what its threads and children inherited since `since_ticks` goes back to it,
    recognised by one of the values that were `given`.
    """

    pid: int
    started_ticks: int
    former: int
    since_ticks: int
    given: tuple[int, ...] = ()

    @property
    def id(self) -> ProcessId:
        return ProcessId(self.pid, self.started_ticks)


class NicedThread(msgspec.Struct, frozen=True):
    pid: int
    tid: int
    started_ticks: int
    former: int

    @property
    def id(self) -> ThreadId:
        return ThreadId(self.pid, self.tid, self.started_ticks)


class MovedProcess(msgspec.Struct, frozen=True):
    """A process that was moved with all its threads, and the group that it came from (a folder)."""

    pid: int
    started_ticks: int
    former: str

    @property
    def id(self) -> ProcessId:
        return ProcessId(self.pid, self.started_ticks)


class MovedThread(msgspec.Struct, frozen=True):
    """A thread that sat, or has to sit, in another group than its process (cgroup v1)."""

    pid: int
    tid: int
    started_ticks: int
    former: str

    @property
    def id(self) -> ThreadId:
        return ThreadId(self.pid, self.tid, self.started_ticks)


class MadeGroup(msgspec.Struct, frozen=True):
    """A group of ours; `home` is where its first process came from, for members whose origin nothing tells."""

    folder: str
    home: str


class Entries(msgspec.Struct, frozen=True):
    """All that is to be put back."""

    niced_processes: tuple[NicedProcess, ...] = ()
    niced_threads: tuple[NicedThread, ...] = ()
    moved_processes: tuple[MovedProcess, ...] = ()
    moved_threads: tuple[MovedThread, ...] = ()
    groups: tuple[MadeGroup, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__struct_fields__)


class _File(msgspec.Struct):
    format: int
    boot: str
    sha256: str
    entries: msgspec.Raw


class Journal:
    """The entries, in memory and on disk. One process at a time has it open; a lock says so, and dies with it."""

    def __init__(self, path: Path, lock: int, boot: str, entries: Entries) -> None:
        self.path = path
        self.entries = entries
        self._lock: int | None = lock
        self._boot = boot

    @classmethod
    def open(cls, path: Path, proc: Proc | None = None) -> Self:
        """Take the journal, with what an earlier run left in it. `start` is for those who mean to change things."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        boot = (proc or Proc()).setting("kernel/random/boot_id") or ""
        lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise EnforcementError(
                f"the journal {path} is in use: another Slackwater enforces priorities with it. Stop that one first, "
                "or give this one a journal and a parent group of its own."
            ) from None
        try:
            return cls(path, lock, boot, _load(path, boot))
        except BaseException:
            os.close(lock)
            raise

    def update(self, change: Callable[[Entries], Entries]) -> None:
        """Replace the entries; they are on disk when it returns. Nothing is written where nothing changes."""
        if self._lock is None:
            raise EnforcementError(f"the journal {self.path} is closed. Open it again with start().")
        changed = change(self.entries)
        if changed == self.entries:
            return
        if changed:
            _replace(self.path, self._boot, changed)
        else:
            self.path.unlink(missing_ok=True)
            _sync_folder(self.path.parent)
        self.entries = changed

    def close(self) -> None:
        """Let others have it. What is in it stays."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def default_path() -> Path:
    """In memory that a reboot clears: /run/slackwater for root, else the user's own runtime folder."""
    if os.geteuid() == 0:
        return Path("/run/slackwater/translators.json")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    own = Path(runtime) if runtime else Path(tempfile.gettempdir()) / f"slackwater-{os.geteuid()}"
    return own / "slackwater" / "translators.json"


def _load(path: Path, boot: str) -> Entries:
    try:
        found = path.stat()
        content = path.read_bytes()
    except FileNotFoundError:
        return Entries()
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise EnforcementError(
            f"the journal {path} could have been written by somebody else (owner {found.st_uid}, mode "
            f"{stat.filemode(found.st_mode)}), and what it says is done with this user's rights. Nothing was changed. "
            "Look at it, then remove it, or give it to this user alone."
        )
    try:
        file = msgspec.json.decode(content, type=_File)
        if file.format > FORMAT:
            raise EnforcementError(
                f"the journal {path} has format {file.format}, and this version of Slackwater reads formats up to "
                f"{FORMAT}. Nothing was changed. Use the newer version to restore."
            )
        if file.sha256 != hashlib.sha256(file.entries).hexdigest():
            raise _damaged(path, content, "its checksum is wrong")
        # The numbers of an earlier boot's processes are others' by now, and its groups went with it.
        return msgspec.json.decode(file.entries, type=Entries) if file.boot == boot else Entries()
    except msgspec.DecodeError as error:
        raise _damaged(path, content, str(error)) from error


def _damaged(path: Path, content: bytes, why: str) -> EnforcementError:
    return EnforcementError(
        f"the journal {path} is damaged: {why} ({len(content)} bytes). Nothing was changed. Put back by hand what an "
        "earlier run left (`renice`, processes in the group slackwater), then remove the file."
    )


def _replace(path: Path, boot: str, entries: Entries) -> None:
    body = msgspec.json.encode(entries)
    content = msgspec.json.encode(_File(FORMAT, boot, hashlib.sha256(body).hexdigest(), msgspec.Raw(body)))
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
