"""What a user may say about forwarding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from urllib.parse import urlsplit

from slackwater.errors import ConfigurationError

MOST_PEERS = 16


@dataclass(frozen=True, slots=True)
class Peer:
    """An application that is asked by address: its endpoint, and a file with the token that it wants to see."""

    url: str
    token_file: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"Peer(url={self.url!r}): an address such as http://10.0.0.5:4050 is needed.")


@dataclass(frozen=True, slots=True)
class Forwarding:
    """With whom and how often an application exchanges what chained queries need to know.

    peers: applications elsewhere; those of this user on this host are found by themselves unless `discover` is False.
    period_s: how often words are renewed; what changes is told at once.
    timeout_s: for connecting, sending and each read. stale_after_s: older words no longer count.
    """

    peers: tuple[Peer, ...] = ()
    discover: bool = True
    period_s: float = 0.5
    timeout_s: float = 1.0
    stale_after_s: float = 3.0

    def __post_init__(self) -> None:
        if not isinstance(self.peers, tuple) or not all(isinstance(peer, Peer) for peer in self.peers):
            raise ConfigurationError(f"Forwarding(peers={self.peers!r}): a tuple of Peer(url, token_file) is needed.")
        if len(self.peers) > MOST_PEERS:
            raise ConfigurationError(f"Forwarding(peers=…): {len(self.peers)} are given, {MOST_PEERS} are the most.")
        for name in ("period_s", "timeout_s", "stale_after_s"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 < value < math.inf):
                raise ConfigurationError(f"Forwarding({name}={value!r}): a positive number of seconds is needed.")
        if self.stale_after_s < 2 * self.period_s:
            raise ConfigurationError(
                f"Forwarding(stale_after_s={self.stale_after_s!r}): words are renewed every {self.period_s} s and must "
                "count for two such periods at least, or one lost message is a lost neighbour."
            )
