"""A hundred clients of an endpoint: some ask without pause, some never read what they asked for, some say nothing."""

from __future__ import annotations

import asyncio
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


class Clients:
    """They begin when the block does and are gone when it ends. `answers` counts by status."""

    def __init__(self, url: str, count: int = 100, paths: Sequence[str] = PATHS) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 0
        self._count = count
        self._paths = paths
        self.answers: Counter[int] = Counter()
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-clients", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(60)

    def _run(self) -> None:
        self._loop.run_until_complete(self._all())
        self._loop.close()

    async def _all(self) -> None:
        kinds = (self._asks, self._asks, self._asks, self._never_reads, self._says_nothing)
        work = [
            asyncio.create_task(kinds[n % len(kinds)](self._paths[n % len(self._paths)])) for n in range(self._count)
        ]
        await self._over.wait()
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)

    async def _asks(self, path: str) -> None:
        while True:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, ValueError, IndexError):
                reader, writer = await asyncio.open_connection(self._host, self._port)
                try:
                    writer.write(self._request(path))
                    line = await asyncio.wait_for(reader.readline(), _PATIENCE_S)
                    self.answers[int(line.split()[1])] += 1
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
