"""What a standalone master tells about its cluster, on its own page of JSON."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from typing import Final

import msgspec

from slackwater.cluster.daemons import LOOPBACK

_TIMEOUT_S: Final = 10.0


class SeenWorker(msgspec.Struct):
    """A worker that has registered at some time; `state` is ALIVE or DEAD, or one on the way."""

    port: int
    cores: int
    coresused: int
    state: str


class SeenApplication(msgspec.Struct):
    id: str
    name: str
    cores: int


class MasterPage(msgspec.Struct):
    url: str
    workers: list[SeenWorker] = []
    activeapps: list[SeenApplication] = []

    def alive(self, port: int) -> SeenWorker | None:
        """The worker at this port, while the master counts on it."""
        return next((worker for worker in self.workers if worker.port == port and worker.state == "ALIVE"), None)


def read_page(web_port: int) -> MasterPage | None:
    """None while nobody answers there."""
    # No proxy: whatever the environment says, loopback is reached directly.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{LOOPBACK}:{web_port}/json/", timeout=_TIMEOUT_S) as answer:
            return msgspec.json.decode(answer.read(), type=MasterPage)
    except (TimeoutError, urllib.error.URLError, http.client.HTTPException, ConnectionError, msgspec.DecodeError):
        return None
