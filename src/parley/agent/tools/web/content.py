"""From the bytes of an answer to text that a model can read."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from parley.agent.child_process import start_child
from parley.agent.foreign import clean
from parley.agent.tools.base import ToolError

__all__ = ["Page", "decode", "kind_of", "read_page"]

_CHARSETS: Final = (
    *("ascii", "big5", "cp", "euc", "gb", "hz", "iso2022", "iso8859", "johab", "koi8"),
    *("mac", "shift", "tis-620", "utf-8", "utf-16", "utf-32"),
)
_META = re.compile(rb"<meta[^>]{0,300}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{1,40})", re.I)
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_TEXTS: Final = frozenset(
    f"application/{name}"
    for name in (
        *("json", "xml", "javascript", "ecmascript", "yaml", "x-yaml", "toml", "x-ndjson"),
        *("x-sh", "sql", "x-javascript", "graphql", "jsonl", "x-tex"),
    )
)
_HTML: Final = frozenset({"text/html", "application/xhtml+xml"})

Kind = Literal["html", "text", "other"]


@dataclass(frozen=True, slots=True)
class Page:
    """Text that is clean of what cannot be seen; `title` may be empty."""

    title: str
    text: str


def kind_of(content_type: str, beginning: bytes) -> Kind:
    """What to do with an answer of this type; one without a type is looked at."""
    if content_type in _HTML:
        return "html"
    if content_type:
        text = content_type.startswith("text/") or content_type in _TEXTS
        return "text" if text or content_type.endswith(("+json", "+xml")) else "other"
    if b"\0" in beginning:
        return "other"
    return "html" if re.match(rb"\s*<(!doctype html|html)\b", beginning, re.I) else "text"


def decode(body: bytes, charset: str | None, *, html: bool) -> str:
    """By its mark, its header, its meta tag; what does not fit these is read as UTF-8."""
    meta = _META.search(body[:4096]) if html else None
    named = (
        *(name for mark, name in _MARKS if body.startswith(mark)),
        *((charset,) if charset else ()),
        *((meta[1].decode("ascii"),) if meta else ()),
    )
    known = [name for name in named if _is_charset(name)]
    for name in (*known, "utf-8"):
        with contextlib.suppress(UnicodeError):
            return body.decode(name)
    return body.decode(known[0] if known else "utf-8", errors="replace")


async def read_page(text: str, address: str, *, seconds: float) -> Page:
    """Markdown of HTML, made in a process of its own, which does not outlive this call."""
    script = Path(__file__).with_name("html_page.py")
    process = await start_child(
        (sys.executable, "-P", str(script), address, f"{seconds:.3f}"),
        environment={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUTF8": "1"},
        cwd="/",
        stderr=subprocess.DEVNULL,
    )
    try:
        told = await process.communicate(text.encode("utf-8", "replace"))
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        process.close()
    if process.returncode != 0:
        raise ToolError("The page could not be read as HTML.")
    return await asyncio.to_thread(_page, told)


def _page(told: bytes) -> Page:
    title, _, text = told.decode("utf-8", "replace").partition("\n")
    return Page(clean(title), clean(text))


def _is_charset(name: str) -> bool:
    """Python knows encodings that are no charsets, and some that take for ever."""
    try:
        return codecs.lookup(name).name.startswith(_CHARSETS)
    except (LookupError, ValueError):
        return False
