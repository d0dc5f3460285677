"""The HTTP server of an attached application: a thread of its own, loopback by default, nothing that can hold a query.

It reads what the scheduler knew at its last decision and never waits for it. Routes are given by who serves: reading by
GET, changing by POST with the token; a page, a stream of events or a text for a collector answers in its own form.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from slackwater.endpoint import access, discovery
from slackwater.endpoint.limits import Limits, retry_after
from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

log = logging.getLogger("slackwater")

LOOPBACK = "127.0.0.1"
LARGEST_BODY_BYTES = 256 * 1024
_STARTING_S = 10.0
_ENDING_S = 3.0

Parameters = Mapping[str, str]
Read = Callable[[Parameters], Any]
Change = Callable[[bytes], Any]
Answer = Callable[["Request"], Awaitable["Response"]]


class Refused(Exception):  # noqa: N818 - an answer, not a failure
    """Raised by a route: the request cannot be served, for the reason given."""

    def __init__(self, reason: str, status: int = 400, *, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after_s = retry_after_s


def application(
    reads: Mapping[str, Read],
    changes: Mapping[str, Change],
    own: Mapping[str, Answer] | None = None,
    *,
    token: str,
    host: str,
    limits: Limits | None = None,
) -> ASGIApp:
    """The ASGI application: GET each of `reads`, POST each of `changes` with the token; JSON both ways.

    A read takes the parameters of path and query, a change the body as it came, for a strict decoder. Either may raise
    Refused, and either runs on a thread of its own: one that waits holds no other. `own` are GET routes that answer in
    a form of their own, on the server's loop. All are behind the same door (`door.py`).
    """
    try:
        from starlette.applications import Starlette  # noqa: PLC0415 - an extra
        from starlette.routing import Route  # noqa: PLC0415
    except ImportError as error:
        raise ConfigurationError(
            "serving needs starlette and uvicorn, which are not installed: pip install 'slackwater[dashboard]'."
        ) from error

    from slackwater.endpoint.door import Door  # noqa: PLC0415

    limits, own = limits or Limits(), own or {}
    routes = Starlette(
        routes=[
            *(Route(path, _reading(read), methods=["GET"]) for path, read in reads.items()),
            *(Route(path, _changing(change, limits.body_s), methods=["POST"]) for path, change in changes.items()),
            *(Route(path, answer, methods=["GET"]) for path, answer in own.items()),
        ]
    )
    return Door(routes, token=token, host=host, limits=limits, changes=changes, own=own)


def _reading(read: Read) -> Answer:
    async def answer(request: Request) -> Response:
        from starlette.concurrency import run_in_threadpool  # noqa: PLC0415

        parameters = {**request.query_params, **request.path_params}
        return await _answered(request, lambda: run_in_threadpool(read, parameters))

    return answer


def _changing(change: Change, body_s: float) -> Answer:
    async def answer(request: Request) -> Response:
        from starlette.concurrency import run_in_threadpool  # noqa: PLC0415

        async def work() -> Any:
            return await run_in_threadpool(change, await _body(request, body_s))

        return await _answered(request, work)

    return answer


async def _answered(request: Request, work: Callable[[], Awaitable[Any]]) -> Response:
    try:
        return _json(await work())
    except Refused as why:
        headers = {} if why.retry_after_s is None else {"retry-after": retry_after(why.retry_after_s)}
        return _json({"error": str(why)}, why.status, headers)
    except Exception as error:
        log.warning("the endpoint could not answer %s: %s: %s", request.url.path, type(error).__name__, error)
        return _json({"error": "internal error; see the application's log"}, 500)


async def _body(request: Request, body_s: float) -> bytes:
    """What is refused is not cut off: that would lose the answer. The rest has as long as a next request would have."""
    content = bytearray()
    try:
        async with asyncio.timeout(body_s):
            async for chunk in request.stream():
                content += chunk
                if len(content) > LARGEST_BODY_BYTES:
                    raise Refused(f"the request is larger than {LARGEST_BODY_BYTES} bytes", 413)
    except TimeoutError:
        raise Refused(f"the request's body was not there within {body_s:g} s", 408) from None
    return bytes(content)


def _json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    from starlette.responses import Response  # noqa: PLC0415

    return Response(msgspec.json.encode(content), status, headers, "application/json")


class Endpoint:
    """A running server, announced in the discovery folder. `close` takes both away."""

    def __init__(
        self,
        *,
        application_id: str,
        name: str,
        reads: Mapping[str, Read],
        changes: Mapping[str, Change] | None = None,
        own: Mapping[str, Answer] | None = None,
        host: str = LOOPBACK,
        port: int = 0,
        folder: Path | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.token = access.new_token()
        self._folder = discovery.ready(folder or discovery.default_folder())
        self._application_id = application_id
        limits = limits or Limits()
        served = application(reads, changes or {}, own, token=self.token, host=host, limits=limits)
        self._socket = _bound(host, port)
        self.port = int(self._socket.getsockname()[1])
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        self._server = _server(served, limits)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="slackwater-http", daemon=True
        )
        self.token_file = self._folder / (discovery.file_name(application_id) + ".token")
        self._announcement: Path | None = None
        self._thread.start()
        try:
            self._await_start()
            self._announce(name)
        except OSError as error:
            self.close()
            raise ConfigurationError(
                f"the endpoint cannot be announced in {self._folder}: {error.strerror}. Make room there, or set "
                "SLACKWATER_RUNTIME_DIR to another folder."
            ) from error
        except BaseException:
            self.close()
            raise

    def _announce(self, name: str) -> None:
        access.write_token(self.token_file, self.token)
        self._announcement = discovery.announce(
            self._folder,
            discovery.Announcement(
                application_id=self._application_id,
                name=name,
                url=self.url,
                token_file=str(self.token_file),
                pid=os.getpid(),
                started_ticks=discovery.started_ticks(os.getpid()),
            ),
        )

    def close(self) -> None:
        """Stop answering. Doing it again does nothing."""
        for path in filter(None, (self._announcement, self.token_file)):
            with suppress(OSError):
                path.unlink(missing_ok=True)
        self._server.should_exit = True
        self._thread.join(_ENDING_S)
        self._server.force_exit = True
        with suppress(OSError):
            self._socket.close()

    def _await_start(self) -> None:
        waited = threading.Event()
        for _ in range(round(_STARTING_S / 0.02)):
            if self._server.started:
                return
            if not self._thread.is_alive():
                break
            waited.wait(0.02)
        raise ConfigurationError(f"the endpoint did not start at {self.url}; see the log. Try another port.")


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigurationError(
            f"the endpoint cannot listen at {host}:{port}: {error.strerror}. Give another port, or 0 for any free one."
        ) from error
    return bound


def _server(served: ASGIApp, limits: Limits) -> Any:
    import uvicorn  # noqa: PLC0415 - an extra

    from slackwater.endpoint.protocol import patient  # noqa: PLC0415

    config = uvicorn.Config(
        served,
        http=patient(limits),
        h11_max_incomplete_event_size=limits.head_bytes,
        log_config=None,
        # A warning for each odd request would let whoever sends them fill the application's log.
        log_level="error",
        access_log=False,
        lifespan="off",
        backlog=128,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=1,
        proxy_headers=False,
        server_header=False,
        ws="none",
    )
    return uvicorn.Server(config)
