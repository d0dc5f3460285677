"""Who may do what: reading is free on loopback, changing needs the token, and no web page may do either.

A page from elsewhere, open in a browser on this host, can reach loopback: requests that carry another site's Origin, or
a Host that does not name this endpoint (a name that was made to point here), are refused.
"""

from __future__ import annotations

import os
import secrets
import stat
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LONGEST_TOKEN = 4096


def new_token() -> str:
    return secrets.token_urlsafe(32)


def write_token(path: Path, token: str) -> None:
    """A file that nobody but its owner can read, from its first byte on."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(token + "\n")


def read_token(path: Path) -> str:
    """The token in a file; refused when others can read it, too."""
    try:
        found = path.stat()
        token = path.read_text("utf-8")[:_LONGEST_TOKEN].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"no token can be read from {path}: {error}. Give the path of a token file."
        ) from error
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise ConfigurationError(
            f"the token file {path} can be read by others (mode {stat.S_IMODE(found.st_mode):o}). "
            "Make it yours alone: chmod 600."
        )
    if not token:
        raise ConfigurationError(f"the token file {path} is empty. Give one with a token in it.")
    return token


def permitted(authorization: str | None, token: str) -> bool:
    """Whether a header `Authorization: Bearer TOKEN` has the right token, in a time that tells nothing."""
    kind, _, given = (authorization or "").partition(" ")
    return secrets.compare_digest(given.strip().encode(), token.encode()) and kind.lower() == "bearer"


def refusal(headers: Mapping[str, str], bound_host: str) -> str | None:
    """Why a request is refused before it is looked at: it comes from another site's page. None: it may go on."""
    host = urlsplit("//" + headers.get("host", "")).hostname or ""
    if not _names_us(host, bound_host):
        return f"the Host {host[:80]!r} is not this endpoint's"
    origin = headers.get("origin")
    if origin is not None and not _names_us(urlsplit(origin).hostname or "", bound_host):
        return "requests of other sites' pages are not answered"
    return None


def _names_us(host: str, bound_host: str) -> bool:
    if host in ("localhost", bound_host):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    # Bound to all addresses: whoever came by a number did not come by a forged name.
    return address.is_loopback or bound_host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
