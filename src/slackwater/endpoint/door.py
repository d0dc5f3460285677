"""What every request passes before anybody looks at it, and what every answer carries.

In this order: is it for us (Host, Origin), has it the token where it changes something, is it not one too many.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import msgspec

from slackwater.endpoint import access
from slackwater.endpoint.limits import Bucket, retry_after

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from slackwater.endpoint.limits import Limits

log = logging.getLogger("slackwater")

# Unless an answer sets its own: the page allows its own scripts and styles.
_ALWAYS = {
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}
_TELL_EVERY_S = 60.0


class Door:
    """An ASGI application around another one. `changes` are the paths that need the token; `own` are no plain reads."""

    def __init__(
        self,
        served: ASGIApp,
        *,
        token: str,
        host: str,
        limits: Limits,
        changes: Collection[str],
        own: Collection[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._served = served
        self._token, self._host = token, host
        self._own = frozenset(own)
        self._clock = clock
        self._reads, self._pages = Bucket(limits.reads, clock), Bucket(limits.pages, clock)
        self._wrong = Bucket(limits.wrong_tokens, clock)
        self._changes = {path: Bucket(limits.changes, clock) for path in changes}
        self._told_s = -_TELL_EVERY_S

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *((n, v) for n, v in _ALWAYS.items() if n not in given)]
            await send(message)

        refused = self._refusal(scope)
        if refused is None:
            await self._served(scope, receive, guarded)
        else:
            await _refuse(guarded, *refused)

    def _refusal(self, scope: Scope) -> tuple[int, str, dict[bytes, bytes]] | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        foreign = access.refusal(headers, self._host)
        if foreign is not None:
            return 403, foreign, {}
        path, method = scope["path"], scope["method"]
        if method == "POST" and path in self._changes:
            if not access.permitted(headers.get("authorization"), self._token):
                return self._not_permitted(path)
            return _too_many(self._changes[path].take(), "changes")
        reads = method == "GET" and path.startswith("/api/") and path not in self._own
        return _too_many((self._reads if reads else self._pages).take(), "requests")

    def _not_permitted(self, path: str) -> tuple[int, str, dict[bytes, bytes]]:
        now_s = self._clock()
        if now_s - self._told_s >= _TELL_EVERY_S:
            self._told_s = now_s
            log.warning("the endpoint refused a change at %s: no token, or a wrong one", path)
        refused = _too_many(self._wrong.take(), "wrong tokens")
        why = "this changes something and needs the token: Authorization: Bearer …"
        return refused or (401, why, {b"www-authenticate": b"Bearer"})


def _too_many(wait_s: float, what: str) -> tuple[int, str, dict[bytes, bytes]] | None:
    if wait_s <= 0:
        return None
    after = retry_after(wait_s)
    return 429, f"too many {what}; ask again in {after} s", {b"retry-after": after.encode()}


async def _refuse(send: Send, status: int, why: str, headers: dict[bytes, bytes]) -> None:
    body = msgspec.json.encode({"error": why})
    always = {b"content-type": b"application/json", b"content-length": str(len(body)).encode()}
    await send({"type": "http.response.start", "status": status, "headers": [*(always | headers).items()]})
    await send({"type": "http.response.body", "body": body})
