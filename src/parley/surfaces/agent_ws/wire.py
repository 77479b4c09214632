"""The frames that a client may send: one JSON object in a text message, checked. Pure."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field

from parley.surfaces.api.body import parse_object
from parley.surfaces.api.errors import ApiError
from parley.surfaces.api.wire.body import check, tame
from parley.surfaces.api.wire.errors import BadRequest
from parley.surfaces.api.wire.models import WireModel

__all__ = [
    "ApprovalAnswer",
    "BadFrame",
    "CallbackReceived",
    "Cancel",
    "Frame",
    "Hello",
    "SentFile",
    "UserMessage",
    "read_frame",
]

_Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=255)]


class BadFrame(BadRequest):
    """What came is not of this protocol; the connection is over."""


class Hello(WireModel):
    """What the client knows beyond plain text."""

    capabilities: list[str] = Field(default=[], max_length=100)


class SentFile(WireModel):
    """A file in base64."""

    data: str
    name: str = ""
    media_type: str = ""


class UserMessage(WireModel):
    """What a person says."""

    text: str = ""
    id: _Id | None = None
    attachments: list[SentFile] = Field(default=[], max_length=100)
    instructions: str = ""
    hops: int = Field(default=0, ge=0)
    outside: str = Field(default="", max_length=2_000)


class Cancel(WireModel):
    """Nobody wants the answer to this message any more."""

    id: _Id


class ApprovalAnswer(WireModel):
    """A person's word on what the agent asked."""

    id: _Id
    allowed: bool


class CallbackReceived(WireModel):
    """The client has what was said later, for good."""

    id: _Id


Frame: TypeAlias = Hello | UserMessage | Cancel | ApprovalAnswer | CallbackReceived

_KINDS: Final[dict[str, type[Frame]]] = {
    "HELLO": Hello,
    "USER_MESSAGE": UserMessage,
    "CANCEL": Cancel,
    "APPROVAL_ANSWER": ApprovalAnswer,
    "CALLBACK_RECEIVED": CallbackReceived,
}


def read_frame(text: str) -> Frame:
    """The frame in a text message; raises `BadFrame`."""
    try:
        found = parse_object(text.encode())
    except (ApiError, UnicodeEncodeError):
        raise BadFrame("A frame must be one JSON object with a `type`.") from None
    kind = found.get("type")
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise BadFrame(f"The `type` of a frame must be one of {', '.join(_KINDS)}.")
    given: dict[str, Any] = {name: value for name, value in found.items() if value is not None}
    try:
        return check(model, tame(given))
    except BadRequest as error:
        raise BadFrame(f"{kind}: {error.message}") from None
