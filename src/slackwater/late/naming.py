"""Names on disk. They are made of numbers alone; a user's words enter by `folder_for` only."""

from __future__ import annotations

import hashlib
import re
from typing import Final

MANIFEST: Final = "store.json"
LOCK: Final = "lock"
DATA: Final = "data"
DEAD: Final = "dead"
JOURNAL: Final = "journal"
TEMPORARY: Final = "tmp"
QUARANTINE: Final = "quarantine"
LATENESS: Final = "lateness.json"

_BATCH = re.compile(r"batch_(\d{12})_part_(\d{5})\.parquet")
_COMPACTED = re.compile(r"window_(-?\d{1,19})_through_(\d{12})\.parquet")
_SEGMENT = re.compile(r"segment_(\d{12})\.json")
_SNAPSHOT = re.compile(r"snapshot_(\d{12})\.json")


def batch_name(folder: str, batch_id: int, part: int) -> str:
    return f"{folder}/batch_{batch_id:012d}_part_{part:05d}.parquet"


def compacted_name(window: int, through: int) -> str:
    return f"{DATA}/window_{window}_through_{through:012d}.parquet"


def segment_name(sequence: int) -> str:
    return f"{JOURNAL}/segment_{sequence:012d}.json"


def snapshot_name(sequence: int) -> str:
    return f"{JOURNAL}/snapshot_{sequence:012d}.json"


def batch_of(name: str) -> tuple[int, int] | None:
    """Batch id and part, if it is the name of a batch's file."""
    return _two(_BATCH, name)


def compaction_of(name: str) -> tuple[int, int] | None:
    """Window and last batch, if it is the name of a compacted file."""
    return _two(_COMPACTED, name)


def segment_of(name: str) -> int | None:
    found = _SEGMENT.fullmatch(_last(name))
    return int(found[1]) if found else None


def snapshot_of(name: str) -> int | None:
    found = _SNAPSHOT.fullmatch(_last(name))
    return int(found[1]) if found else None


def folder_for(name: str) -> str:
    """A folder name for a query's name: readable, without separators or dots, different for different names."""
    readable = re.sub(r"[^A-Za-z0-9-]+", "_", name).strip("_")[:60] or "query"
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _two(pattern: re.Pattern[str], name: str) -> tuple[int, int] | None:
    found = pattern.fullmatch(_last(name))
    return (int(found[1]), int(found[2])) if found else None


def _last(name: str) -> str:
    return name.rpartition("/")[2]
