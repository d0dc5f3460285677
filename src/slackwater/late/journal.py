"""The ledger on disk: one small file for each append, and now and then a snapshot of everything so far.

Files instead of lines of one file, because object stores cannot append, and because a file that is put in place whole
cannot end in half a line. The snapshot before the last one and the segments after it are kept, so that a damaged
snapshot costs nothing.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import msgspec

from slackwater.late.errors import DamagedFileError, NewerFormatError
from slackwater.late.ledger import Ledger, Record
from slackwater.late.naming import JOURNAL, segment_name, segment_of, snapshot_name, snapshot_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slackwater.late.files import Files

FORMAT: Final = 1


class _Entry(msgspec.Struct, frozen=True):
    format: int
    sequence: int
    records: list[Record]


class _Format(msgspec.Struct):
    format: int


class Journal:
    """Append records, have them back after a crash. One caller at a time.

    fold_after: a snapshot is written after so many segments.
    """

    def __init__(self, files: Files, fold_after: int = 64) -> None:
        self.ledger = Ledger()
        self._files = files
        self._fold_after = fold_after
        self._next = 0
        self._snapshots: list[int] = []
        self._segments: list[int] = []

    def load(self, damaged: Callable[[str, str], None]) -> None:
        """Read everything; `damaged(name, why)` is told of each file that cannot be used."""
        self.ledger, self._snapshots, self._segments = Ledger(), [], []
        highest = -1
        for name in [entry.name for entry in self._files.listed(JOURNAL)]:
            snapshot, segment = snapshot_of(name), segment_of(name)
            if snapshot is not None:
                self._snapshots.append(snapshot)
            elif segment is not None:
                self._segments.append(segment)
            else:
                damaged(name, f"{name}: not a file of the journal")
            highest = max(highest, snapshot if snapshot is not None else -1, segment if segment is not None else -1)
        self._next = highest + 1
        base = self._load_snapshot(damaged)
        for sequence in [sequence for sequence in self._segments if sequence > base]:
            name = segment_name(sequence)
            if sequence != base + 1:
                lost = f"segments {base + 1} to {sequence - 1} of the journal are missing"
                damaged("", f"{JOURNAL}: {lost}; purges and revision numbers in them are lost")
            base = sequence
            try:
                self._apply(self._read(name))
            except DamagedFileError as error:
                self._segments.remove(sequence)
                damaged(name, f"{error}; purges and revision numbers in it are lost")

    def append(self, records: Sequence[Record]) -> None:
        """Durable when it returns, and only then part of the ledger."""
        self._put(segment_name(self._next), list(records))
        self._segments.append(self._next)
        self._next += 1
        for record in records:
            self.ledger.apply(record)
        last = self._snapshots[-1] if self._snapshots else -1
        if sum(sequence > last for sequence in self._segments) >= self._fold_after:
            self.fold()

    def fold(self) -> None:
        """The new snapshot stands for all before it; what the one before it stands for can go."""
        previous = self._snapshots[-1] if self._snapshots else -1
        sequence = self._next - 1
        if sequence <= previous:
            sequence = self._next
            self._next += 1
        self._put(snapshot_name(sequence), self.ledger.records(), sequence)
        self._snapshots.append(sequence)
        old = [segment_name(old) for old in self._segments if old <= previous]
        self._files.remove_all(old + [snapshot_name(old) for old in self._snapshots if old < previous])
        self._segments = [kept for kept in self._segments if kept > previous]
        self._snapshots = [kept for kept in self._snapshots if kept >= previous]

    def _load_snapshot(self, damaged: Callable[[str, str], None]) -> int:
        """The sequence number up to which the newest readable snapshot speaks; without one, where segments begin."""
        for sequence in reversed(self._snapshots.copy()):
            name = snapshot_name(sequence)
            try:
                self._apply(self._read(name))
            except DamagedFileError as error:
                self._snapshots.remove(sequence)
                damaged(name, str(error))
                continue
            return sequence
        return -1

    def _apply(self, entry: _Entry) -> None:
        for record in entry.records:
            self.ledger.apply(record)

    def _put(self, name: str, records: list[Record], sequence: int | None = None) -> None:
        body = msgspec.json.encode(_Entry(FORMAT, self._next if sequence is None else sequence, records))
        content = body + b"\n%08x\n" % zlib.crc32(body)
        self._files.put(name, lambda stream: _write(stream, content))

    def _read(self, name: str) -> _Entry:
        content = self._files.read(name)
        body, _, check = content.removesuffix(b"\n").rpartition(b"\n")
        if check != b"%08x" % zlib.crc32(body):
            raise DamagedFileError(f"{name}: its checksum is wrong ({len(content)} bytes)")
        try:
            if (found := msgspec.json.decode(body, type=_Format).format) > FORMAT:
                raise NewerFormatError(
                    f"{name} has format {found}, and this version of Slackwater reads formats up to {FORMAT}. "
                    "Nothing was changed. Use the newer version."
                )
            return msgspec.json.decode(body, type=_Entry)
        except msgspec.DecodeError as error:
            raise DamagedFileError(f"{name}: not a journal's content: {error}") from error


def _write(stream: object, content: bytes) -> None:
    stream.write(content)  # type: ignore[attr-defined]
