"""What a message is on the wire: its text, where it belongs, and what an edit of it says. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from parley.protocol import SessionSource

__all__ = [
    "MESSAGE",
    "Spot",
    "edit_of",
    "fitting",
    "marked",
    "message",
    "part_limit",
    "reaction",
    "spot_of",
    "transaction",
]

MESSAGE: Final = "m.room.message"
_AGENT: Final = {"org.parley.agent": {"v": 1}}
_HTML: Final = "org.matrix.custom.html"

_LONGEST_PART: Final = 12_000
_DENSEST: Final = 1.5
_LARGEST_EVENT: Final = 60_000
_AROUND: Final = 2_000
"""What the server and the encryption put around the content."""
_FALLBACK: Final = 200


@dataclass(frozen=True, slots=True)
class Spot:
    """Where in a room something is said, and to what."""

    room_id: str
    thread: str | None = None
    answers: str | None = None
    person: str | None = None
    """Who is meant, in a room with several people."""

    def after_the_first(self) -> Spot:
        """For what follows in the same reply: it answers nothing more, and calls nobody again."""
        return replace(self, answers=self.answers if self.thread else None, person=None)


def spot_of(source: SessionSource, *, room_id: str, answers: Sequence[str]) -> Spot:
    """Where the reply to the messages `answers` of this source goes."""
    in_group = source.chat_type != "dm"
    last = next((each for each in reversed(answers) if each.startswith("$")), None)
    return Spot(
        room_id,
        thread=source.thread_id,
        answers=last if in_group or source.thread_id else None,
        person=source.user_id if in_group else None,
    )


def transaction(session: str, dedupe: str, part: str) -> str:
    """The name under which a part is sent, the same for ever: the server takes it once."""
    named = "\0".join((session, dedupe, part))
    return "parley." + hashlib.sha256(named.encode(errors="replace")).hexdigest()[:40]


def part_limit(text: str) -> int:
    """How many bytes of this text go into one message.

    What is encrypted is written in ASCII first, where most of the world's letters take six bytes.
    """
    plain = len(text.encode()) or 1
    density = len(json.dumps(text)) / plain
    return int(_LONGEST_PART * min(1.0, _DENSEST / density))


def message(
    text: str, html: str | None, spot: Spot, *, kind: str = "m.text", **more: Any
) -> dict[str, Any]:
    """A message of Markdown, with its HTML where that says more."""
    content: dict[str, Any] = {"msgtype": kind, "body": text}
    if html is not None:
        content |= {"format": _HTML, "formatted_body": html}
    return marked({**content, **more}, spot)


def marked(content: Mapping[str, Any], spot: Spot) -> dict[str, Any]:
    """With what every message of ours carries: whose it is, who is meant, what it belongs to."""
    mentions = {} if spot.person is None else {"user_ids": [spot.person]}
    found = {**content, "m.mentions": mentions, **_AGENT}
    relation = _relation(spot)
    return found if relation is None else {**found, "m.relates_to": relation}


def _relation(spot: Spot) -> dict[str, Any] | None:
    if spot.thread is not None:
        return {
            "rel_type": "m.thread",
            "event_id": spot.thread,
            "is_falling_back": True,
            "m.in_reply_to": {"event_id": spot.answers or spot.thread},
        }
    return None if spot.answers is None else {"m.in_reply_to": {"event_id": spot.answers}}


def edit_of(event_id: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """An event that says: `event_id` now reads so. What it belongs to stays as it was."""
    new = {name: value for name, value in content.items() if name != "m.relates_to"}
    edit = {**new, "body": f"* {new['body']}", "m.mentions": {}}
    if "formatted_body" in new:
        edit["formatted_body"] = f"* {new['formatted_body']}"
    edit["m.new_content"] = new
    edit["m.relates_to"] = {"rel_type": "m.replace", "event_id": event_id}
    return edit


def reaction(event_id: str, key: str) -> dict[str, Any]:
    relation = {"rel_type": "m.annotation", "event_id": event_id, "key": key}
    return {"m.relates_to": relation, **_AGENT}


def fitting(content: dict[str, Any], *, encrypted: bool) -> dict[str, Any]:
    """The same small enough for an event: what old clients show goes first, then the HTML."""
    if _size(content, encrypted) <= _LARGEST_EVENT:
        return content
    if "m.new_content" in content:
        slim = _without_html(content)
        slim["body"] = slim["body"][:_FALLBACK] + "…"
        if _size(slim, encrypted) <= _LARGEST_EVENT:
            return slim
        return {**slim, "m.new_content": _without_html(content["m.new_content"])}
    return _without_html(content)


def _without_html(content: Mapping[str, Any]) -> dict[str, Any]:
    left_out = {"format", "formatted_body"}
    return {name: value for name, value in content.items() if name not in left_out}


def _size(content: Mapping[str, Any], encrypted: bool) -> float:
    written = len(json.dumps(content, ensure_ascii=encrypted).encode())
    return _AROUND + (written * 4 / 3 if encrypted else written)
