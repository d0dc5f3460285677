"""HTTP connections that nobody can hold for ever: uvicorn's own, with deadlines and room for newcomers.

Uvicorn closes a connection that is idle after an answer, but waits without end for the first byte, for the rest of a
head that drips in, and for a reader that takes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

    from slackwater.endpoint.limits import Limits

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class PatientProtocol(H11Protocol):
    """One connection. `limits` comes with the subclass that `patient` makes."""

    limits: Limits
    _deadline: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    _since_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._room():
            transport.write(_FULL)
            transport.close()
            return
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before and not self._idle:
            _cancel(self._deadline)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # The next request may have come behind the last one already.
        if self._idle and not self.transport.is_closing():
            self._expect_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(self.limits.taking_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._stuck)

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._deadline)
        _cancel(self._stuck)
        super().connection_lost(exc)

    @property
    def _idle(self) -> bool:
        """It waits for a request: nothing of it would be lost if it were closed."""
        return self.cycle is None or self.cycle.response_complete

    def _expect_request(self) -> None:
        _cancel(self._deadline)
        self._since_s = self.loop.time()
        self._deadline = self.loop.call_later(self.limits.request_s, self.transport.abort)

    def _room(self) -> bool:
        """For one more; made, if need be, by closing the one that has waited longest for its next request."""
        others = [other for other in self.connections if other is not self and not other.transport.is_closing()]
        if len(others) < self.limits.connections:
            return True
        idle = [other for other in others if isinstance(other, PatientProtocol) and other._idle]  # noqa: SLF001
        if not idle:
            return False
        min(idle, key=lambda other: other._since_s).transport.close()  # noqa: SLF001
        return True


def patient(limits: Limits) -> type[PatientProtocol]:
    return type("LimitedProtocol", (PatientProtocol,), {"limits": limits})


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
