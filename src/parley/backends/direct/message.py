"""What a remote agent is sent: a turn as one `USER_MESSAGE`, as far as the peer knows it. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from parley.agent.prompt import mend, wishes_of
from parley.agent.providers.http import JsonObject
from parley.backends.base import Thread, Turn
from parley.backends.direct.frames import ATTACHMENTS, IDS, INSTRUCTIONS
from parley.backends.direct.keys import build_thread_key
from parley.backends.proxy.request import Files, asked_of, context_prompt, outside_of
from parley.protocol import Attachment, ChatMessage
from parley.storage.attachments import clean_name

__all__ = ["Message", "frame_of", "message_of", "refusal_of", "thread_key_of"]

_NO_FILES: Final = "this agent cannot receive files"
_SPEAKERS: Final = {"user": "Person", "assistant": "Agent"}


@dataclass(frozen=True, slots=True)
class Message:
    """`about` says who speaks and what they want of the agent: only a peer that takes instructions
    is told. `prelude` is a program's own: it stands before the text where nothing else takes it.
    """

    id: str
    text: str
    about: str = ""
    prelude: str = ""
    attachments: tuple[Attachment, ...] = ()
    outside: str = ""


async def thread_key_of(turn: Turn) -> str:
    thread = await turn.thread() if turn.thread is not None else None
    if thread is None:
        source = turn.source
        thread = Thread(source.platform, source.user_id or source.chat_id, turn.session_id)
    return build_thread_key(
        thread.platform, thread.user_id, thread.chat_id, profile=turn.profile.name
    )


def refusal_of(turn: Turn) -> str | None:
    """What a program asks for that no direct agent can be told; None when there is nothing."""
    request = turn.request
    if request is None:
        return None
    wishes = request.wishes
    if request.tools or wishes.tool is not None or wishes.tool_choice == "required":
        return "A direct agent takes no tools from programs: leave out `tools`."
    wanted = wishes.response_format
    if wanted is not None and wanted.get("type") != "text":
        return "A direct agent takes no `response_format`: leave it out."
    return None


def message_of(turn: Turn) -> Message:
    asked = [message for message in asked_of(turn) if message.role == "user"]
    request = turn.request
    prelude = ""
    if request is not None:
        prelude = _joined((request.instructions.strip(), _transcript(turn.told)))
    return Message(
        id=f"{turn.session_id}.{turn.id}",
        text=_joined(message.text for message in asked),
        about=_joined((context_prompt(turn.source), wishes_of(turn.person.soul))),
        prelude=prelude,
        attachments=tuple(item for message in asked for item in message.attachments),
        outside=outside_of(turn),
    )


def frame_of(message: Message, known: frozenset[str], files: Files) -> JsonObject:
    """The frame for a peer that knows `known`."""
    takes_files = ATTACHMENTS in known
    sent = [item for item in message.attachments if takes_files and item in files.contents]
    notes = "\n".join(
        _note(item, files, takes_files=takes_files)
        for item in message.attachments
        if item not in sent
    )
    text = "\n".join(filter(None, (message.text, notes)))
    frame: JsonObject = {"type": "USER_MESSAGE"}
    if IDS in known:
        frame["id"] = message.id
        if message.outside:
            frame["outside"] = message.outside
    if INSTRUCTIONS in known:
        if instructions := _joined((message.about, message.prelude)):
            frame["instructions"] = instructions
    else:
        text = _joined((message.prelude, text))
    frame["text"] = text
    if sent:
        frame["attachments"] = [_file(item, files.contents[item]) for item in sent]
    return frame


def _file(item: Attachment, content: bytes) -> JsonObject:
    return {
        "name": clean_name(item.name, otherwise="file"),
        "media_type": item.media_type,
        "size": len(content),
        "data": b64encode(content).decode("ascii"),
    }


def _note(item: Attachment, files: Files, *, takes_files: bool) -> str:
    name = clean_name(item.name, otherwise="file")
    if item.is_remote:
        return f"[attached: {name} ({item.media_type}), at {item.path}]"
    why = files.faults.get(item, "it was not sent along") if takes_files else _NO_FILES
    return f"[attached: {name} ({item.media_type}, {_size(item.size)}); {why}]"


def _size(count: int) -> str:
    if count < 1000:
        return f"{count} bytes"
    if count < 1_000_000:
        return f"{round(count / 1000)} KB"
    return f"{count / 1_000_000:.1f} MB"


def _transcript(messages: Sequence[ChatMessage]) -> str:
    lines = [
        f"{_SPEAKERS[message.role]}: {message.text.strip()}"
        for message in mend(messages)
        if message.role in _SPEAKERS and message.text.strip()
    ]
    return "\n\n".join(["What was said before in this conversation:", *lines]) if lines else ""


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part)
