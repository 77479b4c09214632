"""Files that came with messages: which of them a model gets, and in what form.

`load_attachments` is the only part that reads; everything else works on what it has read.
"""

from __future__ import annotations

import mimetypes
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from parley.protocol import Attachment, ChatMessage

__all__ = [
    "PDF",
    "FileText",
    "Loaded",
    "Named",
    "Part",
    "Shown",
    "Takes",
    "has_files",
    "is_pdf",
    "is_picture",
    "is_text",
    "last_question",
    "load_attachments",
    "named",
    "parts_of",
    "read_file",
    "shown_places",
    "with_name",
    "with_parts",
]

PDF = "application/pdf"
_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_TEXT_TYPES = re.compile(
    r"text/.+|.+\+(json|xml)|application/(x-)?(csv|(java|type)script|json|ndjson|php|python|ruby|sh"
    r"|shellscript|sql|toml|xml|yaml)"
)
_TEXT_NAMES = re.compile(
    r".+\.(bash|bat|c|cc|cfg|clj|conf|cpp|cs|css|csv|dart|diff|ex|go|h|hpp|hs|html?|ini|java|jl|jsx?"
    r"|jsonl?|kt|log|lua|md|ml|nix|patch|php|pl|ps1|py|r|rb|rs|rst|scala|sh|sql|swift|tex|toml|tsx?"
    r"|tsv|txt|vue|xml|ya?ml|zig)",
    re.IGNORECASE,
)
_TELLS_NOTHING = frozenset({"", "application/octet-stream", "binary/octet-stream"})
_SHOWN_MESSAGES = 4  # each picture is paid for again with every turn
_SHOWN_BYTES = 20_000_000
_ALL_BYTES = 48_000_000

_Kind: TypeAlias = Literal["picture", "document", "text"]


@dataclass(frozen=True, slots=True)
class Takes:
    """What a model is given besides words. `documents` are the media types of files it reads."""

    pictures: bool = False
    documents: frozenset[str] = frozenset()
    text_bytes: int = 200_000

    def within(self, window: int) -> Takes:
        """A text of so many bytes takes a quarter of the window, or a little more."""
        return replace(self, text_bytes=min(self.text_bytes, window))

    def has_whole(self, one: Attachment) -> bool:
        """Whether a document reaches the model as it is, while it is shown at all."""
        return _media_type(one) in self.documents and not one.is_remote


@dataclass(frozen=True, slots=True)
class FileText:
    """The text of a document, fenced; or `why` it cannot be read, unless the file is gone."""

    text: str = ""
    why: str = ""
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was read of a request's files, by path: None is a file that is gone.

    `texts` stand for documents that the model does not take as they are.
    Messages before `since` show no pictures and documents: those are only named.
    """

    takes: Takes
    since: int
    read: Mapping[str, bytes | None]
    texts: Mapping[str, FileText] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Named:
    """Words in place of a file: its name, and its contents when it is a short text."""

    text: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A picture or a document as it is. `data` is empty when the model's server fetches `url`."""

    kind: Literal["picture", "document"]
    name: str
    media_type: str
    data: bytes = b""
    url: str = ""
    detail: str | None = None


Part: TypeAlias = Named | Shown


def has_files(messages: Sequence[ChatMessage]) -> bool:
    """Whether there is anything to load."""
    return any(message.attachments for message in messages)


def is_picture(one: Attachment) -> bool:
    return _kind(one) == "picture"


def is_pdf(one: Attachment) -> bool:
    return _media_type(one) == PDF


def is_text(one: Attachment) -> bool:
    return _kind(one) == "text"


