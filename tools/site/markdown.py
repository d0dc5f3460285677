"""Markdown to HTML: headings with anchors as GitHub gives them, highlighted code, and the links of a page."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from markdown_it.token import Token

FORMATTER = HtmlFormatter(nowrap=True)
_NOT_IN_ANCHOR = re.compile(r"[^\w\- ]")


@dataclass(frozen=True)
class Heading:
    """A heading of a page."""

    level: int
    text: str
    anchor: str


@dataclass(frozen=True)
class Page:
    """What is in a Markdown file. `links` has the targets of links and pictures as they are written."""

    title: str
    headings: tuple[Heading, ...]
    links: tuple[str, ...]
    text: str
    tokens: Sequence[Token]


def parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"highlight": _highlighted}).enable(["table", "strikethrough"])


def read(source: str) -> Page:
    tokens = parser().parse(source)
    headings: list[Heading] = []
    links: list[str] = []
    words: list[str] = []
    seen: dict[str, int] = {}
    for position, token in enumerate(tokens):
        if token.type == "heading_open":
            text = plain(tokens[position + 1])
            anchor = _anchor(text, seen)
            token.attrSet("id", anchor)
            headings.append(Heading(int(token.tag[1]), text, anchor))
        for child in token.children or ():
            target = child.attrGet("href") or child.attrGet("src")
            if target:
                links.append(str(target))
            if child.type in ("text", "code_inline"):
                words.append(child.content)
    title = next((heading.text for heading in headings if heading.level == 1), "")
    return Page(title, tuple(headings), tuple(links), " ".join(words), tokens)


def render(page: Page, resolve: Callable[[str], str]) -> str:
    """The page as HTML, with every link and picture as `resolve` says."""
    for token in page.tokens:
        for child in token.children or ():
            for name in ("href", "src"):
                if target := child.attrGet(name):
                    child.attrSet(name, resolve(str(target)))
    made = parser()
    made.add_render_rule("table_open", _scrolling_table)
    made.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return str(made.renderer.render(page.tokens, made.options, {}))


def plain(token: Token) -> str:
    """The words of a token, without marks."""
    return "".join(child.content for child in token.children or () if child.type in ("text", "code_inline"))


def _anchor(text: str, seen: dict[str, int]) -> str:
    """As GitHub does: lower case, no punctuation, hyphens for blanks, a number after the second of the same name."""
    anchor = _NOT_IN_ANCHOR.sub("", text.strip().lower()).replace(" ", "-")
    count = seen.get(anchor, 0)
    seen[anchor] = count + 1
    return f"{anchor}-{count}" if count else anchor


def _scrolling_table(*_: Any) -> str:
    return '<div class="wide"><table>\n'


def _highlighted(code: str, language: str, _attributes: str) -> str:
    try:
        lexer = get_lexer_by_name(language) if language else None
    except ClassNotFound:
        lexer = None
    return str(highlight(code, lexer, FORMATTER)) if lexer else html.escape(code)
