"""The post of one application: what it says now, and what its neighbours said last. No network, no waiting.

The scheduler's thread calls `publish` and `heard`, which never wait for anybody; the endpoint and the couriers call the
rest.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from slackwater.core.words import Heard, Words
from slackwater.forwarding.letters import Letter, UnusableLetterError, counted, opened

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("slackwater")

_MOST_SENDERS = 64
_MOST_TOLD = 256


class Post:
    """`clock` tells wall time; `changed` is called, from any thread, when a neighbour said something new."""

    def __init__(
        self,
        application_id: str,
        stale_after_s: float,
        clock: Callable[[], float],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.application_id = application_id
        self._stale_after_s = stale_after_s
        self._clock = clock
        self._changed = changed
        self._lock = threading.Lock()
        self._words = Words()
        self._letters: dict[str, Letter] = {}
        self._heard: tuple[Heard, ...] = ()
        self._told: set[str] = set()
        self._listeners: list[threading.Event] = []

    # ---- the scheduler's side -----------------------------------------------------------------------------------

    def heard(self) -> tuple[Heard, ...]:
        return self._heard

    def publish(self, words: Words) -> None:
        if words == self._words:
            return
        self._words = words
        for listener in tuple(self._listeners):
            listener.set()

    # ---- the network's side -------------------------------------------------------------------------------------

    def listen(self, event: threading.Event) -> None:
        """Set this event whenever there is something new to tell."""
        self._listeners.append(event)

    def unlisten(self, event: threading.Event) -> None:
        self._listeners.remove(event)

    def letter_to(self, application_id: str | None) -> Letter:
        """For a neighbour what it needs, as far as it said what it reads and writes; for a stranger the places only."""
        known = self._letters.get(application_id or "")
        reads, writes = (known.words.reads, known.words.writes) if known is not None else (frozenset(), frozenset())
        return Letter(
            application_id=self.application_id, sent_wall_ts=self._clock(), words=self._words.to(reads, writes)
        )

    def receive(self, raw: bytes) -> Letter:
        """Take a letter in and answer it. Raises UnusableLetterError."""
        return self.letter_to(self.take(raw).application_id)

    def take(self, raw: bytes) -> Letter:
        now = self._clock()
        try:
            letter = opened(raw, now, self._stale_after_s, self.application_id)
        except UnusableLetterError as error:
            self._tell(f"a neighbour's letter is not heeded: {error}")
            raise
        with self._lock:
            before = self._letters.get(letter.application_id)
            if before is not None and letter.sent_wall_ts < before.sent_wall_ts and self._counts(before, now):
                return letter  # overtaken on the way
            self._letters = {sender: known for sender, known in self._letters.items() if self._counts(known, now)} | {
                letter.application_id: letter
            }
            while len(self._letters) > _MOST_SENDERS:
                del self._letters[min(self._letters, key=lambda sender: self._letters[sender].sent_wall_ts)]
            self._heard = tuple(counted(known, self._stale_after_s) for known in self._letters.values())
        if before is None or before.words != letter.words:
            self._changed()
        return letter

    def _counts(self, letter: Letter, now_wall_ts: float) -> bool:
        return letter.sent_wall_ts + self._stale_after_s > now_wall_ts

    def _tell(self, text: str) -> None:
        """Each complaint once: a neighbour that talks nonsense does so twice a second."""
        kind = text.translate(str.maketrans("", "", "0123456789.-"))
        if kind not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(kind)
            log.warning("%s; this side goes on by what it knows itself", text)
