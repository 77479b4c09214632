"""The frames between a terminal and the gateway: one JSON object a line, each with a `type`."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, TypeAlias, get_args

from parley.protocol import ParleyError

__all__ = [
    "LONGEST_LINE",
    "About",
    "Accepted",
    "Ack",
    "AskAbout",
    "AskStatus",
    "BadFrame",
    "Deliver",
    "Frame",
    "Hello",
    "Problem",
    "Say",
    "Show",
    "Status",
    "TakeBack",
    "Welcome",
    "decode",
    "encode",
]

LONGEST_LINE = 4 * 1024 * 1024


class BadFrame(ParleyError):
    """The other end sent something that is no frame."""


# ── from the terminal ──


@dataclass(frozen=True, slots=True)
class Hello:
    """Join the conversation `chat`; `once`: for one answer, and nobody comes back for more."""

    chat: str
    user: str = ""
    once: bool = False


@dataclass(frozen=True, slots=True)
class Say:
    """A message. The same `id` is the same message, however often it is sent."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Nobody waits for the answer to this message any more: drop it, or stop its turn."""

    id: str


@dataclass(frozen=True, slots=True)
class AskAbout:
    """What became of the message `id`?"""

    id: str


@dataclass(frozen=True, slots=True)
class Ack:
    """The delivery was shown to the person."""

    delivery: int


@dataclass(frozen=True, slots=True)
class AskStatus:
    pass


# ── from the gateway ──


@dataclass(frozen=True, slots=True)
class Welcome:
    """Who answers here; and of a conversation that goes on its title and its last exchange."""

    version: str
    answered_by: str
    pid: int
    profile: str = "default"
    title: str = ""
    asked: str = ""
    answered: str = ""
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of `Say`: `queued`, `duplicate`, `rate_limited`; or `refused` and why.

    `taken back`: the answer to `TakeBack`; nothing more comes of that message.
    `later`: this gateway is stopping; say it again, under the same id, to the next one.
    """

    id: str
    state: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class About:
    """The state of a message: `queued`, `running`, `done`, `failed`, `stopped`, `dropped`.

    Empty when there is no such message: it was not accepted, or is a command.
    """

    id: str
    state: str


@dataclass(frozen=True, slots=True)
class Show:
    """A live event: `started`, `text`, `reset`, `step`, `tool`, `tool_done`, `asks`, `ended`.

    `ended` says in `text` how: `stopped`, or `set aside` to go on at the next gateway. `approval`
    is the id of what it `asks`; `answers` the messages of a turn that started or ended.
    """

    turn: int
    event: str
    text: str = ""
    ok: bool = True
    approval: str = ""
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deliver:
    """A reply to the messages `answers`; `key` is the same when it comes again."""

    delivery: int
    key: str
    kind: str
    text: str
    answers: tuple[str, ...] = ()
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Status:
    status: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Problem:
    sentence: str


Frame: TypeAlias = (
    Hello
    | Say
    | TakeBack
    | AskAbout
    | Ack
    | AskStatus
    | Welcome
    | Accepted
    | About
    | Show
    | Deliver
    | Status
    | Problem
)

_BY_NAME: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in get_args(Frame)}

# What JSON makes of each type that a frame's field has.
_WIRE_TYPES: dict[str, type[Any] | tuple[type[Any], ...]] = {
    "str": str,
    "int": int,
    "bool": bool,
    "int | None": (int, type(None)),
    "tuple[str, ...]": list,
    "dict[str, Any]": dict,
}


_NAMES: dict[type[Any], tuple[str, tuple[str, ...]]] = {
    kind: (name, tuple(field.name for field in fields(kind))) for name, kind in _BY_NAME.items()
}


def encode(frame: Frame) -> bytes:
    name, members = _NAMES[type(frame)]
    record = {"type": name, **{member: getattr(frame, member) for member in members}}
    line = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    # Half a surrogate pair, as a broken argument may hold one, has no UTF-8.
    return line.encode(errors="replace") + b"\n"


def decode(line: bytes) -> Frame:
    """Unknown fields are ignored, so that either end may be a little newer."""
    try:
        record = json.loads(line)
        frame: Frame = _build(_BY_NAME[record.pop("type")], record)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadFrame("The line is not a frame of this protocol.") from error
    return frame


def _build(kind: type[Any], record: dict[str, Any]) -> Any:
    """The frame, or a `TypeError` when a value is missing or of another type."""
    values = {}
    for field in fields(kind):
        if field.name not in record:
            continue
        value = record[field.name]
        if not isinstance(value, _WIRE_TYPES[str(field.type)]):
            raise TypeError(field.name)
        values[field.name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)
