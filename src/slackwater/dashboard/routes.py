"""What the endpoint answers for the page: the page itself, its files, and the stream of frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from slackwater.dashboard import page
from slackwater.dashboard.feed import Feed
from slackwater.dashboard.frames import Frames

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from slackwater.core.records import Records
    from slackwater.dashboard.frames import Source
    from slackwater.endpoint.server import Answer


class Page:
    """The page of one application. Close it before the endpoint, so that open streams end by themselves."""

    def __init__(self, source: Source, records: Records) -> None:
        self.feed = Feed(Frames(source, records))

    def routes(self) -> dict[str, Answer]:
        return {"/": page.index, "/static/{name:path}": page.static, "/api/events": self._events}

    def close(self) -> None:
        self.feed.close()

    async def _events(self, _: Request) -> Response:
        return cast("Response", self.feed.stream)  # whatever answers as ASGI does will do
