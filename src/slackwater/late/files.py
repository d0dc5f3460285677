"""Everything that touches a file system: a dozen small operations, so that a test can stop the world at each of them.

Where files can be renamed (local disks, HDFS), a file is written under a temporary name, synced and renamed. Object
stores have no rename, and show an object only when it is complete: there it is written under its own name.
"""

from __future__ import annotations

import errno
import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from slackwater.errors import ConfigurationError
from slackwater.late.arrow import pa, pafs
from slackwater.late.errors import StoreError
from slackwater.late.naming import LOCK, TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_HADOOP_SCHEMES = {"s3": "s3a", "gcs": "gs"}


class Listed(NamedTuple):
    """A file as a folder lists it; `name` is relative to the root."""

    name: str
    size: int


class Files:
    """A root on a pyarrow file system. Names are relative to it, with `/`; nothing outside it is touched.

    rename: whether a file moves into place when it is complete; None: by the kind of file system.
    temporary: the folder for files that are not complete.
    """

    def __init__(self, filesystem: Any, root: str, *, rename: bool | None = None, temporary: str = TEMPORARY) -> None:
        self.filesystem = filesystem
        self.root = root.rstrip("/")
        self.local = filesystem.type_name == "local"
        self.rename_into_place = filesystem.type_name in {"local", "hdfs"} if rename is None else rename
        self.temporary = temporary
        self._lock_fd: int | None = None

    def __str__(self) -> str:
        return self.root if self.local else f"{self.filesystem.type_name}://{self.root}"

    def put(self, name: str, produce: Callable[[Any], None]) -> None:
        """Write a whole file: after it returns the file is there for good; when it doesn't, the old one or none is."""
        if not self.rename_into_place:
            self.write(name, produce)
            return
        temporary = f"{self.temporary}/{uuid.uuid4().hex}"
        try:
            self.write(temporary, produce)
            self.sync(temporary)
            if not self.local and self.exists(name):  # HDFS does not rename onto a file
                self.remove(name)
            self.rename(temporary, name)
        except Exception:
            with suppress(Exception):  # half a file would keep a full disk full
                self.remove(temporary)
            raise
        self.sync_folder(name.rpartition("/")[0])

    def remove_all(self, names: Iterable[str]) -> None:
        """Delete files, for good when it returns; those that are gone already are no matter."""
        folders = set()
        for name in names:
            self.remove(name)
            folders.add(name.rpartition("/")[0])
        for folder in sorted(folders):
            self.sync_folder(folder)

    def write(self, name: str, produce: Callable[[Any], None]) -> None:
        with self.filesystem.open_output_stream(self.path(name)) as stream:
            produce(stream)

    def sync(self, name: str) -> None:
        if self.local:
            _sync(self.path(name))

    def rename(self, name: str, to: str) -> None:
        self.filesystem.move(self.path(name), self.path(to))

    def sync_folder(self, folder: str) -> None:
        """A rename or a deletion outlives a loss of power only when its folder is synced."""
        if self.local:
            _sync(self.path(folder))

    def remove(self, name: str) -> None:
        try:
            self.filesystem.delete_file(self.path(name))
        except FileNotFoundError:
            return
        except OSError:
            if self.exists(name):
                raise

    def make_folder(self, folder: str) -> None:
        if self.exists(folder):
            return
        self.filesystem.create_dir(self.path(folder), recursive=True)
        if self.local:
            _sync(str(Path(self.path(folder)).parent))

    def exists(self, name: str) -> bool:
        return bool(self.filesystem.get_file_info(self.path(name)).type != pafs.FileType.NotFound)

    def listed(self, folder: str) -> list[Listed]:
        """The files right in a folder, by name; a folder that is missing holds none."""
        found = self.filesystem.get_file_info(pafs.FileSelector(self.path(folder), allow_not_found=True))
        files = [Listed(f"{folder}/{info.base_name}", info.size or 0) for info in found if info.is_file]
        return sorted(files)

    def names(self, folder: str) -> set[str]:
        """What lies right in a folder, folders too."""
        found = self.filesystem.get_file_info(pafs.FileSelector(self.path(folder), allow_not_found=True))
        return {str(info.base_name) for info in found}

    def read(self, name: str) -> bytes:
        with self.open(name) as source:
            return bytes(source.read())

    def open(self, name: str) -> Any:
        """A file for random access. A file that is missing is a FileNotFoundError on every file system."""
        try:
            return self.filesystem.open_input_file(self.path(name))
        except FileNotFoundError:
            raise
        except OSError as error:
            if self.exists(name):
                raise
            raise FileNotFoundError(errno.ENOENT, "no such file", self.path(name)) from error

    def path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def uri(self, name: str) -> str:
        """As Spark, that is Hadoop, names it."""
        if self.local:
            return Path(self.path(name)).as_uri()
        kind = self.filesystem.type_name
        return f"{_HADOOP_SCHEMES.get(kind, kind)}://{self.path(name)}"

    def elsewhere(self) -> Files:
        """The same files for another process, without the lock; picklable."""
        return Files(self.filesystem, self.root, rename=self.rename_into_place, temporary=self.temporary)

    def acquire(self) -> None:
        """Hold the store for writing until `release` or the end of the process; local disks only."""
        if not self.local or self._lock_fd is not None:
            return
        import fcntl  # noqa: PLC0415 - POSIX alone has it

        descriptor = os.open(self.path(LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in {errno.ENOLCK, errno.ENOTSUP}:
                return
            raise StoreError(
                f"the store at {self} is in use by another process. Stop that one first; "
                "`slackwater late status` and `windows` only read and work meanwhile."
            ) from error
        self._lock_fd = descriptor

    def release(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None


def files_at(location: str | Path, *, temporary: str = TEMPORARY) -> Files:
    """The files of a local path or of a URI that pyarrow knows (s3://, gs://, abfs://, hdfs://, file://)."""
    text = str(location)
    if not text:
        raise ConfigurationError("the store's location is empty. Give a folder or a URI such as s3://bucket/folder.")
    if "://" not in text:
        return Files(pafs.LocalFileSystem(), str(Path(text).absolute()), temporary=temporary)
    try:
        filesystem, root = pafs.FileSystem.from_uri(text)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise ConfigurationError(
            f"{text!r} is no location that pyarrow can use: {error}. Give a folder or a URI such as s3://bucket/folder."
        ) from error
    return Files(filesystem, root, temporary=temporary)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
