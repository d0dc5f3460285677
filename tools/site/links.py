"""Where a link of a page leads in the site, and which links lead nowhere."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tools.site.markdown import Page

_ABSOLUTE = re.compile(r"^[a-z][a-z0-9+.-]*:")


@dataclass(frozen=True)
class Site:
    """All pages by their Markdown file, and the root of the repository that they link into.

    `missing` are pages of the menu that are not written yet; links to them are tolerated and lead nowhere.
    """

    root: Path
    pages: Mapping[str, Page]
    missing: frozenset[str] = frozenset()

    def place(self, source: str) -> str:
        """The file of a page in the site: docs/late.md is late.html, a README is its folder's index."""
        path = source.removeprefix("docs/")
        folder, name = posixpath.split(path)
        stem = "index" if name == "README.md" else name.removesuffix(".md")
        return posixpath.join(folder, f"{stem.lower()}.html")

    def target(self, source: str, link: str) -> tuple[str, str]:
        """File in the repository, and anchor, of a link in `source`."""
        path, _, anchor = link.partition("#")
        return (posixpath.normpath(posixpath.join(posixpath.dirname(source), path)) if path else source), anchor

    def problem(self, source: str, link: str) -> str | None:
        """Why a link leads nowhere; None for good ones and for those that leave the repository."""
        if _ABSOLUTE.match(link):
            return None
        path, anchor = self.target(source, link)
        if path in self.missing:
            return None
        page = self.pages.get(path)
        if page is None:
            if path.startswith("..") or not (self.root / path).exists():
                return f"{source}: {link}: there is no {path}"
            return None
        if anchor and anchor not in {heading.anchor for heading in page.headings}:
            return f"{source}: {link}: {path} has no heading #{anchor}"
        return None

    def resolved(self, source: str, link: str) -> str:
        """The link as it stands in the site: relative, to a page, or to a file that is copied beside."""
        if _ABSOLUTE.match(link) or link.startswith("#"):
            return link
        path, anchor = self.target(source, link)
        here = posixpath.dirname(self.place(source))
        there = self.place(path) if path in self.pages else f"files/{path}"
        if path in self.missing:
            return "#"
        if (self.root / path).is_dir() and path not in self.pages:
            there = f"files/{path}/index.html"
        relative = posixpath.relpath(there, here or ".")
        return f"{relative}#{anchor}" if anchor else relative

    def files(self) -> set[str]:
        """Files of the repository that pages link to or show, and that are no pages."""
        found = set()
        for source, page in self.pages.items():
            for link in page.links:
                if not _ABSOLUTE.match(link):
                    path, _ = self.target(source, link)
                    if path not in self.pages and path not in self.missing and (self.root / path).exists():
                        found.add(path)
        return found
