"""`store.json`: what the store as a whole is. Written once, when the store is created."""

from __future__ import annotations

import base64
import uuid
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from slackwater.errors import ConfigurationError
from slackwater.late.arrow import pa
from slackwater.late.errors import NewerFormatError, StoreError
from slackwater.late.naming import MANIFEST

if TYPE_CHECKING:
    from slackwater.late.files import Files

FORMAT: Final = 1

Kind = Literal["rows", "aggregates"]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """kind: rows, or partial aggregates as rows. owner: the query that writes it, by an id that its checkpoint keeps.

    purpose: windows and aggregates in words; rows that were kept for another one must not be mixed with its.

    schema: Arrow's own encoding, in base64; schema_text for people.
    """

    format: int = FORMAT
    store: str
    kind: Kind
    owner: str | None
    event_time: str | None
    counted: str | None = None
    purpose: str | None = None
    schema: str
    schema_text: str

    def arrow_schema(self) -> Any:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.schema)))


class _Format(msgspec.Struct):
    format: int


def create(
    files: Files,
    schema: Any,
    kind: Kind,
    owner: str | None,
    event_time: str | None,
    counted: str | None,
    purpose: str | None,
) -> Manifest:
    for role, column in (("event_time", event_time), ("counted", counted)):
        if column is not None and column not in schema.names:
            raise ConfigurationError(f"{role}={column!r} is no column; there are: {', '.join(schema.names)}.")
    manifest = Manifest(
        store=uuid.uuid4().hex,
        kind=kind,
        owner=owner,
        event_time=event_time,
        counted=counted,
        purpose=purpose,
        schema=base64.b64encode(schema.serialize().to_pybytes()).decode(),
        schema_text=schema.to_string(show_field_metadata=False, show_schema_metadata=False),
    )
    _put(files, manifest)
    return manifest


def own(files: Files, manifest: Manifest, owner: str) -> Manifest:
    """The manifest with an owner, if it had none."""
    if manifest.owner is not None:
        return manifest
    owned = msgspec.structs.replace(manifest, owner=owner)
    _put(files, owned)
    return owned


def _put(files: Files, manifest: Manifest) -> None:
    content = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    files.put(MANIFEST, lambda stream: stream.write(content) and None)


def load(files: Files) -> Manifest | None:
    """None where there is no store yet."""
    try:
        content = files.read(MANIFEST)
    except FileNotFoundError:
        return None
    try:
        if (found := msgspec.json.decode(content, type=_Format).format) > FORMAT:
            raise NewerFormatError(
                f"the store at {files} has format {found}, and this version of Slackwater reads formats up to "
                f"{FORMAT}. Nothing was changed. Use the newer version, or another location."
            )
        return msgspec.json.decode(content, type=Manifest)
    except msgspec.DecodeError as error:
        raise StoreError(
            f"{files}/{MANIFEST} is damaged: {error}. Restore it from a backup; the rows beside it are untouched."
        ) from error


def check(
    manifest: Manifest, files: Files, schema: Any, kind: Kind | None, owner: str | None, purpose: str | None
) -> None:
    """A store that was made for something else must not be mixed with this."""
    if schema is not None and not manifest.arrow_schema().equals(schema, check_metadata=False):
        raise ConfigurationError(
            f"the store at {files} holds other columns:\n{manifest.schema_text}\nThe query has:\n"
            f"{schema.to_string(show_field_metadata=False, show_schema_metadata=False)}\n"
            "Use a new location for the changed query."
        )
    if kind is not None and kind != manifest.kind:
        raise ConfigurationError(f"the store at {files} holds {manifest.kind}, not {kind}. Use a new location.")
    if purpose is not None and manifest.purpose is not None and purpose != manifest.purpose:
        raise ConfigurationError(
            f"the store at {files} was made for: {manifest.purpose}\nThe query has: {purpose}\n"
            "Use a new checkpoint and store for the changed query."
        )
    if owner is not None and manifest.owner is not None and owner != manifest.owner:
        raise ConfigurationError(
            f"the store at {files} belongs to query {manifest.owner}, and this is {owner}: another query, or one whose "
            "checkpoint was removed, so that its batches are numbered anew. Use a new location, or the old checkpoint."
        )
