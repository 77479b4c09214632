"""Markdown as HTML that is safe to show: nothing in it runs, and nothing is fetched unasked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

__all__ = ["plain_only", "rendered", "to_html", "well_formed"]

_TAGS: Final = frozenset(
    {"a", "blockquote", "br", "code", "del", "em", "hr", "li", "ol", "p", "pre", "s", "strong"}
    | {"h1", "h2", "h3", "h4", "h5", "h6", "table", "tbody", "td", "th", "thead", "tr", "ul"}
)
_SCHEMES: Final = frozenset({"http", "https", "mailto", "matrix"})
_LANGUAGE: Final = re.compile(r"language-[\w+#.\-]{1,40}")

_DEEPEST: Final = 30
"""Markdown nested deeper than this is a prank; it is shown as it was written."""
_LARGEST: Final = 32_000
_MOST_CELLS: Final = 10_000
_QUICK: Final = 1_000
"""So many characters take about a millisecond, and need no thread."""


async def rendered(text: str) -> str | None:
    """The HTML of a reply; None where it would say nothing more than the text."""
    if len(text) <= _QUICK:
        return to_html(text)
    return await asyncio.to_thread(to_html, text)


def to_html(text: str) -> str | None:
    """The HTML of Markdown; None where the text does as well alone."""
    text = well_formed(text)
    tokens = _parsed(text)
    if tokens is None or _says_no_more(tokens, text):
        return None
    parser = _parser(tables=True)
    html: str = parser.renderer.render(tokens, parser.options, {})
    return _cleaned(html).strip() or None


def plain_only(text: str) -> bool:
    """Whether the HTML would say nothing more than the text."""
    text = well_formed(text)
    tokens = _parsed(text)
    return tokens is None or _says_no_more(tokens, text)


def well_formed(text: str) -> str:
    """Without what no JSON or database takes: halves of characters, and NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _parsed(text: str) -> list[Token] | None:
    if len(text) > _LARGEST:
        return None
    tokens = _parser(tables=_tables_are_small(text)).parse(text)
    # Past its depth the parser leaves text out.
    if any(token.nesting == 1 and token.level + 1 >= _DEEPEST for token in tokens):
        return None
    return tokens


def _tables_are_small(text: str) -> bool:
    """Every row of a table is filled up to the width of the first: a few bytes ask for a lot."""
    lines = text.split("\n")
    widest = max(line.count("|") for line in lines)
    return widest * len(lines) <= _MOST_CELLS


def _says_no_more(tokens: Sequence[Token], text: str) -> bool:
    words = []
    for token in tokens:
        if token.type not in {"paragraph_open", "paragraph_close", "inline"}:
            return False
        for child in token.children or ():
            if child.type not in {"text", "softbreak"}:
                return False
            words.append(child.content)
    return "".join("".join(words).split()) == "".join(text.split())


def _cleaned(html: str) -> str:
    import nh3

    return nh3.clean(
        html,
        tags=set(_TAGS),
        clean_content_tags={"script", "style"},
        attributes={"a": {"href"}, "ol": {"start"}, "code": {"class"}},
        attribute_filter=_kept,
        url_schemes=set(_SCHEMES),
        url_relative="deny",
        link_rel="noopener noreferrer",
    )


def _kept(tag: str, attribute: str, value: str) -> str | None:
    match (tag, attribute):
        case ("code", "class"):
            return value if _LANGUAGE.fullmatch(value) else None
        case ("ol", "start"):
            return value if value.isascii() and value.isdigit() else None
        case ("a", "href" | "rel"):
            return value
        case _:
            return None


@cache
def _parser(*, tables: bool) -> MarkdownIt:
    from markdown_it import MarkdownIt

    options = {"html": False, "breaks": True, "maxNesting": _DEEPEST}
    parser = MarkdownIt("commonmark", options).enable("strikethrough")
    if tables:
        parser.enable("table")
    parser.add_render_rule("image", _picture_as_link)
    return parser


def _picture_as_link(_self: Any, tokens: Sequence[Token], index: int, *_: Any) -> str:
    """A picture on the web tells its server who looks at it: only whoever wants to opens it."""
    from markdown_it.common.utils import escapeHtml

    token = tokens[index]
    address = str(token.attrGet("src") or "")
    return f'<a href="{escapeHtml(address)}">{escapeHtml(token.content or address)}</a>'
