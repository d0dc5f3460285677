"""One thread for each neighbour: brings our letter and takes its answer, again and again, whatever the network does."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from slackwater.endpoint.access import read_token
from slackwater.endpoint.untold import untold
from slackwater.errors import SlackwaterError
from slackwater.forwarding.letters import LARGEST_LETTER_BYTES, UnusableLetterError, encode

if TYPE_CHECKING:
    import httpx2

    from slackwater.forwarding.post import Post
    from slackwater.forwarding.settings import Forwarding, Peer

log = logging.getLogger("slackwater")

PATH = "/api/forward"
_SLOWEST_S = 2.0
_SHORTEST_S = 0.02


class Courier:
    """Exchanges letters with one peer every period, and at once when there is news; slower while it does not answer."""

    def __init__(self, peer: Peer, post: Post, settings: Forwarding, *, named: bool) -> None:
        self.peer = peer
        self._named = named
        self.exchanges = 0
        self.failures = 0
        self._post, self._settings = post, settings
        self._neighbour: str | None = None
        self._stop, self._news = threading.Event(), threading.Event()
        self._lost = False
        self._thread = threading.Thread(target=self._run, name="slackwater-courier", daemon=True)
        post.listen(self._news)
        self._thread.start()

    def close(self) -> None:
        """Ends with the exchange under way; nobody waits longer than the time-outs for it."""
        self._stop.set()
        self._news.set()
        self._post.unlisten(self._news)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        import httpx2  # noqa: PLC0415 - so that attach() needs numpy and msgspec alone, where nothing is forwarded

        pause_s = self._settings.period_s
        # What goes between chained applications goes directly, whatever proxy the environment names.
        with untold(), httpx2.Client(timeout=self._settings.timeout_s, trust_env=False) as client:
            while not self._stop.is_set():
                self._news.clear()
                try:
                    self._exchange(client)
                    self._back()
                    pause_s = self._settings.period_s
                except (httpx2.HTTPError, httpx2.InvalidURL, UnusableLetterError, SlackwaterError, OSError) as error:
                    self.failures += 1
                    self._gone(error)
                    pause_s = min(_SLOWEST_S, 2 * pause_s)
                # A peer that does not answer is not asked faster because there is news.
                waiting = self._stop if self._lost else self._news
                waiting.wait(pause_s)
                # News come in bursts: what is published within a moment travels together.
                self._stop.wait(_SHORTEST_S)

    def _exchange(self, client: httpx2.Client) -> None:
        letter = encode(self._post.letter_to(self._neighbour))
        headers = {
            "authorization": f"Bearer {read_token(Path(self.peer.token_file))}",
            "content-type": "application/json",
        }
        content = bytearray()
        # A time-out of the client counts between two bytes; the whole may not take longer than this either.
        give_up = time.monotonic() + 2 * self._settings.timeout_s
        with client.stream("POST", self.peer.url.rstrip("/") + PATH, content=letter, headers=headers) as answer:
            answer.raise_for_status()
            for chunk in answer.iter_bytes():
                content += chunk
                if len(content) > LARGEST_LETTER_BYTES or time.monotonic() > give_up:
                    raise UnusableLetterError(f"its answer is endless, {len(content)} bytes so far")
        self._neighbour = self._post.take(bytes(content)).application_id
        self.exchanges += 1

    def _gone(self, error: Exception) -> None:
        if not self._lost:
            self._lost = True
            # One that was found here may just have ended; one that the user named should be there.
            log.log(
                logging.WARNING if self._named else logging.INFO,
                "the scheduler at %s does not answer (%s: %s); this side goes on by what it knows and asks again",
                self.peer.url,
                type(error).__name__,
                error,
            )

    def _back(self) -> None:
        if self._lost:
            self._lost = False
            log.info("the scheduler at %s answers again", self.peer.url)
