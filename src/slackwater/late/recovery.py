"""What a crash, a full disk or a stranger left: found when a store is opened, and put aside without stopping it."""

from __future__ import annotations

import logging
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from slackwater.late.errors import DamagedFileError, NewerFormatError, StoreError
from slackwater.late.footer import read_footer
from slackwater.late.naming import DATA, DEAD, QUARANTINE, TEMPORARY, batch_of, compaction_of

if TYPE_CHECKING:
    from slackwater.late.files import Files
    from slackwater.late.index import DataFile

_READERS: Final = 8

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that does not count, and why; `moved_to` is where it lies now (None: still where it was)."""

    name: str
    reason: str
    moved_to: str | None = None


@dataclass(slots=True)
class Found:
    """What is on disk. `uncommitted` are files of batches that Spark has not committed: it will run them again."""

    data: list[DataFile] = field(default_factory=list)
    dead: list[DataFile] = field(default_factory=list)
    uncommitted: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    temporary: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def scan(files: Files, store: str, committed: int | None, *, attempts: int = 1) -> Found:
    """Read the footers of all that counts. committed None: as far as the files themselves tell.

    attempts: a reader beside a writer may see a file in the list that is deleted a moment later; then it looks again.
    Raises NewerFormatError before anything is changed.
    """
    for _ in range(attempts - 1):
        try:
            return _scan(files, store, committed)
        except FileNotFoundError:
            continue
    return _scan(files, store, committed)


def _scan(files: Files, store: str, committed: int | None) -> Found:
    found = Found(temporary=[entry.name for entry in files.listed(TEMPORARY)])
    through = newest_surely_committed(files) if committed is None else committed
    wanted: list[str] = []
    for folder in (DATA, DEAD):
        for entry in files.listed(folder):
            batch = batch_of(entry.name)
            if batch is not None and batch[0] > through:
                found.uncommitted[batch[0]].add(entry.name)
            elif batch is not None or (folder == DATA and compaction_of(entry.name) is not None):
                wanted.append(entry.name)
            else:
                found.problems.append(Problem(entry.name, f"{entry.name}: not a name that a store gives"))
    for file in _footers(files, wanted, store):
        if isinstance(file, Problem):
            found.problems.append(file)
        else:
            (found.dead if file.name.startswith(f"{DEAD}/") else found.data).append(file)
    ahead = max((file.batch for file in found.data if file.replaces is not None), default=-1)
    if ahead > through:
        raise StoreError(
            f"the store at {files} has compacted batches up to {ahead}, but the last committed batch is {through}: "
            "the checkpoint is older than the store, or another query's. Use the checkpoint that belongs to the store, "
            "or a new location."
        )
    return found


def newest_surely_committed(files: Files) -> int:
    """Without Spark's commit log: a batch runs only after the one before it is committed."""
    names = [entry.name for folder in (DATA, DEAD) for entry in files.listed(folder)]
    batches = [batch[0] - 1 for name in names if (batch := batch_of(name))]
    compacted = [named[1] for name in names if (named := compaction_of(name))]
    return max(batches + compacted, default=-1)


def put_aside(files: Files, problems: list[Problem]) -> list[Problem]:
    """Move the files that do not count out of the way, and say so; those without a name are only told."""
    found = [_quarantine(files, problem) if problem.name else problem for problem in problems]
    for problem in found:
        where = f", moved to {problem.moved_to}" if problem.moved_to else ""
        log.warning("%s: %s%s", files, problem.reason, where)
    return found


def _quarantine(files: Files, problem: Problem) -> Problem:
    """Move a file aside; it keeps its name, with a number where one of that name is there already."""
    wanted = f"{QUARANTINE}/{problem.name.replace('/', '-')}"
    to, number = wanted, 0
    while files.exists(to):
        number += 1
        to = f"{wanted}.{number}"
    files.make_folder(QUARANTINE)
    files.rename(problem.name, to)
    files.sync_folder(QUARANTINE)
    return Problem(problem.name, problem.reason, to)


def _footers(files: Files, names: list[str], store: str) -> list[DataFile | Problem]:
    """Reading them waits for the disk or the network, so many are read at once; a few are not worth the threads."""
    if len(names) <= _READERS:
        return [_footer(files, name, store) for name in names]
    with ThreadPoolExecutor(_READERS, thread_name_prefix="slackwater-footers") as readers:
        return list(readers.map(lambda name: _footer(files, name, store), names))


def _footer(files: Files, name: str, store: str) -> DataFile | Problem:
    try:
        return read_footer(files, name, store)
    except NewerFormatError:
        raise
    except DamagedFileError as error:
        return Problem(name, str(error))
