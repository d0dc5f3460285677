"""A hundred clients of an endpoint: some ask without pause, some never read what they asked for, some say nothing.

They live in a process of their own, as clients do: what they take of its time is not the endpoint's.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

PATHS = ("/api/status", "/metrics", "/", "/api/events")
_PATIENCE_S = 20.0
_TELL_S = 0.2


class Clients:
    """They begin when the block does and are gone when it ends. `answers` counts by status."""

    def __init__(self, url: str, count: int = 100, paths: Sequence[str] = PATHS) -> None:
        self._command = [sys.executable, "-m", __name__, url, str(count), *paths]
        self.answers: Counter[int] = Counter()
        self._process: subprocess.Popen[str]
        self._thread = threading.Thread(target=self._listen, name="chaos-clients", daemon=True)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(60)
        self._thread.join(60)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            self.answers = Counter({int(status): count for status, count in json.loads(line).items()})


class _Crowd:
    def __init__(self, url: str, count: int, paths: Sequence[str]) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 0
        self._count, self._paths = count, paths
        self._answers: Counter[int] = Counter()

    async def run(self) -> None:
        """Until the process is ended; tells its counts now and then, as lines."""
        kinds = (self._asks, self._asks, self._asks, self._never_reads, self._says_nothing)
        paths = self._paths
        work = [asyncio.create_task(kinds[n % len(kinds)](paths[n % len(paths)])) for n in range(self._count)]
        while not all(task.done() for task in work):
            await asyncio.sleep(_TELL_S)
            print(json.dumps(self._answers), flush=True)

    async def _asks(self, path: str) -> None:
        while True:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, ValueError, IndexError):
                reader, writer = await asyncio.open_connection(self._host, self._port)
                try:
                    writer.write(self._request(path))
                    line = await asyncio.wait_for(reader.readline(), _PATIENCE_S)
                    self._answers[int(line.split()[1])] += 1
                    # The rest as far as it is there: a stream of events has no end.
                    await asyncio.wait_for(reader.read(1 << 16), _PATIENCE_S)
                finally:
                    writer.close()
            await asyncio.sleep(0.01)

    async def _never_reads(self, path: str) -> None:
        await self._hold(self._request(path) * 50)

    async def _says_nothing(self, _: str) -> None:
        await self._hold(b"GET /api/sta")

    async def _hold(self, sent: bytes) -> None:
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection(self._host, self._port, limit=1)
                try:
                    writer.write(sent)
                    writer.transport.pause_reading()  # type: ignore[attr-defined]
                    await writer.wait_closed()
                finally:
                    writer.transport.abort()
            await asyncio.sleep(0.05)

    def _request(self, path: str) -> bytes:
        return f"GET {path} HTTP/1.1\r\nhost: {self._host}:{self._port}\r\n\r\n".encode()


if __name__ == "__main__":
    asyncio.run(_Crowd(sys.argv[1], int(sys.argv[2]), sys.argv[3:]).run())
