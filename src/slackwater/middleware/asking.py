"""Asking an engine over HTTP: with a time-out, a limit on what it may answer, and strict decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import httpx2
import msgspec

from slackwater.middleware.model import UnreachableError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

T = TypeVar("T")

TIMEOUT_S = 5.0
LARGEST_ANSWER_BYTES = 16 * 1024 * 1024


class Asker:
    """One engine's REST interface. Connections are kept open between periods."""

    def __init__(self, base_url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self.base_url = base_url.rstrip("/")
        # What an engine on this host says is asked of it directly, whatever proxy the environment names.
        self._client = httpx2.Client(timeout=timeout_s, trust_env=False, follow_redirects=True)

    def get(self, path: str, kind: type[T], **parameters: str | int) -> T:
        """The answer, decoded as `kind`; fields that it does not name are passed over."""
        url = self.base_url + path
        content = bytearray()
        try:
            with self._client.stream("GET", url, params=parameters) as answer:
                answer.raise_for_status()
                for chunk in answer.iter_bytes():
                    content += chunk
                    if len(content) > LARGEST_ANSWER_BYTES:
                        raise UnreachableError(f"{url} answered with more than {LARGEST_ANSWER_BYTES} bytes.")
            return msgspec.json.decode(bytes(content), type=kind)
        except httpx2.HTTPError as error:
            raise UnreachableError(f"{url} does not answer: {type(error).__name__}: {error}".rstrip(": ")) from error
        except msgspec.DecodeError as error:
            raise UnreachableError(f"{url} answers something else than expected: {error}") from error

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
