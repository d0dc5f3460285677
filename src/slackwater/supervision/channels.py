"""How people hear of alarms: each channel has a thread and a bounded queue of its own, and harms nobody."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from slackwater.endpoint.untold import untold
from slackwater.supervision.settings import host_of

if TYPE_CHECKING:
    from slackwater.supervision.alarms import Notice

log = logging.getLogger("slackwater")

_QUEUED = 200
_TIMEOUT_S = 5.0
_TRIES = 4
_FIRST_PAUSE_S = 1.0
_CLOSING_S = 2.0
_WORTH_ANOTHER_TRY = frozenset({408, 425, 429, 500, 502, 503, 504})

Deliver = Callable[["Notice", threading.Event], bool]
"""Hands one notice over; True: it arrived. Gives up early when the event is set."""


class Outbox:
    """Delivers in order, one at a time. When the queue is full, the oldest that waits is let go, and counted."""

    def __init__(self, name: str, deliver: Deliver) -> None:
        self.delivered = 0
        self.undelivered = 0
        self._name, self._deliver = name, deliver
        self._waiting: queue.Queue[Notice | None] = queue.Queue(_QUEUED)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"slackwater-{name}", daemon=True)
        self._thread.start()

    def put(self, notice: Notice | None) -> None:
        while True:
            try:
                self._waiting.put_nowait(notice)
            except queue.Full:
                with suppress(queue.Empty):
                    self._waiting.get_nowait()
                    self.undelivered += 1
            else:
                return

    def close(self) -> None:
        """What waits may still go within a moment; nobody waits longer."""
        self.put(None)
        self._thread.join(_CLOSING_S)
        self._stop.set()

    def _run(self) -> None:
        troubled = False
        while not self._stop.is_set():
            notice = self._waiting.get()
            if notice is None:
                return
            try:
                arrived = self._deliver(notice, self._stop)
            except Exception as error:
                arrived = False
                if not troubled:
                    # Only the kind: what an error says may hold the address, and that a secret.
                    log.warning("an alarm could not be told by %s: %s", self._name, type(error).__name__)
            troubled = not arrived
            self.delivered += arrived
            self.undelivered += not arrived


def by_function(tell: Callable[[Notice], object]) -> Deliver:
    def deliver(notice: Notice, _: threading.Event) -> bool:
        tell(notice)
        return True

    return deliver


class Webhook:
    """POSTs each notice as JSON, with a few tries. Follows no redirects; logs no more of the address than its host."""

    def __init__(self, address: str, first_pause_s: float = _FIRST_PAUSE_S) -> None:
        self._address = address
        self._first_pause_s = first_pause_s
        self._troubled = False

    def __call__(self, notice: Notice, stop: threading.Event) -> bool:
        body = msgspec.json.encode({"text": notice.text, **msgspec.to_builtins(notice)})
        why = ""
        for attempt in range(_TRIES):
            if attempt and stop.wait(self._first_pause_s * 2 ** (attempt - 1)):
                break
            why, again = self._post(body)
            if not why:
                self._troubled = False
                return True
            if not again:
                break
        if not self._troubled:
            self._troubled = True
            log.warning("the webhook at %s did not take an alarm (%s); it is in the log", host_of(self._address), why)
        return False

    def _post(self, body: bytes) -> tuple[str, bool]:
        """Why it did not arrive (nothing: it did), and whether another try may help."""
        import httpx2  # noqa: PLC0415 - so that attach() needs numpy and msgspec alone, where there is no webhook

        headers = {"content-type": "application/json", "user-agent": "slackwater"}
        try:
            with untold():
                answer = httpx2.post(
                    self._address, content=body, headers=headers, timeout=_TIMEOUT_S, follow_redirects=False
                )
        except httpx2.TransportError as error:
            return type(error).__name__, True
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return type(error).__name__, False
        if answer.is_success:
            return "", False
        return f"it answered {answer.status_code}", answer.status_code in _WORTH_ANOTHER_TRY
