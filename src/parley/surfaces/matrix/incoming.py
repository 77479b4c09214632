"""What an event of a room means: something said, edited, reacted to, taken back. Pure.

An event is a stranger's JSON: nothing in it is taken for what it claims to be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from parley.surfaces.matrix.mentions import Mentions, read_mentions
from parley.surfaces.matrix.remote_files import RemoteFile, read_file

__all__ = [
    "AGENT_KEY",
    "WAS_ENCRYPTED",
    "Edited",
    "Incoming",
    "Reacted",
    "Redacted",
    "Said",
    "Upgraded",
    "clean_text",
    "understand",
]

AGENT_KEY: Final = "org.parley.agent"
"""A key in the content of all that an agent says, so that agents do not answer each other."""

WAS_ENCRYPTED: Final = "parley.was_encrypted"
"""A key that we put on an event: whether it came encrypted."""

_FILES: Final = frozenset({"m.image", "m.file", "m.video", "m.audio"})
_POLLS: Final = frozenset({"m.poll.start", "org.matrix.msc3381.poll.start"})
_LONGEST_KEY: Final = 100
_LONGEST_ID: Final = 255
_UNFIT = re.compile("[\x00\ud800-\udfff]")
_QUOTED = re.compile(r"> (?:\* )?<@[^>\n]*>")


@dataclass(frozen=True, slots=True)
class Said:
    """A message. `thread_id` is the event that its thread hangs on."""

    event_id: str
    room_id: str
    sender: str
    text: str
    at: float
    thread_id: str | None = None
    reply_to: str | None = None
    mentions: Mentions = field(default_factory=Mentions)
    files: tuple[RemoteFile, ...] = ()
    notice: bool = False
    emote: bool = False
    by_agent: bool = False
    encrypted: bool = False


@dataclass(frozen=True, slots=True)
class Edited:
    """`said` is what the message says now; only its own sender may edit it."""

    target: str
    said: Said


@dataclass(frozen=True, slots=True)
class Reacted:
    event_id: str
    target: str
    key: str
    sender: str


@dataclass(frozen=True, slots=True)
class Redacted:
    """The server has checked that the sender may take the target back."""

    target: str
    sender: str


@dataclass(frozen=True, slots=True)
class Upgraded:
    """The room goes on elsewhere; `replacement` is empty when it says not where."""

    replacement: str
    sender: str


Incoming: TypeAlias = Said | Edited | Reacted | Redacted | Upgraded


def understand(
    event: Mapping[str, Any],
    *,
    most_bytes: int,
    name_of: Callable[[str], str] | None = None,
) -> Incoming | None:
    """What the event means, or None when it is nothing to us.

    Files that say they are larger than `most_bytes` are told of and left where they are.
    `name_of` gives the name that someone goes by in the room.
    """
    kind, content = str(event.get("type")), _mapping(event.get("content"))
    head = _head(event, name_of)
    if head is None:
        return None
    if "state_key" in event:
        return _upgrade(head, content) if kind == "m.room.tombstone" else None
    if kind == "m.room.redaction":
        target = _id(event.get("redacts")) or _id(content.get("redacts"))
        return Redacted(target, head.sender) if target else None
    if not content:
        return None
    relation = _mapping(content.get("m.relates_to"))
    if kind == "m.reaction":
        return _reaction(head, relation)
    if relation.get("rel_type") != "m.replace":
        said = _say(head, kind, content, most_bytes)
        thread_id, reply_to = _place(relation)
        return said and replace(said, thread_id=thread_id, reply_to=reply_to)
    target, fresh = _id(relation.get("event_id")), _mapping(content.get("m.new_content"))
    said = _say(head, kind, fresh, most_bytes)
    if said is None or not target:
        return None
    return Edited(target, replace(said, by_agent=said.by_agent or AGENT_KEY in content))


def clean_text(text: str) -> str:
    """Without what no database or model takes: NULs and halves of characters."""
    return _UNFIT.sub("", text)


# ── the parts of an event ─────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Head:
    event_id: str
    room_id: str
    sender: str
    name: str
    at: float
    encrypted: bool


def _head(event: Mapping[str, Any], name_of: Callable[[str], str] | None) -> _Head | None:
    event_id, sender = _id(event.get("event_id")), _id(event.get("sender"))
    at = event.get("origin_server_ts")
    if not event_id or not sender:
        return None
    seconds = at / 1000 if isinstance(at, int) and 0 <= at < 2**53 else 0.0
    name = name_of(sender) if name_of else sender[1:].partition(":")[0]
    encrypted = event.get(WAS_ENCRYPTED) is True
    return _Head(event_id, _id(event.get("room_id")), sender, name, seconds, encrypted)


def _place(relation: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The thread that it is in, and the message that it replies to."""
    reply_to = _id(_mapping(relation.get("m.in_reply_to")).get("event_id")) or None
    if relation.get("rel_type") != "m.thread":
        return None, reply_to
    thread_id = _id(relation.get("event_id")) or None
    return thread_id, None if relation.get("is_falling_back") is True else reply_to


