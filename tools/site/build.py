"""Pages, menu, search and pictures, put together."""

from __future__ import annotations

import html
import json
import posixpath
import shutil
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from slackwater import __version__
from tools.site import markdown
from tools.site.links import Site
from tools.site.nav import BESIDE, NAV, REFERENCE, Entry, Section
from tools.site.reference import reference

if TYPE_CHECKING:
    from tools.site.markdown import Page

_HERE = Path(__file__).parent
_TEXT_IN_SEARCH = 4000


class BrokenLinksError(Exception):
    """Links that lead nowhere, or pages of the menu that are not there."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("the site was not built:\n" + "\n".join(f"  {problem}" for problem in problems))
        self.problems = problems


@dataclass(frozen=True)
class Built:
    """What was built, in figures."""

    pages: int
    links: int
    missing: tuple[str, ...]


def menu_of(root: Path) -> tuple[Section, ...]:
    """The menu, and at its end the pages that it does not name yet."""
    named = {entry.source for section in NAV for entry in section.entries}
    beside = {path for pattern in BESIDE for path in root.glob(pattern)}
    others = sorted(path for path in (root / "docs").rglob("*.md") if path not in beside)
    more = [path for path in others if path.relative_to(root).as_posix() not in named]
    if not more:
        return NAV
    entries = (Entry(path.stem.replace("-", " ").capitalize(), path.relative_to(root).as_posix()) for path in more)
    return (*NAV, Section("More", tuple(entries)))


def read_site(root: Path) -> Site:
    """Every page of the menu and beside it."""
    sources = {entry.source: entry for section in menu_of(root) for entry in section.entries}
    beside = {path.relative_to(root).as_posix() for pattern in BESIDE for path in root.glob(pattern)}
    pages: dict[str, Page] = {}
    missing = set()
    for source in [*sources, *sorted(beside - set(sources))]:
        if source == REFERENCE:
            pages[f"{REFERENCE}.md"] = markdown.read(reference())
        elif (root / source).is_file():
            pages[source] = markdown.read((root / source).read_text("utf-8"))
        elif sources[source].may_be_missing:
            missing.add(source)
        else:
            raise BrokenLinksError([f"the menu has {source}, which is not there"])
    return Site(root, pages, frozenset(missing))


def problems(site: Site) -> list[str]:
    """Links that lead nowhere."""
    return [why for source, page in site.pages.items() for link in page.links if (why := site.problem(source, link))]


def build(root: Path, out: Path) -> Built:
    site = read_site(root)
    if found := problems(site):
        raise BrokenLinksError(found)
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    frame = Template((_HERE / "page.html").read_text("utf-8"))
    for source, page in site.pages.items():
        place = site.place(source)
        up = "../" * place.count("/")
        body = markdown.render(page, lambda link, source=source: site.resolved(source, link))  # type: ignore[misc]
        file = out / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            frame.substitute(
                title=html.escape(page.title or "Slackwater"),
                version=html.escape(__version__),
                up=up,
                menu=_menu(site, source),
                contents=_contents(page),
                body=body,
            ),
            "utf-8",
        )
    _copy_files(site, out)
    for name in ("site.css", "search.js"):
        shutil.copy(_HERE / name, out / name)
    with (out / "site.css").open("a", encoding="utf-8") as style:
        style.write(markdown.FORMATTER.get_style_defs("pre"))
    index = json.dumps(_index(site), ensure_ascii=False)
    (out / "search-index.js").write_text(f"window.slackwaterPages = {index};", "utf-8")
    links = sum(len(page.links) for page in site.pages.values())
    return Built(len(site.pages), links, tuple(sorted(site.missing)))


def _menu(site: Site, current: str) -> str:
    here = posixpath.dirname(site.place(current)) or "."
    parts = []
    for section in menu_of(site.root):
        items = []
        for entry in section.entries:
            source = f"{REFERENCE}.md" if entry.source == REFERENCE else entry.source
            if source in site.pages:
                mark = ' aria-current="page"' if source == current else ""
                href = posixpath.relpath(site.place(source), here)
                items.append(f'<li><a href="{href}"{mark}>{html.escape(entry.title)}</a></li>')
        parts.append(f"<h2>{section.title}</h2>\n<ul>\n{chr(10).join(items)}\n</ul>")
    return "\n".join(parts)


def _contents(page: Page) -> str:
    deep = [heading for heading in page.headings if heading.level in (2, 3)]
    if len(deep) < 3:
        return ""
    items = [f'<li class="h{h.level}"><a href="#{h.anchor}">{html.escape(h.text)}</a></li>' for h in deep]
    return f'<nav class="contents" aria-label="On this page"><h2>On this page</h2><ul>{"".join(items)}</ul></nav>'


def _index(site: Site) -> list[dict[str, str]]:
    """For the search: each page with its headings and words."""
    return [
        {
            "title": page.title,
            "place": site.place(source),
            "headings": " · ".join(heading.text for heading in page.headings),
            "text": page.text[:_TEXT_IN_SEARCH],
        }
        for source, page in site.pages.items()
    ]


def _copy_files(site: Site, out: Path) -> None:
    """Pictures and other files that pages link to; of a folder, a list of what is in it."""
    for path in sorted(site.files()):
        source, target = site.root / path, out / "files" / path
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            names = sorted(child.name for child in source.iterdir() if child.is_file())
            listed = "".join(f"<li>{html.escape(name)}</li>" for name in names)
            (target / "index.html").write_text(
                f"<!doctype html><title>{html.escape(path)}</title><ul>{listed}</ul>", "utf-8"
            )
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
