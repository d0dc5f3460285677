"""Asking an endpoint or an engine over HTTP: with a time-out, a limit on what it may answer, and strict decoding.

A middleware asks dozens of small questions a second, for ever, of engines on its own host. The standard library's
client takes 0.5 ms of CPU for one where httpx takes 1.1, and what that can do besides is not needed here.
"""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlencode, urljoin, urlsplit

import msgspec

from slackwater.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, Self

T = TypeVar("T")

TIMEOUT_S = 5.0
LARGEST_ANSWER_BYTES = 16 * 1024 * 1024

_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}
_MOST_REDIRECTS = 3
_PORTS = {"http": 80, "https": 443}
_LONGEST_REASON = 2000


class RefusedError(UnreachableError):
    """It answered, with a status that is no success: it is there, what was asked for is not.

    said: the reason in its own words, where it gave one as `{"error": …}`.
    """

    def __init__(self, message: str, status: int = 0, said: str | None = None, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.said = said
        self.retry_after_s = retry_after_s


class _Reason(msgspec.Struct):
    error: str


class Asker:
    """One engine's REST interface. The connection is kept open between periods; for one thread."""

    def __init__(self, base_url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self.base_url = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None

    def get(self, path: str, kind: type[T], **parameters: str | int) -> T:
        """The answer, decoded as `kind`; fields that it does not name are passed over."""
        query = f"?{urlencode(parameters)}" if parameters else ""
        target = urlsplit(self.base_url + path).path + query
        return self._decoded(path, kind, lambda: self._read(target, _MOST_REDIRECTS))

    def post(self, path: str, content: Any, kind: type[T], *, token: str) -> T:
        """Have something changed: `content` goes as JSON, with the token. Asked once, on a connection of its own."""
        self.close()
        headers = {**_HEADERS, "Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        body, target = msgspec.json.encode(content), urlsplit(self.base_url + path).path
        return self._decoded(path, kind, lambda: self._content(target, self._request(target, "POST", body, headers)))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _decoded(self, path: str, kind: type[T], read: Callable[[], bytes]) -> T:
        url = self.base_url + path
        try:
            return msgspec.json.decode(read(), type=kind)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            if isinstance(error, msgspec.DecodeError):
                raise UnreachableError(f"{url} answers something else than expected: {error}") from error
            raise UnreachableError(f"{url} does not answer: {type(error).__name__}: {error}".rstrip(": ")) from error

    def _read(self, target: str, redirects: int) -> bytes:
        answer = self._answer(quote(target, safe="/?&=%,:;@+$!*'()~"))
        if answer.status in (301, 302, 303, 307, 308) and redirects:
            self._whole(target, answer)
            there, here = urlsplit(urljoin(self.base_url + target, answer.headers.get("Location", ""))), self.base_url
            if (there.scheme, there.netloc) != tuple(urlsplit(here)[:2]):
                raise RefusedError(f"{here}{target} points to {there.scheme}://{there.netloc}: name that one instead.")
            return self._read(there.path + (f"?{there.query}" if there.query else ""), redirects - 1)
        return self._content(target, answer)

    def _content(self, target: str, answer: http.client.HTTPResponse) -> bytes:
        content = self._whole(target, answer)
        if not 200 <= answer.status < 300:
            message = f"{self.base_url}{target} answers: {answer.status} {answer.reason}."
            raise RefusedError(message, answer.status, _said(content), _seconds(answer.headers.get("Retry-After")))
        return content

    def _whole(self, target: str, answer: http.client.HTTPResponse) -> bytes:
        # One byte more than it may have, to see that it has.
        content = answer.read(LARGEST_ANSWER_BYTES + 1)
        if len(content) > LARGEST_ANSWER_BYTES:
            self.close()
            raise UnreachableError(f"{self.base_url}{target} answered with more than {LARGEST_ANSWER_BYTES} bytes.")
        return content

    def _answer(self, target: str) -> http.client.HTTPResponse:
        """What the engine answers; asked again where a connection of an earlier period has gone."""
        kept = self._connection is not None
        try:
            return self._request(target)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self.close()
            if not kept:
                raise
            return self._request(target)

    def _request(
        self, target: str, method: str = "GET", body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.request(method, target, body, headers or _HEADERS)
        return self._connection.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.base_url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise UnreachableError(f"{self.base_url} is no address to ask: http://HOST:PORT is needed.")
        make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return make(parts.hostname, parts.port or _PORTS[parts.scheme], timeout=self._timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _said(content: bytes) -> str | None:
    try:
        return msgspec.json.decode(content, type=_Reason).error[:_LONGEST_REASON]
    except msgspec.DecodeError:
        return None


def _seconds(header: str | None) -> float:
    return float(header) if header is not None and header.isdigit() else 0.0
