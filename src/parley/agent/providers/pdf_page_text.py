"""Extracts the text of a PDF: a program of its own, which can be ended.

A PDF can be made so that reading it takes minutes or gigabytes. What was read until then is kept.

    python pdf_page_text.py <pages> <characters> <seconds>    a PDF comes in, JSON goes out
"""

from __future__ import annotations

import io
import json
import sys
from dataclasses import asdict, dataclass, field
from typing import Final

from parley.agent.child_limits import TooSlow, end_time_limit, limit_memory_and_time

__all__: list[str] = []

_MEMORY: Final = 1024 * 1024 * 1024


@dataclass(slots=True)
class _Found:
    pages: int = 0
    is_locked: bool = False
    is_whole: bool = False
    texts: list[str] = field(default_factory=list)


def _extract(data: bytes, found: _Found, *, pages: int, characters: int) -> None:
    from pypdf import PdfReader
    from pypdf.errors import DependencyError

    reader = PdfReader(io.BytesIO(data))
    try:
        found.is_locked = reader.is_encrypted and not reader.decrypt("")
    except DependencyError:  # it is encrypted in a way that needs another package
        found.is_locked = True
    if found.is_locked:
        return
    found.pages = len(reader.pages)
    for number in range(min(found.pages, pages)):
        text = reader.pages[number].extract_text().strip()
        found.texts.append(text[:characters])
        characters -= len(text)
        if characters < 0:
            return
    found.is_whole = found.pages <= pages


def _main() -> None:
    pages, characters, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    data = sys.stdin.buffer.read()
    found = _Found()
    limit_memory_and_time(_MEMORY, seconds)
    try:
        _extract(data, found, pages=pages, characters=characters)
    except (Exception, TooSlow):  # noqa: BLE001 - whatever the parser chokes on, the rest is told
        found.is_whole = False
    finally:
        end_time_limit()
    sys.stdout.buffer.write(json.dumps(asdict(found)).encode())


if __name__ == "__main__":
    _main()
