"""Makes Markdown of a page of HTML: a program of its own, which can be ended.

A page can be made so that reading it takes minutes or gigabytes. Here that ends in plain text
without tags, which takes a moment; whoever started this program ends it if it does not.

    python html_page.py <address of the page> <seconds>    HTML comes in, title and text go out
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

from parley.agent.child_limits import TooSlow, end_time_limit, limit_memory_and_time

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

__all__ = ["plain_text"]

_MEMORY: Final = 768 * 1024 * 1024
_LONGEST_TEXT: Final = 4_000_000
_TAG = re.compile(r"<(/?)([A-Za-z!?][A-Za-z0-9]*+)[^<>]*+>")  # possessive: never looks back
_ENDLESS_NUMBER = re.compile(r"&#[xX]?[0-9A-Fa-f]{9,}+;?")
_SILENT: Final = frozenset({"script", "style", "noscript", "template"})
_NOISE: Final = (
    *_SILENT,
    *("nav", "svg", "canvas", "iframe", "object", "embed", "video", "audio"),
    *("button", "input", "select", "textarea", "dialog", "title"),
)
_UNSEEN = re.compile(r"(display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)


def plain_text(source: str) -> str:
    """The words between the tags, in one pass."""
    words = _ENDLESS_NUMBER.sub("", "".join(_words(source)))
    lines = (line.strip() for line in html.unescape(words).splitlines())
    return "\n".join(line for line in lines if line)


def _words(source: str) -> Iterator[str]:
    at, silent = 0, ""
    for tag in _TAG.finditer(source):
        name = tag[2].lower()
        if not silent:
            yield source[at : tag.start()]
            yield "\n"
        at = tag.end()
        if silent:
            silent = "" if tag[1] and name == silent else silent
        elif not tag[1] and name in _SILENT:
            silent = name
    if not silent:
        yield source[at:]


def _markdown(source: str, address: str) -> tuple[str, str]:
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    soup = BeautifulSoup(source, "html.parser")
    title = soup.title.get_text() if soup.title else ""
    _drop_noise(soup)
    for image in soup.find_all("img"):
        image.replace_with(_attribute(image, "alt"))
    for link in soup.find_all("a", href=True):
        link["href"] = _absolute(address, _attribute(link, "href"))
    converter = MarkdownConverter(
        heading_style="ATX", bullets="-", escape_asterisks=False, escape_underscores=False
    )
    text = str(converter.convert_soup(soup))
    lines = (line.rstrip() for line in text.splitlines())
    return title, re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _drop_noise(soup: BeautifulSoup) -> None:
    for tag in soup.find_all(_is_noise):
        if not tag.decomposed:
            tag.decompose()


def _is_noise(tag: Tag) -> bool:
    if tag.name in _NOISE or tag.has_attr("hidden"):
        return True
    return bool(tag.has_attr("style") and _UNSEEN.search(_attribute(tag, "style")))


def _attribute(tag: Any, name: str) -> str:
    value = tag.get(name) or ""
    return value if isinstance(value, str) else " ".join(value)


def _absolute(address: str, link: str) -> str:
    if link.strip().lower().startswith(("javascript:", "data:", "vbscript:")):
        return ""
    try:
        return urljoin(address, link.strip())
    except ValueError:
        return link


def _main() -> None:
    address, seconds = sys.argv[1], float(sys.argv[2])
    source = sys.stdin.buffer.read().decode("utf-8", "replace")
    limit_memory_and_time(_MEMORY, seconds)
    found: tuple[str, str] | None = None
    try:
        found = _markdown(source, address)
    except (Exception, TooSlow):  # noqa: BLE001 - whatever the parsers choke on, the words can be had
        found = None
    finally:
        end_time_limit()
    title, text = found if found is not None else ("", plain_text(source))
    told = f"{' '.join(title.split())[:300]}\n{text[:_LONGEST_TEXT]}"
    sys.stdout.buffer.write(told.encode("utf-8", "replace"))


if __name__ == "__main__":
    _main()