def _reaction(head: _Head, relation: Mapping[str, Any]) -> Reacted | None:
    target, key = _id(relation.get("event_id")), relation.get("key")
    if relation.get("rel_type") != "m.annotation" or not target or not isinstance(key, str):
        return None
    key = clean_text(key).strip()[:_LONGEST_KEY]
    return Reacted(head.event_id, target, key, head.sender) if key else None


def _upgrade(head: _Head, content: Mapping[str, Any]) -> Upgraded:
    return Upgraded(_id(content.get("replacement_room")), head.sender)


def _say(head: _Head, kind: str, content: Mapping[str, Any], most_bytes: int) -> Said | None:
    msgtype = str(content.get("msgtype"))
    files: tuple[RemoteFile, ...] = ()
    if kind == "m.sticker":
        text, files = read_file(content, most_bytes=most_bytes)
        text = f"[sticker] {text}".strip()
    elif kind in _POLLS:
        text = _poll(content, kind)
    elif kind != "m.room.message" or msgtype == "m.key.verification.request":
        return None
    elif msgtype in _FILES:
        text, files = read_file(content, most_bytes=most_bytes)
    else:
        text = _words(content)
    text = clean_text(text)
    emote = msgtype == "m.emote"
    if emote:
        text = f"* {clean_text(head.name)} {text}"
    if not text.strip() and not files:
        return None
    return Said(
        event_id=head.event_id,
        room_id=head.room_id,
        sender=head.sender,
        text=text,
        at=head.at,
        mentions=read_mentions(content),
        files=files,
        notice=msgtype in {"m.notice", "m.server_notice"},
        emote=emote,
        by_agent=AGENT_KEY in content,
        encrypted=head.encrypted,
    )


def _words(content: Mapping[str, Any]) -> str:
    body = content.get("body")
    text = body if isinstance(body, str) else ""
    if content.get("msgtype") == "m.location":
        where = content.get("geo_uri")
        return f"[location: {_in_a_line(text, where if isinstance(where, str) else '')}]"
    replies = "m.in_reply_to" in _mapping(content.get("m.relates_to"))
    return _without_quote(text) if replies else text


def _without_quote(text: str) -> str:
    """The words without those of the message they reply to, which older clients put first."""
    if not _QUOTED.match(text):
        return text
    lines = text.split("\n")
    rest = next((at for at, line in enumerate(lines) if not line.startswith(">")), len(lines))
    if rest < len(lines) and not lines[rest].strip():
        rest += 1
    return "\n".join(lines[rest:])


def _poll(content: Mapping[str, Any], kind: str) -> str:
    poll = _mapping(content.get("m.poll") or content.get(kind))
    answers = poll.get("answers")
    shown = [_plain(answer) for answer in answers[:20]] if isinstance(answers, list) else []
    return f"[poll: {_in_a_line(_plain(poll.get('question')), ' / '.join(shown))}]"


def _plain(node: object) -> str:
    """The text of a piece of an extensible event, in whichever of its forms."""
    told = _mapping(node)
    for name in ("org.matrix.msc1767.text", "body"):
        if isinstance(found := told.get(name), str):
            return found
    parts = told.get("m.text")
    for each in parts if isinstance(parts, list) else ():
        if isinstance(found := _mapping(each).get("body"), str):
            return found
    return ""


def _in_a_line(*parts: str) -> str:
    return "; ".join(" ".join(part.split())[:500] for part in parts if part.strip())


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _id(value: object) -> str:
    """An id of the server's, or nothing."""
    if not isinstance(value, str) or len(value) > _LONGEST_ID or _UNFIT.search(value):
        return ""
    return value
