"""Which process listens at a port of this host, as /proc tells: how an engine's URL leads to its processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slackwater.translators.identity import ProcessId
    from slackwater.translators.processes import Proc

_LISTENING = "0A"


def listener(proc: Proc, port: int) -> ProcessId | None:
    """The process that listens at a TCP port; None where nobody does, or one whose files we may not see does."""
    inodes = {inode for name in ("tcp", "tcp6") for inode in _listening(proc.root / "net" / name, port)}
    if not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for name in os.listdir(proc.root):  # noqa: PTH208 - names only
        if name.isdigit() and _has_open(proc.root / name / "fd", wanted):
            return proc.process(int(name))
    return None


def listens(proc: Proc, process: ProcessId, port: int) -> bool:
    """Whether a process listens at a TCP port, of its own network: a container's is another one than the host's."""
    home = proc.root / str(process.pid)
    inodes = {inode for name in ("tcp", "tcp6") for inode in _listening(home / "net" / name, port)}
    return bool(inodes) and _has_open(home / "fd", {f"socket:[{inode}]" for inode in inodes})


def _listening(table: Path, port: int) -> Iterator[str]:
    try:
        lines = table.read_text("ascii", "replace").splitlines()[1:]
    except OSError:
        return
    for line in lines:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
            yield fields[9]


def _has_open(folder: Path, wanted: set[str]) -> bool:
    try:
        return any(_link(entry) in wanted for entry in os.scandir(folder))
    except OSError:
        return False


def _link(entry: os.DirEntry[str]) -> str:
    try:
        return os.readlink(entry.path)  # noqa: PTH115 - called for every open file of a host
    except OSError:
        return ""
