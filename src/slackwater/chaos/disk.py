"""A disk that is full while somebody says so, for the driver and for Spark's tasks."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slackwater.late.arrow import pa, pafs
from slackwater.late.files import Files
from slackwater.late.naming import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Callable


class FullDisk(Files):
    """Local files. While the file `flag` is there, a write ends half-way: no space is left."""

    def __init__(self, root: Path, flag: Path, *, temporary: str = TEMPORARY) -> None:
        super().__init__(pafs.LocalFileSystem(), str(root), temporary=temporary)
        self._flag = str(flag)

    def write(self, name: str, produce: Callable[[Any], None]) -> None:
        if not Path(self._flag).exists():
            super().write(name, produce)
            return
        sink = pa.BufferOutputStream()
        produce(sink)
        content = sink.getvalue().to_pybytes()
        Path(self.path(name)).write_bytes(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path(name))

    def elsewhere(self) -> Files:
        return FullDisk(Path(self.root), Path(self._flag), temporary=self.temporary)
