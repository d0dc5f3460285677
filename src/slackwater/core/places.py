"""Where a query reads or writes, in one spelling: who writes where another reads is chained to it.

Spark's file sink says its folder as the user wrote it, its file source as Hadoop qualifies it: `/data/a/`,
`file:/data/a` and `file:///data/a` are one place. What is no path (`topic:clicks@broker:9092`, a table's name) is
taken as it is.
"""

from __future__ import annotations

import re

_LOCAL = re.compile(r"^file:/+")
_SLASHES = re.compile(r"(?<!:)/{2,}")


def normalised(place: str) -> str:
    """One spelling for every place; a path without a scheme is one of the local file system."""
    text = place.strip()
    if text.startswith("/"):
        text = f"file:{text}"
    text = _LOCAL.sub("file:/", text)
    text = _SLASHES.sub("/", text)
    return text.rstrip("/") if text != "file:/" else text
