"""The recorder of an attached application: what the scheduler saw and decided, to a trace, from a thread of its own.

The scheduler's thread hands over what it has and goes on; it never waits for a disk. What does not fit into the queue
is counted, and the trace says so.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slackwater.endpoint.discovery import file_name
from slackwater.errors import ConfigurationError
from slackwater.recording.frames import MAGIC, frame
from slackwater.recording.records import Cut, End, Lost
from slackwater.recording.scribe import SAMPLE_EVERY_S, Scribe, rounded, tells

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import BinaryIO

    from slackwater.core.engine import Engine
    from slackwater.core.model import Commands, Report
    from slackwater.recording.records import Plain, Record

log = logging.getLogger("slackwater")

_FLUSH_EVERY_S = 1.0
_MOST_WAITING = 2_000
_ENDING_S = 5.0
_LEAST_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class Recording:
    """Where to record, and how large the trace may become.

    path: a new file; or a folder, in which each recording gets a file of its own.
    """

    path: str | Path
    most_bytes: int = 200_000_000

    def __post_init__(self) -> None:
        if not isinstance(self.most_bytes, int) or self.most_bytes < _LEAST_BYTES:
            raise ConfigurationError(
                f"Recording(most_bytes={self.most_bytes!r}): a number of bytes from {_LEAST_BYTES} up is needed."
            )

    def open(self, application_id: str, now_wall_ts: float) -> tuple[Path, BinaryIO]:
        path = Path(self.path).expanduser()
        if path.is_dir():
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now_wall_ts))
            path = path / f"{file_name(application_id)}-{stamp}.trace"
        try:
            return path, path.open("xb", buffering=0)
        except FileExistsError:
            raise ConfigurationError(
                f"record={str(self.path)!r}: the file is there already. Name a new one, or a folder, in which each "
                "recording gets a file of its own."
            ) from None
        except OSError as error:
            raise ConfigurationError(
                f"record={str(self.path)!r}: cannot be written: {error.strerror}. Name a file in a folder that exists."
            ) from error


@dataclass(frozen=True, slots=True)
class RecordingStatus:
    """`trouble`: why nothing more is recorded; None while all is well.

    cpu_s is what its own thread used so far, handing_s what the scheduler's thread spent on handing over.
    """

    path: str
    bytes: int
    records: int
    lost: int
    seconds: float
    cpu_s: float
    handing_s: float
    trouble: str | None


class Recorder:
    """Records one engine. Call `saw` after each of its steps, from its thread; `close` ends the trace."""

    def __init__(
        self,
        where: Recording,
        application_id: str,
        engine: Engine,
        *,
        application: str = "",
        spark: str = "",
        master: str = "",
        session: Mapping[str, Plain] | None = None,
        version: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._scribe = Scribe(engine)
        self._most_bytes = where.most_bytes
        self._clock = clock
        now = clock()
        self.path, self._file = where.open(application_id, now)
        self._queue: deque[tuple[Report, Commands]] = deque()
        self._kept_wall_ts = -math.inf
        self._lost_batches = self._lost_grants = self._told_lost = 0
        self._bytes = self._records = 0
        self._trouble: str | None = None
        self._began_wall_ts = now
        self._cpu_s = self._handing_s = 0.0
        self._stop = threading.Event()
        head = self._scribe.head(
            now, version=version, application=application, spark=spark, master=master, session=session or {}
        )
        try:
            self._write_raw(MAGIC)
            self._write([head])
        except OSError as error:
            self._file.close()
            raise ConfigurationError(f"{self.path} cannot be written: {error.strerror}.") from error
        self._thread = threading.Thread(target=self._run, name="slackwater-record", daemon=True)
        self._thread.start()

    # ---- the scheduler's side: never waits ----------------------------------------------------------------------

    def saw(self, report: Report, commands: Commands) -> None:
        """What happened is kept; of times when nothing did, one report a second."""
        begun = time.perf_counter()
        self._keep(report, commands)
        self._handing_s += time.perf_counter() - begun

    def _keep(self, report: Report, commands: Commands) -> None:
        if not tells(report, commands) and report.wall_ts < self._kept_wall_ts + SAMPLE_EVERY_S:
            return
        # A query that nobody described would be missing for good; there are only so many.
        most = 2 * _MOST_WAITING if any(query.facts is not None for query in report.queries) else _MOST_WAITING
        if len(self._queue) >= most or self._trouble is not None:
            self._lost_batches += sum(len(query.batches) for query in report.queries)
            self._lost_grants += len(commands.grants)
            return
        self._kept_wall_ts = report.wall_ts
        self._queue.append((report, commands))

    # ---- whoever asks -------------------------------------------------------------------------------------------

    def status(self) -> RecordingStatus:
        return RecordingStatus(
            path=str(self.path),
            bytes=self._bytes,
            records=self._records,
            lost=self._lost_batches + self._lost_grants,
            seconds=self._clock() - self._began_wall_ts,
            cpu_s=self._cpu_s,
            handing_s=self._handing_s,
            trouble=self._trouble,
        )

    @property
    def closed(self) -> bool:
        return self._stop.is_set()

    def close(self) -> None:
        """Write what is left and end the trace. Doing it again does nothing."""
        self._stop.set()
        self._thread.join(_ENDING_S)

    # ---- its own thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with self._file:
                while not self._stop.wait(_FLUSH_EVERY_S) and self._trouble is None:
                    self._flush()
                    self._cpu_s = time.thread_time()
                if self._trouble is None:
                    self._flush()
                    self._write([End(rounded(self._clock()))])
        except OSError as error:
            self._give_up(f"{self.path} cannot be written: {error.strerror}")
        except Exception as error:
            self._give_up(f"{type(error).__name__}: {error}")

    def _give_up(self, why: str) -> None:
        self._trouble = why
        self._queue.clear()
        log.warning("nothing more is recorded: %s", why)

    def _flush(self) -> None:
        seen = [self._queue.popleft() for _ in range(len(self._queue))]
        records = list(self._scribe.records(seen))
        lost = self._lost_batches + self._lost_grants
        if lost > self._told_lost:
            self._told_lost = lost
            records.append(Lost(rounded(self._clock()), self._lost_batches, self._lost_grants))
        if not records or self._trouble is not None:
            return
        packed = frame(records)
        if self._bytes + len(packed) + _LEAST_BYTES // 100 > self._most_bytes:
            self._write([Cut(rounded(self._clock()), self._most_bytes)])
            self._give_up(f"{self.path} has reached {self._most_bytes} bytes, the most that it may have")
            return
        self._write_raw(packed)
        self._records += len(records)

    def _write(self, records: list[Record]) -> None:
        self._write_raw(frame(records))
        self._records += len(records)

    def _write_raw(self, raw: bytes) -> None:
        left = memoryview(raw)
        while left:
            written = self._file.write(left)
            self._bytes += written
            left = left[written:]
