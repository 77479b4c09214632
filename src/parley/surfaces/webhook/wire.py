"""What goes over the wire: a message as a program posts it, an answer as it gets it. Pure."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from parley.profiles import DEFAULT_PROFILE
from parley.protocol import InboundMessage, ParleyError, SessionSource
from parley.storage.contract import Delivery

__all__ = ["PLATFORM", "BadMessage", "chat_id_of", "chat_of", "encode_answer", "read_message"]

PLATFORM: Final = "webhook"
_LONGEST_ID = 200
_SHOWN_OF_A_NAME = 40


class BadMessage(ParleyError):
    """What was posted is no message; the sentence names the field."""


def read_message(body: bytes, *, profile: str) -> InboundMessage:
    """The message that came in by the account of this profile; raises `BadMessage`."""
    try:
        posted = _Posted.model_validate_json(body)
    except ValidationError as error:
        raise BadMessage(_sentence(error.errors(include_url=False)[0])) from None
    source = SessionSource(
        PLATFORM,
        chat_id=chat_id_of(profile, posted.chat or posted.user),
        chat_type=posted.chat_type,
        user_id=posted.user,
        user_name=posted.user_name,
        chat_name=posted.chat_name,
        thread_id=posted.thread,
        guild_id=posted.space,
    )
    return InboundMessage(source, posted.text, event_id=posted.id, outside=posted.outside or "")


def encode_answer(delivery: Delivery, *, profile: str) -> bytes:
    """An answer as JSON. Its `id` is the same whenever it comes, and no other answer has it."""
    source = delivery.source
    answer = {
        "id": _name(delivery),
        "text": delivery.text,
        "kind": delivery.kind,
        "answers": list(delivery.answers),
        "chat": chat_of(source.chat_id),
        "chat_type": source.chat_type,
        "thread": source.thread_id,
        "user": source.user_id,
        "space": source.guild_id,
        "profile": profile,
    }
    # A lone surrogate, as a model may write one, becomes `?` instead of an error.
    return json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")


def _name(delivery: Delivery) -> str:
    """The turn's number, the session, which no other profile has, and the time, for who begins
    anew counts anew. Without the profile's name: that may change before the answer has arrived.
    """
    return f"{delivery.dedupe}:{delivery.session}:{delivery.at * 1000:.0f}"


# ── the ids of chats ──────────────────────────────────────────────────────────────────────────

_OWN: Final = "~/"
_MARKED: Final = re.compile(r"~+/")


def chat_id_of(profile: str, chat: str) -> str:
    """The chat's id within Parley, apart from the same chat at the account of another profile.

    A profile's messages may come by its own account and, by a route, by the default profile's. The
    default profile's chats keep their ids, so a route names them as they are. Those of any other
    get a mark, and not the profile's name: they are found again when it is renamed.
    """
    if profile != DEFAULT_PROFILE:
        return _OWN + chat
    return f"~{chat}" if _MARKED.match(chat) else chat


def chat_of(chat_id: str) -> str:
    """The chat's id as the program gave it."""
    if chat_id.startswith(_OWN):
        return chat_id.removeprefix(_OWN)
    return chat_id.removeprefix("~") if _MARKED.match(chat_id) else chat_id


# ── what a message may hold ───────────────────────────────────────────────────────────────────


def _one_line(value: str) -> str:
    """An id or a name: it is part of keys, logs and prompts."""
    if any(unicodedata.category(letter) in {"Cc", "Cs", "Zl", "Zp"} for letter in value):
        raise PydanticCustomError("control", "holds a control character")
    return _not_blank(value)


def _readable(value: str) -> str:
    if any(unicodedata.category(letter) == "Cc" and letter not in "\n\r\t" for letter in value):
        raise PydanticCustomError("control", "holds a control character")
    return _not_blank(value)


def _not_blank(value: str) -> str:
    if not value.strip():
        raise PydanticCustomError("blank", "is empty")
    return value


_Line = Annotated[str, Field(max_length=_LONGEST_ID), AfterValidator(_one_line)]
_Text = Annotated[str, AfterValidator(_readable)]


class _Posted(BaseModel):
    """The JSON of a message."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: _Line
    text: _Text
    user: _Line
    chat: _Line | None = None
    chat_type: Literal["dm", "group", "channel", "thread"] = "dm"
    user_name: _Line | None = None
    chat_name: _Line | None = None
    thread: _Line | None = None
    space: _Line | None = None
    outside: _Line | None = None

    @model_validator(mode="after")
    def _a_group_has_an_id(self) -> _Posted:
        if self.chat_type != "dm" and self.chat is None:
            raise PydanticCustomError("no_chat", "no chat")
        return self


def _sentence(found: ErrorDetails) -> str:
    field = _shown(found["loc"][0]) if found["loc"] else "The body"
    context: dict[str, Any] = found.get("ctx", {})
    match found["type"]:
        case "missing":
            return f"{field} is missing."
        case "extra_forbidden":
            return f"{field} is not a field of a message."
        case "string_type":
            return f"{field} must be a string."
        case "string_too_long":
            return f"{field} may have {context['max_length']} characters at most."
        case "literal_error":
            return f"{field} must be one of dm, group, channel, thread."
        case "control":
            return f"{field} holds a control character."
        case "blank":
            return f"{field} is empty."
        case "no_chat":
            return "`chat` is missing: only a direct chat is known by its user."
        case _:
            return "The body must be one JSON object in UTF-8."


def _shown(name: object) -> str:
    """A field's name, which may be anything at all, as it can be repeated."""
    text = str(name)
    if len(text) > _SHOWN_OF_A_NAME:
        text = f"{text[:_SHOWN_OF_A_NAME]}…"
    return f"`{text if text.isprintable() else ascii(text)[1:-1]}`"
