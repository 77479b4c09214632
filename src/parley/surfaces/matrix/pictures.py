"""How large a picture is, read from its first bytes. Pure."""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["HEAD", "picture_size"]

HEAD: Final = 64 * 1024
"""So many bytes are enough for nearly all."""


def picture_size(head: bytes) -> tuple[int, int] | None:
    """Width and height of a PNG, GIF, JPEG or WebP; None where it cannot be told cheaply."""
    try:
        if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
            return _sane(*struct.unpack(">II", head[16:24]))
        if head[:6] in {b"GIF87a", b"GIF89a"}:
            return _sane(*struct.unpack("<HH", head[6:10]))
        if head.startswith(b"\xff\xd8"):
            return _jpeg(head)
        if head[:4] == b"RIFF" and head[8:16] == b"WEBPVP8X":
            return _sane(*(int.from_bytes(head[at : at + 3], "little") + 1 for at in (24, 27)))
    except struct.error:
        return None
    return None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return _sane(width, height)
        (length,) = struct.unpack(">H", head[at + 2 : at + 4])
        at += 2 + length
    return None


def _sane(width: int, height: int) -> tuple[int, int] | None:
    return (width, height) if 0 < width < 100_000 and 0 < height < 100_000 else None
