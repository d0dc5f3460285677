"""Names of queries come from anywhere: shown so that none can move a cursor, end a line or turn the text around."""

from __future__ import annotations

import unicodedata

# Controls, formats (right-to-left marks among them), surrogates, unassigned, private, line and paragraph separators.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"})


def plain(text: str) -> str:
    """The text with everything that a terminal could obey written out as its escape in Python."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_written(char) if unicodedata.category(char) in _UNSEEN else char for char in text)


def quoted(name: str) -> str:
    return f"“{plain(name)}”"


def _written(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
