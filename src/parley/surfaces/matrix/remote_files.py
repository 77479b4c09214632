"""Files of messages: where they are, and how they are sealed. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from parley.storage.attachments import clean_name, type_of_name

__all__ = ["RemoteFile", "Seal", "megabytes", "read_file"]

_ADDRESS = re.compile(r"mxc://([A-Za-z0-9.:\[\]-]{1,255})/([A-Za-z0-9_-]{1,255})")
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,62}/[a-z0-9][a-z0-9!#$&^_.+-]{0,62}")
_NAMES: Final = {"m.image": "image", "m.video": "video", "m.audio": "audio"}
_VOICE: Final = ("org.matrix.msc3245.voice", "org.matrix.msc3245.voice.v2", "m.voice")


@dataclass(frozen=True, slots=True)
class Seal:
    """What opens an encrypted file, and proves that it is the one that was sent."""

    key: str = field(repr=False)
    iv: str = field(repr=False)
    sha256: str


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file on a homeserver. Name and type are as its sender declares them, made harmless."""

    server: str
    media_id: str
    name: str
    media_type: str
    size: int | None = None
    seal: Seal | None = None
    voice: bool = False


def read_file(content: Mapping[str, Any], *, most_bytes: int) -> tuple[str, tuple[RemoteFile, ...]]:
    """What is said with a file, and the file; a file that cannot be had is told of instead."""
    body, filename = _text(content.get("body")), _text(content.get("filename"))
    caption = body if filename and body != filename else ""
    told = _mapping(content.get("info"))
    voice = any(key in content for key in _VOICE)
    usual = "voice" if voice else _NAMES.get(_text(content.get("msgtype")), "file")
    name = clean_name(filename or body, otherwise=usual)
    sealed = content.get("file")
    address = _ADDRESS.fullmatch(_text(_mapping(sealed).get("url") or content.get("url")))
    seal = _seal(_mapping(sealed)) if sealed is not None else None
    size = told.get("size")
    size = size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None
    if address is None or (sealed is not None and seal is None):
        return _with_note(caption, f"The file “{name}” has no address that can be used."), ()
    if size is not None and size > most_bytes:
        note = (
            f"The file “{name}” was not taken in: it has {megabytes(size)}, "
            f"and {megabytes(most_bytes)} is the most."
        )
        return _with_note(caption, note), ()
    media_type = _text(told.get("mimetype")).partition(";")[0].strip().lower()
    if not _MEDIA_TYPE.fullmatch(media_type):
        media_type = type_of_name(name)
    return caption, (RemoteFile(address[1], address[2], name, media_type, size, seal, voice),)


def megabytes(size: int) -> str:
    """A size as people read it."""
    if size < 1_000_000:
        return f"{max(1, round(size / 1000))} kB"
    return f"{size / 1024**2:.1f}".removesuffix(".0") + " MB"


def _seal(sealed: Mapping[str, Any]) -> Seal | None:
    key = _text(_mapping(sealed.get("key")).get("k"))
    iv, sha256 = _text(sealed.get("iv")), _text(_mapping(sealed.get("hashes")).get("sha256"))
    return Seal(key, iv, sha256) if key and iv and sha256 else None


def _with_note(caption: str, note: str) -> str:
    return f"{caption}\n\n[{note}]" if caption.strip() else f"[{note}]"


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
