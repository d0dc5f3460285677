"""Hands frames to readers: one a second while anybody reads, the same bytes for everybody.

A reader has at most the newest frame waiting for it. One that is slow skips seconds, then gets the whole picture; one
that takes nothing is cut off by the endpoint. Neither holds up another, nor the scheduler, which is not asked at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from slackwater.dashboard.frames import Frame, Frames

log = logging.getLogger("slackwater")

PERIOD_S = 1.0
MOST_READERS = 32
_RETRY_MS = 2000

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),
]


class Feed:
    """The frames of one application and those who read them. All but `close` belongs to the endpoint's thread."""

    def __init__(self, frames: Frames, *, period_s: float = PERIOD_S, most_readers: int = MOST_READERS) -> None:
        self._frames = frames
        self._period_s = period_s
        self._most_readers = most_readers
        self._readers: set[asyncio.Event] = set()
        self._frame: Frame | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._failed = False

    @property
    def readers(self) -> int:
        return len(self._readers)

    def close(self) -> None:
        """From any thread: every stream ends, and no new one begins."""
        self._closed = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended, and its streams with it
                self._loop.call_soon_threadsafe(self._wake_readers)

    async def stream(self, _scope: Any, receive: Receive, send: Send) -> None:
        """The answer to one reader, as an ASGI application: ends when the reader goes, and on close."""
        if self._closed or len(self._readers) >= self._most_readers:
            await _refuse(send, f"{self._most_readers} readers are served already" if not self._closed else "closing")
            return
        fresh = asyncio.Event()
        self._join(fresh)
        writing = asyncio.ensure_future(self._write(fresh, send))
        going = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({writing, going}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._readers.discard(fresh)
            for task in (writing, going):
                task.cancel()
            await asyncio.gather(writing, going, return_exceptions=True)

    def _join(self, fresh: asyncio.Event) -> None:
        self._readers.add(fresh)
        self._loop = asyncio.get_running_loop()
        if self._ticking is None or self._ticking.done():
            self._frame = None
            self._ticking = self._loop.create_task(self._tick())
        elif self._frame is not None:
            fresh.set()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while self._readers and not self._closed:
            try:
                # Not on this loop: a part of the application that is slow to tell must not hold other answers.
                self._frame, self._failed = await asyncio.to_thread(self._frames.next), False
            except Exception as error:
                if not self._failed:
                    log.warning("the page gets no news: %s: %s", type(error).__name__, error)
                self._failed = True
            self._wake_readers()
            due_s = max(due_s + self._period_s, loop.time() + self._period_s / 10)
            await asyncio.sleep(due_s - loop.time())

    def _wake_readers(self) -> None:
        for fresh in self._readers:
            fresh.set()

    async def _write(self, fresh: asyncio.Event, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await send(_body(b"retry: %d\n\n" % _RETRY_MS))
        number: int | None = None
        facts: int | None = None
        while True:
            await fresh.wait()
            fresh.clear()
            if self._closed:
                break
            frame = self._frame
            if frame is None or frame.number == number:
                continue
            await send(_body(frame.after(number, facts)))
            number, facts = frame.number, frame.facts
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _body(content: bytes) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": True}


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _refuse(send: Send, reason: str) -> None:
    headers = [(b"content-type", b"application/json"), (b"retry-after", b"5"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode({"error": reason}), "more_body": False})
