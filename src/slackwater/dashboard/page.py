"""The files of the page: those that are named here and no others, with headers that let a browser run nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

INDEX = "index.html"
_SCRIPT = "text/javascript; charset=utf-8"
_STYLE = "text/css; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
FILES = {
    INDEX: "text/html; charset=utf-8",
    "style.css": _STYLE,
    "icon.svg": "image/svg+xml",
    "app.js": _SCRIPT,
    "charts.js": _SCRIPT,
    "controls.js": _SCRIPT,
    "dom.js": _SCRIPT,
    "format.js": _SCRIPT,
    "late.js": _SCRIPT,
    "query.js": _SCRIPT,
    "shadow.js": _SCRIPT,
    "store.js": _SCRIPT,
    "summary.js": _SCRIPT,
    "table.js": _SCRIPT,
    "theme.js": _SCRIPT,
    "timeline.js": _SCRIPT,
    "vendor/uPlot.esm.js": _SCRIPT,
    "vendor/uPlot.min.css": _STYLE,
    "vendor/uPlot.LICENSE": _TEXT,
}

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Asked again each time, and answered with 304: a page never runs beside files of another version.
    "cache-control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    kind: str
    tag: str


@cache
def shipped(name: str) -> StaticFile | None:
    """A file of the page by its name; None for whatever is not named in FILES."""
    kind = FILES.get(name)
    if kind is None:
        return None
    content = (files("slackwater.dashboard") / "static" / name).read_bytes()
    return StaticFile(content, kind, f'"{hashlib.sha256(content).hexdigest()[:20]}"')


async def index(request: Request) -> Response:
    return _answer(request, INDEX)


async def static(request: Request) -> Response:
    return _answer(request, request.path_params["name"])


def _answer(request: Request, name: str) -> Response:
    from starlette.responses import Response  # noqa: PLC0415 - an extra

    # The cache takes known names only: it must not grow by what strangers ask for.
    found = shipped(name) if name in FILES else None
    if found is None:
        return Response("not found", 404, HEADERS, _TEXT)
    headers = {**HEADERS, "etag": found.tag}
    if found.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(found.content, 200, headers, found.kind)