def last_question(messages: Sequence[ChatMessage]) -> int:
    """The place of the last thing that was asked."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role == "user":
            return place
    return len(messages)


def shown_places(messages: Sequence[ChatMessage], takes: Takes, *, since: int = 0) -> list[int]:
    """Where pictures and documents are shown: in the last few messages that have files."""
    with_files = [n for n, m in enumerate(messages) if m.attachments and m.role == "user"]
    return [
        place
        for place in with_files[-_SHOWN_MESSAGES:]
        if place >= since and any(_is_shown(one, takes) for one in messages[place].attachments)
    ]


def load_attachments(
    messages: Sequence[ChatMessage],
    takes: Takes,
    *,
    since: int = 0,
    texts: Mapping[str, FileText] | None = None,
) -> Loaded:
    """Read the files that the model gets, the newest first, up to a bound. It blocks."""
    places = shown_places(messages, takes, since=since)
    first = places[0] if places else len(messages)
    read: dict[str, bytes | None] = {}
    room = _ALL_BYTES
    for place in range(len(messages) - 1, -1, -1):
        for one in messages[place].attachments:
            limit = _limit(one, takes, is_shown=place >= first)
            if not limit or one.is_remote or one.path in read:
                continue
            try:
                data = read_file(one.path, min(limit, room))
            except OSError:
                read[one.path] = None
                continue
            if data is not None:
                read[one.path] = data
                room -= len(data)
    return Loaded(takes, first, read, texts or {})


def parts_of(message: ChatMessage, place: int, loaded: Loaded) -> Iterator[Part]:
    """The files of the message at `place`, each as the model gets it."""
    for one in message.attachments:
        data = loaded.read.get(one.path)
        may_show = place >= loaded.since and message.role == "user"
        if may_show and _is_shown(one, loaded.takes) and (data or one.is_remote):
            yield Shown(
                "picture" if _kind(one) == "picture" else "document",
                name=one.name,
                media_type=_media_type(one),
                data=data or b"",
                url=one.path if one.is_remote else "",
                detail=one.detail,
            )
        elif _kind(one) == "text" and (text := _decoded(data)) is not None:
            yield Named(f"{_line(one)}\n{text.rstrip()}\n[end of {one.name}]")
        elif (found := loaded.texts.get(one.path)) is not None and found.text:
            yield Named(f"{_line(one)}\n{found.text}")
        elif found is not None and found.why:
            yield Named(_line(one, f"not read: {found.why}"))
        elif (one.path in loaded.read and data is None) or found is not None:
            yield Named(_line(one, "it is no longer there"))
        elif _kind(one) == "picture" and not loaded.takes.pictures:
            yield Named(_line(one, "this model cannot see pictures"))
        else:
            yield Named(_line(one))


def with_parts(text: str, parts: Sequence[Part]) -> str:
    """A message's text with the words that stand for its files."""
    words = (part.text for part in parts if isinstance(part, Named))
    return "\n".join([*filter(None, [text]), *words])


def with_name(message: ChatMessage, text: str) -> str:
    """The text, after who said it where the wire format has no field for that."""
    return text if message.name is None else f"{message.name}: {text}"


def named(message: ChatMessage) -> str:
    """A message's text, with a line for each file that came with it."""
    if not message.attachments:
        return message.text
    return with_parts(message.text, [Named(_line(one)) for one in message.attachments])


def _line(one: Attachment, note: str = "") -> str:
    size = "" if one.is_remote else f", {one.size} bytes"
    return f"[file: {one.name}, {one.media_type}{size}{'; ' if note else ''}{note}]"


def _limit(one: Attachment, takes: Takes, *, is_shown: bool) -> int:
    if _kind(one) == "text":
        return takes.text_bytes
    return _SHOWN_BYTES if is_shown and _is_shown(one, takes) else 0


def _is_shown(one: Attachment, takes: Takes) -> bool:
    kind = _kind(one)
    if kind == "picture":
        return takes.pictures
    return kind == "document" and takes.has_whole(one)


def _kind(one: Attachment) -> _Kind:
    media_type = _media_type(one)
    if media_type in _PICTURES or (one.is_remote and media_type.startswith("image/")):
        return "picture"
    is_text = _TEXT_TYPES.fullmatch(media_type) or _TEXT_NAMES.fullmatch(one.name)
    return "text" if is_text else "document"


def _media_type(one: Attachment) -> str:
    media_type = one.media_type.partition(";")[0].strip().lower()
    if media_type in _TELLS_NOTHING:
        media_type = mimetypes.guess_type(one.name)[0] or media_type
    return "image/jpeg" if media_type == "image/jpg" else media_type


def read_file(path: str, limit: int) -> bytes | None:
    """What is in the file; None when it is more than `limit`."""
    # Without waiting: a pipe in the place of a file would hold the thread for ever.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        known = os.fstat(handle)
        if not stat.S_ISREG(known.st_mode) or known.st_size > limit:
            return None
        data = file.read(limit + 1)
    return data if len(data) <= limit else None


def _decoded(data: bytes | None) -> str | None:
    if data is None or b"\0" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
