"""A trace on disk: a first line that names the format, then frames.

A frame begins with three numbers of four bytes, big-endian: the length of what follows, its CRC-32, and the CRC-32 of
these two numbers. Then come records as JSON lines, compressed by zlib. Each frame is written in one go and handed to
the operating system at once: whatever kills the process, all frames before are whole, and a last one that is not is
told apart from damage.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import msgspec

from slackwater.errors import ConfigurationError
from slackwater.recording.records import FORMAT, READABLE, Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MAGIC = f"slackwater-trace {FORMAT}\n".encode()
MOST_FRAME_BYTES = 16 * 1024 * 1024
_KIND = b"slackwater-trace "
_MAGICS = frozenset(_KIND + f"{number}\n".encode() for number in READABLE)
_PREFIX = struct.Struct(">III")
_CHECKED = struct.Struct(">II")
_LEVEL = 6
_MOST_UNPACKED_BYTES = 20 * MOST_FRAME_BYTES
_READS = f"formats {READABLE[0]} to {READABLE[-1]}"
_ADVICE = "Record one with slackwater.attach(spark, record=PATH)."

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


def frame(records: Sequence[Record]) -> bytes:
    """Records as one frame."""
    packed = zlib.compress(b"\n".join(_encoder.encode(record) for record in records), _LEVEL)
    checked = _CHECKED.pack(len(packed), zlib.crc32(packed))
    return checked + zlib.crc32(checked).to_bytes(4) + packed


def records_in(path: Path, *, salvage: bool = False) -> Iterator[Record]:
    """All records of a trace, in the order in which they were written.

    The end of a file whose writer was killed may be missing; that is no error. Anything else that is not as it was
    written is: ConfigurationError says where; `salvage` ends there instead.
    """
    frames = _frames(path)
    while True:
        try:
            found = next(frames, None)
            records = None if found is None else _records(path, *found)
        except _DamagedError:
            if salvage:
                return
            raise
        if records is None:
            return
        yield from records


class _DamagedError(ConfigurationError):
    def __init__(self, path: Path, at: int, why: str) -> None:
        super().__init__(
            f"{path} is damaged at byte {at}: {why}. Copy the file again from where it was written, or read what "
            "stands before the damage with --salvage."
        )


def _records(path: Path, at: int, packed: bytes) -> list[Record]:
    try:
        lines = _unpacked(packed).split(b"\n")
        return [_decoder.decode(line) for line in lines]
    except zlib.error as error:
        raise _DamagedError(path, at, f"it cannot be unpacked ({error})") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _DamagedError(path, at, f"not a record of {_READS} ({error})") from error


def _unpacked(packed: bytes) -> bytes:
    """Bounded: a foreign frame must not fill the memory."""
    unpacker = zlib.decompressobj()
    out = unpacker.decompress(packed, _MOST_UNPACKED_BYTES)
    if not unpacker.eof:
        raise zlib.error("it does not end, or is larger than a frame can be")
    return out


def _frames(path: Path) -> Iterator[tuple[int, bytes]]:
    """Where each whole frame begins, and what it holds, its checksum verified."""
    try:
        with path.open("rb") as file:
            _check_magic(path, file.read(len(MAGIC)))
            while True:
                at = file.tell()
                prefix = file.read(_PREFIX.size)
                if len(prefix) < _PREFIX.size:
                    return
                length, checksum, own = _PREFIX.unpack(prefix)
                if zlib.crc32(prefix[: _CHECKED.size]) != own:
                    raise _DamagedError(path, at, "no frame begins there")
                if length > MOST_FRAME_BYTES:
                    raise _DamagedError(path, at, f"a frame of {length} bytes, and {MOST_FRAME_BYTES} is the most")
                packed = file.read(length)
                if len(packed) < length:
                    return
                if zlib.crc32(packed) != checksum:
                    raise _DamagedError(path, at, "the frame's checksum does not match what stands there")
                yield at, packed
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}. {_ADVICE}") from error


def _check_magic(path: Path, first: bytes) -> None:
    if first in _MAGICS:
        return
    if first.startswith(_KIND) and first.endswith(b"\n"):
        number = first.removeprefix(_KIND).strip().decode(errors="replace")
        raise ConfigurationError(
            f"{path} is a trace of format {number}, and this version reads {_READS}. "
            "Use the version of Slackwater that wrote it, or a newer one."
        )
    raise ConfigurationError(f"{path} is not a trace: it begins with {first[:20]!r}. {_ADVICE}")
