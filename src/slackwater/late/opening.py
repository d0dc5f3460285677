"""Whose store it is, before anything in it is read: found, or made in a folder of its own, and held for writing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slackwater.errors import ConfigurationError
from slackwater.late import manifest
from slackwater.late.errors import StoreError
from slackwater.late.naming import DATA, DEAD, JOURNAL, LOCK, MANIFEST, TEMPORARY

if TYPE_CHECKING:
    from slackwater.late.files import Files
    from slackwater.late.manifest import Kind, Manifest


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a store is opened for; `WindowStore` says what each of these means."""

    schema: Any = None
    kind: Kind | None = None
    event_time: str | None = None
    counted: str | None = None
    purpose: str | None = None
    owner: str | None = None


def claim(files: Files, wanted: Wanted, *, read_only: bool) -> Manifest:
    """The manifest of a store that may be opened for this; a writer holds the lock from then on."""
    found = manifest.load(files)
    if found is None and (read_only or wanted.schema is None):
        raise ConfigurationError(
            f"there is no store of windows at {files}: store.json is missing. "
            "Give the folder that holds it; a query creates it when it first runs."
        )
    if not read_only:
        if found is None:
            _check_empty(files)
        for folder in ("", DATA, DEAD, JOURNAL, TEMPORARY):
            files.make_folder(folder)
        files.acquire()
    try:
        return _checked(files, found, wanted)
    except BaseException:
        files.release()
        raise


def _checked(files: Files, found: Manifest | None, wanted: Wanted) -> Manifest:
    if found is None:
        found = manifest.create(
            files,
            wanted.schema,
            wanted.kind or "rows",
            wanted.owner,
            wanted.event_time,
            wanted.counted,
            wanted.purpose,
        )
    manifest.check(found, files, wanted.schema, wanted.kind, wanted.owner, wanted.purpose)
    return found


def _check_empty(files: Files) -> None:
    """A new store goes into a folder of its own; what a crash left while creating one is no matter."""
    if any(files.listed(folder) for folder in (DATA, DEAD, JOURNAL)):
        raise StoreError(
            f"{files} holds files of a store, but store.json is missing. Restore it from a backup, "
            "or use a new location."
        )
    strangers = files.names("") - {DATA, DEAD, JOURNAL, TEMPORARY, LOCK, MANIFEST}
    if strangers:
        raise ConfigurationError(
            f"{files} is not empty and holds no store: {min(strangers)!r} is there. Give a folder of its own."
        )
