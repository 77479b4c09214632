"""Who a message names, and whether it is for us. Pure."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote

if TYPE_CHECKING:
    from parley.surfaces.matrix.incoming import Said

__all__ = [
    "Me",
    "Mentions",
    "Place",
    "is_for_us",
    "mentions_us",
    "read_mentions",
    "without_our_name",
]

_MOST: Final = 100
_LINK = re.compile(r"<a\s([^<>]{1,1024})>([^<>]{0,256})</a>", re.IGNORECASE)
_HREF = re.compile(r"""\bhref\s*=\s*["']([^"']{1,600})["']""", re.IGNORECASE)
_PERSON = re.compile(r"https?://matrix\.to/#/((?:@|%40)[^/?]{1,300})|matrix:u/([^/?]{1,255})")
_OPENING = re.compile(r"(?:\s|<p>|<p\s[^<>]{0,200}>|<span[^<>]{0,200}>)*\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Mentions:
    """Who is named. `declared` when the client says so itself: then its words are not searched.

    `opening` is the name as shown that the message begins with, and whose it is.
    """

    users: frozenset[str] = frozenset()
    declared: bool = False
    opening: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Me:
    """Who we are in the room."""

    user_id: str
    display_name: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Our names, longest first."""
        local = self.user_id[1:].partition(":")[0]
        shown = (self.display_name or "").strip()
        found = {self.user_id, local, shown} - {""}
        return tuple(sorted(found, key=lambda name: (-len(name), name)))


@dataclass(frozen=True, slots=True)
class Place:
    """The room that something was said in. `is_chat`: it is one of a person's chats with us."""

    joined: int
    is_chat: bool = False

    @property
    def is_direct(self) -> bool:
        return self.is_chat or self.joined <= 2


def read_mentions(content: Mapping[str, Any]) -> Mentions:
    """Those whom a message's content names."""
    pills = _pills(content)
    opening = (pills[0][0], pills[0][1]) if pills and pills[0][2] else None
    declared = content.get("m.mentions")
    if isinstance(declared, Mapping):
        users = declared.get("user_ids")
        named = users[:_MOST] if isinstance(users, list) else []
        return Mentions(frozenset(user for user in named if isinstance(user, str)), True, opening)
    return Mentions(frozenset(user for user, _, _ in pills), False, opening)


def mentions_us(said: Said, me: Me) -> bool:
    mentions = said.mentions
    if me.user_id in mentions.users:
        return True
    if mentions.declared:
        return False
    return any(_as_a_word(name).search(said.text) for name in me.names)


def is_for_us(
    said: Said,
    *,
    room: Place,
    me: Me,
    groups: Literal["mention", "always", "never"],
    replied_to_us: bool = False,
) -> bool:
    """Whether we answer. Nobody answers notices, themselves or another agent."""
    if said.sender == me.user_id or said.notice or said.by_agent:
        return False
    if room.is_direct:
        return True
    if groups == "mention":
        return replied_to_us or mentions_us(said, me)
    return groups == "always"


def without_our_name(said: Said, me: Me) -> str:
    """What is said to us, without the name at its beginning: “Parley: hello” is “hello”."""
    text = said.text.lstrip()
    opening = said.mentions.opening
    if opening is not None and opening[0] == me.user_id:
        shown = opening[1].strip()
        if shown and text.startswith(shown):
            return text[len(shown) :].lstrip(" \t:,;-–—\n") or said.text
    for name in me.names:
        called = re.match(
            rf"(?:@?{re.escape(name)}\s*[:,]|@{re.escape(name.removeprefix('@'))}(?!\S))\s*",
            text,
            re.IGNORECASE,
        )
        if called and text[called.end() :].strip():
            return text[called.end() :]
    return said.text


def _pills(content: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """Links to people in the formatted text: who, the name as shown, whether it opens the text."""
    formatted = content.get("formatted_body")
    if content.get("format") != "org.matrix.custom.html" or not isinstance(formatted, str):
        return []
    begin = 0
    if formatted.lstrip()[:10].lower() == "<mx-reply>":
        end = formatted.lower().find("</mx-reply>")
        begin = end + len("</mx-reply>") if end >= 0 else len(formatted)
    found: list[tuple[str, str, bool]] = []
    for link in _LINK.finditer(formatted, begin):
        address = _HREF.search(link[1])
        person = _PERSON.match(html.unescape(address[1])) if address else None
        if person is None:
            continue
        user = unquote(person[1]) if person[1] else f"@{unquote(person[2])}"
        before = formatted[begin : link.start()] if link.start() - begin < 300 else "x"
        opens = not found and _OPENING.match(before) is not None
        found.append((user, html.unescape(link[2]), opens))
        if len(found) == _MOST:
            break
    return found


def _as_a_word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)
