"""Forwarding of one application: its post, a courier for each neighbour, and a thread that looks for neighbours."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from slackwater.endpoint import discovery
from slackwater.endpoint.server import Refused
from slackwater.forwarding.courier import PATH, Courier
from slackwater.forwarding.letters import UnusableLetterError
from slackwater.forwarding.post import Post
from slackwater.forwarding.settings import MOST_PEERS, Forwarding, Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from slackwater.core.words import Heard, Words
    from slackwater.endpoint.server import Change
    from slackwater.forwarding.letters import Letter

log = logging.getLogger("slackwater")

_LOOK_EVERY_S = 1.0
_ENDING_S = 1.0


class Forwarder:
    """Started at once; `wake` is called, on a thread of its own, when a neighbour said something new."""

    def __init__(
        self,
        application_id: str,
        settings: Forwarding,
        wake: Callable[[], None],
        *,
        folder: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._wake = wake
        self._folder = folder or discovery.default_folder()
        self._application_id = application_id
        self._stop, self._changed = threading.Event(), threading.Event()
        self._post = Post(application_id, settings.stale_after_s, clock, self._changed.set)
        self._couriers: dict[Peer, Courier] = {}
        self._thread = threading.Thread(target=self._run, name="slackwater-forward", daemon=True)
        self._thread.start()

    # ---- the scheduler's side: never waits ----------------------------------------------------------------------

    def heard(self) -> tuple[Heard, ...]:
        return self._post.heard()

    def publish(self, words: Words) -> None:
        self._post.publish(words)

    # ---- the endpoint's side ------------------------------------------------------------------------------------

    def routes(self) -> Mapping[str, Change]:
        return {PATH: self._receive}

    def _receive(self, raw: bytes) -> Letter:
        try:
            return self._post.receive(raw)
        except UnusableLetterError as error:
            raise Refused(str(error)) from error

    # ---- its own ------------------------------------------------------------------------------------------------

    @property
    def couriers(self) -> tuple[Courier, ...]:
        return tuple(self._couriers.values())

    def close(self) -> None:
        """Stop telling and asking. Doing it again does nothing."""
        self._stop.set()
        self._changed.set()
        self._thread.join(_ENDING_S)
        couriers = self.couriers
        for courier in couriers:
            courier.close()
        self._couriers.clear()
        for courier in couriers:
            courier.join(_ENDING_S)

    def _run(self) -> None:
        look_at = 0.0
        while not self._stop.is_set():
            if time.monotonic() >= look_at:
                self._look()
                look_at = time.monotonic() + _LOOK_EVERY_S
            if self._changed.wait(_LOOK_EVERY_S) and not self._stop.is_set():
                self._changed.clear()
                try:
                    self._wake()
                except Exception as error:  # the session may be ending; its own thread will tell
                    log.debug("the scheduler could not be woken: %s: %s", type(error).__name__, error)

    def _look(self) -> None:
        """Couriers for those who are there, and none for those who are gone."""
        try:
            found = (
                [
                    Peer(said.url, said.token_file)
                    for said in discovery.announced(self._folder)
                    if said.application_id != self._application_id
                ]
                if self._settings.discover
                else []
            )
            peers = list(dict.fromkeys([*self._settings.peers, *found]))[:MOST_PEERS]
        except Exception as error:
            log.debug("neighbours could not be looked for: %s: %s", type(error).__name__, error)
            return
        for peer in self._couriers.keys() - set(peers):
            self._couriers.pop(peer).close()
        for peer in peers:
            if peer not in self._couriers:
                self._couriers[peer] = Courier(peer, self._post, self._settings, named=peer in self._settings.peers)
