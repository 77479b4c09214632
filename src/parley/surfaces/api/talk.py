"""Which conversation a request means: its headers, and the message that it becomes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from parley.agent.foreign import one_line
from parley.gateway.requests import ProfileDoor
from parley.protocol import ChatMessage, InboundMessage, Request, SessionSource
from parley.surfaces.api.callers import Caller
from parley.surfaces.api.errors import ApiError
from parley.surfaces.api.wire.ids import check_session_id, new_id

if TYPE_CHECKING:
    from aiohttp import web

    from parley.surfaces.api.wire.parsed import ParsedRequest

__all__ = ["MOST_HOPS", "Talk", "hops_of", "one_header", "talk_of"]

_PLATFORM: Final = "api"
MOST_HOPS: Final = 5
_SESSION_HEADERS: Final = ("X-Parley-Session-Id", "X-Hermes-Session-Id")
_MEMORY_HEADERS: Final = ("X-Parley-Session-Key", "X-Hermes-Session-Key")
_OUTSIDE_HEADER: Final = "X-Parley-Outside"
_LONGEST_SOURCE: Final = 200


@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation with one profile, as a request names it."""

    caller: Caller
    door: ProfileDoor
    session: str
    is_new: bool
    """Its id was made up for this request: nobody can have spoken there before."""
    memory_key: str | None = None
    hops: int = 0
    whole: bool = False
    """Whether what the request tells of the conversation is all of it."""
    outside: str = ""
    """Where what it asks comes from, when whoever sends it did not write it."""

    @property
    def model(self) -> str:
        """What the answer says who it is from."""
        return self.door.profile.name

    @property
    def named_session(self) -> str | None:
        """Its id, where the program gave one."""
        return None if self.is_new else self.session

    @property
    def headers(self) -> dict[str, str]:
        told = dict.fromkeys(_SESSION_HEADERS, self.session)
        if self.memory_key is not None:
            told |= dict.fromkeys(_MEMORY_HEADERS, self.memory_key)
        return told

    def request(
        self,
        kind: str,
        parsed: ParsedRequest,
        *,
        lasting: bool,
        earlier: tuple[ChatMessage, ...] | None = None,
        can_ask: bool = False,
    ) -> Request:
        """What is asked for here, under an id of its own that begins with `kind`.

        With `earlier`, the request goes on from a known place: what it says is new, all of it.
        """
        return Request(
            id=new_id(kind),
            messages=(*(earlier or ()), *self._marked(parsed.messages)),
            instructions=parsed.instructions,
            tools=parsed.tools,
            wishes=parsed.wishes,
            lasting=lasting,
            can_ask=can_ask,
            memory_key=self.memory_key,
            hops=self.hops,
            whole=self.whole,
            operator="admin" in self.caller.key.scopes,
            appended=earlier is not None,
        )

    def _marked(self, messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
        """With where their text comes from, when no person wrote it.

        A tool of the program may have the name of one of ours, and is none of ours.
        """
        messages = tuple(_result(m) if m.role == "tool" else m for m in messages)
        if not self.outside:
            return messages
        asked = Request("", messages).asked
        marked = (replace(m, outside=m.outside or self.outside) for m in asked)
        return (*messages[: len(messages) - len(asked)], *marked)

    def message(self, request: Request, text: str) -> InboundMessage:
        owner = self.caller.owner
        source = SessionSource(_PLATFORM, chat_id=f"{owner}/{self.session}", user_id=owner)
        message = InboundMessage(source, text, event_id=request.id, request=request)
        return self.door.bind(message)


def _result(message: ChatMessage) -> ChatMessage:
    tool = f"the tool {message.tool_name}" if message.tool_name else "a tool"
    return replace(message, outside=message.outside or f"{tool} of the program")


def talk_of(
    request: web.Request, caller: Caller, door: ProfileDoor, session: str | None = None
) -> Talk:
    """The conversation that the headers name, or `session`; else a new one."""
    given = session or one_header(request, _SESSION_HEADERS)
    memory = one_header(request, _MEMORY_HEADERS)
    return Talk(
        caller,
        door,
        check_session_id(given) if given is not None else new_id("s"),
        is_new=given is None,
        memory_key=None if memory is None else check_session_id(memory, param="session key"),
        hops=hops_of(request),
        whole=request.headers.get("X-Parley-History") == "whole",
        outside=one_line(unquote(request.headers.get(_OUTSIDE_HEADER, "")), _LONGEST_SOURCE),
    )


def hops_of(request: web.Request) -> int:
    """How often it was handed on; raises when that is a ring of gateways."""
    given = request.headers.get("X-Parley-Hops", "0")
    if not (given.isascii() and given.isdecimal() and len(given) < 4) or int(given) > MOST_HOPS:
        raise ApiError.bad_request(
            "This request was handed on by too many gateways: one leads back to another, so "
            "look at `gateway.proxy_url` of each.",
            code="proxy_loop",
        )
    return int(given)


def one_header(request: web.Request, names: tuple[str, ...]) -> str | None:
    """What the header says, by whichever of its names; raises when it is said twice."""
    given = {value for name in names for value in request.headers.getall(name, ())}
    if len(given) > 1:
        raise ApiError.bad_request(f"{' and '.join(names)} name different things; send one.")
    return next(iter(given), None)
