"""How applications on a host are found: a small file for each in a folder that belongs to its user.

A file says where the endpoint is, who serves it and where its token lies. One whose process has ended is swept away by
whoever comes across it.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec

from slackwater.errors import ConfigurationError

FORMAT = 1
_SUFFIX = ".json"
_LARGEST_FILE_BYTES = 64 * 1024


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """Where an attached application can be asked. started_ticks tells its process from a later one with its pid."""

    format: int = FORMAT
    application_id: str
    name: str
    url: str
    token_file: str
    pid: int
    started_ticks: int


def default_folder() -> Path:
    """Of this user: `$SLACKWATER_RUNTIME_DIR`, else in `$XDG_RUNTIME_DIR`, else in the folder for temporary files."""
    given = os.environ.get("SLACKWATER_RUNTIME_DIR")
    if given:
        return Path(given)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "slackwater"
    return Path(tempfile.gettempdir()) / f"slackwater-{os.getuid()}"


def ready(folder: Path) -> Path:
    """The folder, made if it is not there; refused when it is somebody else's or others may write to it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return trusted(folder)


def trusted(folder: Path) -> Path:
    """The folder, there or not; refused like `ready`. What it says decides which file is read and sent as a token."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return folder
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise ConfigurationError(
            f"{folder} is no folder of yours alone (owner {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}); "
            "endpoints are announced there. Remove it, or set SLACKWATER_RUNTIME_DIR to another folder."
        )
    return folder


def file_name(application_id: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", application_id)[:120].lstrip(".") or "application"


def announce(folder: Path, found: Announcement) -> Path:
    """Write the file as a whole, or not at all."""
    path = ready(folder) / (file_name(found.application_id) + _SUFFIX)
    beside = path.with_suffix(f".{os.getpid()}.tmp")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(msgspec.json.encode(found))
    beside.replace(path)
    return path


def announced(folder: Path) -> list[Announcement]:
    """Applications that are announced and alive, by id. Unreadable files are passed over; those of the dead go."""
    found = []
    for path in sorted(folder.glob("*" + _SUFFIX)) if folder.is_dir() else []:
        try:
            if path.stat().st_size > _LARGEST_FILE_BYTES:
                continue
            said = msgspec.json.decode(path.read_bytes(), type=Announcement)
        except (OSError, msgspec.DecodeError):
            continue
        if said.format != FORMAT:
            continue
        if started_ticks(said.pid) != said.started_ticks:
            # A file of somebody else's folder is not ours to sweep.
            with suppress(OSError):
                path.unlink(missing_ok=True)
                Path(said.token_file).unlink(missing_ok=True) if _ours(path, said) else None
            continue
        found.append(said)
    return found


def started_ticks(pid: int) -> int:
    """When a process started, in the kernel's ticks since boot; 0 where it is gone, or where there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0


def _ours(announcement: Path, said: Announcement) -> bool:
    """Whether a token file lies beside its announcement: what a file says is no reason to remove just anything."""
    token = Path(said.token_file)
    return token.parent == announcement.parent and token.suffix == ".token"
