"""`GET /metrics` of the endpoint."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from slackwater.endpoint.overview import Overview
    from slackwater.endpoint.server import Answer
    from slackwater.telemetry.readings import Alarms
    from slackwater.telemetry.totals import Totals

log = logging.getLogger("slackwater")

_HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def metrics_routes(overview: Callable[[], Overview], totals: Totals, alarms: Alarms | None = None) -> dict[str, Answer]:
    """Without prometheus-client the route says what to install, and all others work."""
    try:
        from slackwater.telemetry.exposition import Exposition  # noqa: PLC0415 - an extra
    except ImportError:
        return {"/metrics": _missing}
    exposition = Exposition(overview, totals, alarms)

    async def metrics(request: Request) -> Response:
        from starlette.concurrency import run_in_threadpool  # noqa: PLC0415 - an extra
        from starlette.responses import PlainTextResponse, Response  # noqa: PLC0415

        try:
            # Elsewhere than in the endpoint's loop, which has events to bring out.
            text, kind = await run_in_threadpool(exposition.render, request.headers.get("accept", ""))
        except Exception as error:
            log.warning("the endpoint could not give metrics: %s: %s", type(error).__name__, error)
            return PlainTextResponse("internal error; see the application's log\n", 500, _HEADERS)
        return Response(text, headers=_HEADERS | {"content-type": kind})

    return {"/metrics": metrics}


async def _missing(_: Request) -> Response:
    from starlette.responses import PlainTextResponse  # noqa: PLC0415

    what = "metrics need prometheus-client, which is not installed: pip install 'slackwater[dashboard]'\n"
    return PlainTextResponse(what, 501, _HEADERS)
