"""Who may do what: reading is free on loopback, changing needs the token, and no web page may do either.

A page from elsewhere, open in a browser on this host, can reach loopback: requests that carry another site's Origin, or
a Host that does not name this endpoint (a name that was made to point here), are refused. So are those without an
Origin that a browser marks as another page's: a picture or a script there could take up places of this endpoint.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from ipaddress import ip_address
from typing import TYPE_CHECKING

from slackwater.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LONGEST_TOKEN_BYTES = 4096
_AUTHORITY = re.compile(r"(?:\[(?P<number>[0-9a-fA-F:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
_SCHEMES = ("http://", "https://")


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
        found, content = _opened(path)
        token = content.decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"no token can be read from {path}: {error}. Give the path of a token file."
        ) from error
    if not stat.S_ISREG(found.st_mode) or len(content) > _LONGEST_TOKEN_BYTES:
        raise ConfigurationError(f"{path} is no token file: it is too large, or no file. Give one with a token in it.")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise ConfigurationError(
            f"the token file {path} can be read by others (mode {stat.S_IMODE(found.st_mode):o}). "
            "Make it yours alone: chmod 600."
        )
    if not token:
        raise ConfigurationError(f"the token file {path} is empty. Give one with a token in it.")
    return token


def _opened(path: Path) -> tuple[os.stat_result, bytes]:
    """What one file is and begins with: both of the same one, whoever exchanges it meanwhile. A pipe holds nobody."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        found = os.fstat(file.fileno())
        return found, file.read(_LONGEST_TOKEN_BYTES + 1) if stat.S_ISREG(found.st_mode) else b""


def permitted(authorization: str | None, token: str) -> bool:
    """Whether a header `Authorization: Bearer TOKEN` has the right token, in a time that tells nothing."""
    kind, _, given = (authorization or "").partition(" ")
    return secrets.compare_digest(given.strip().encode(), token.encode()) and kind.lower() == "bearer"


def refusal(headers: Mapping[str, str], bound_host: str) -> str | None:
    """Why a request is refused before it is looked at: it comes from another site's page. None: it may go on."""
    authority = headers.get("host", "")
    if not _names_us(authority, bound_host.lower()):
        return f"the Host {authority[:80]!r} is not this endpoint's"
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in [scheme + authority.lower() for scheme in _SCHEMES]:
        return "requests of other sites' pages are not answered"
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not _follows_a_link(headers):
        return "other sites' pages can link to this one, not use it"
    return None


def _follows_a_link(headers: Mapping[str, str]) -> bool:
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


def _names_us(authority: str, bound_host: str) -> bool:
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return False
    host = (found["number"] or found["name"]).lower()
    if host in ("localhost", bound_host):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    # Bound to all addresses: whoever came by a number did not come by a forged name.
    return address.is_loopback or bound_host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
