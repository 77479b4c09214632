"""An answer on its way to one client: what happens in a turn, as the frames that this one knows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias
from typing import Final as Final_

from parley.backends.direct import frames
from parley.gateway.live import TurnStarted
from parley.protocol import (
    ApprovalAsked,
    Attachment,
    Failed,
    Final,
    TextDelta,
    TextReset,
    ToolFinished,
    ToolStarted,
    Usage,
)
from parley.surfaces.agent_ws.files import note_of, read_file
from parley.surfaces.agent_ws.follow import ends_step
from parley.surfaces.api.asks import Happening
from parley.surfaces.api.wire.encode import remainder

__all__ = ["Answer", "Send", "error_frame"]

Send: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None]]

_AGAIN: Final_ = "\n\n(The answer begins anew:)\n\n"


def error_frame(code: str, details: str, *, id: str | None = None) -> dict[str, Any]:
    named = {} if id is None else {"id": id}
    return {"type": "ERROR", "code": code, "details": details, **named}


class Answer:
    """Of the message `id`, if it has one. `knows` tells what the client does, as of now.

    All chunks of a plain client together are an answer that can be read: what was said before a
    tool was used is a paragraph of its own, and where a reply begins anew, that is said.
    """

    def __init__(self, send: Send, knows: Callable[[str], bool], id: str | None) -> None:
        self._send = send
        self._knows = knows
        self._id = id
        self._said: list[str] = []
        self._in_step = False
        """Text of a step that is over stands before whatever is said next."""

    async def take(self, event: Happening) -> None:
        match event:
            case TextDelta(text=text) if text:
                await self._say(text)
            case TextReset() | TurnStarted(resumed=True):
                await self._withdraw()
            case ToolStarted(call=call):
                await self._tool({"name": call.name, "state": "started", "id": call.id})
            case ToolFinished(call=call, ok=ok):
                told = {"name": call.name, "state": "finished", "ok": ok, "id": call.id}
                await self._tool(told)
            case ApprovalAsked(call=call, question=question, id=id):
                if self._knows(frames.APPROVALS):
                    asked = {"id": id, "question": question, "tool": call.name}
                    await self._send({"type": "APPROVAL_ASKED", **asked})
            case _ if ends_step(event):
                self._in_step = self._in_step or bool("".join(self._said).strip())
                self._said.clear()
            case _:
                pass

    async def working(self) -> None:
        if self._knows(frames.PROGRESS):
            await self._send({"type": "AGENT_EVENT_WORKING"})

    async def end(self, reply: Final | Failed, usage: Usage | None, *, pending: int = 0) -> None:
        if isinstance(reply, Failed):
            await self._send(error_frame(reply.kind, reply.sentence, id=self._id))
            return
        rest = remainder("".join(self._said), reply.text)
        if rest is None:
            await self._withdraw()
            rest = reply.text
        if rest:
            await self._say(rest)
        await self._files(reply.attachments)
        used = 0 if usage is None else usage.input_tokens + usage.output_tokens
        told: dict[str, Any] = {"type": "AGENT_EVENT_END", "tokens_used": used}
        if self._id is not None:
            told["id"] = self._id
        if self._knows(frames.CALLBACKS):
            told["pending"] = pending
        await self._send(told)

    async def _say(self, text: str) -> None:
        if self._in_step:
            self._in_step = False
            await self._chunk("\n\n")
        self._said.append(text)
        await self._chunk(text)

    async def _chunk(self, text: str) -> None:
        await self._send({"type": "AGENT_EVENT_TEXT_CHUNK", "text": text})

    async def _tool(self, told: Mapping[str, Any]) -> None:
        if self._knows(frames.PROGRESS):
            self._in_step = False  # whoever knows of tools parts the text there
            await self._send({"type": "AGENT_EVENT_TOOL", **told})

    async def _withdraw(self) -> None:
        if not self._said:
            return
        self._said.clear()
        if self._knows(frames.PROGRESS):
            await self._send({"type": "AGENT_EVENT_RESET"})
        else:
            await self._chunk(_AGAIN)

    async def _files(self, files: Sequence[Attachment]) -> None:
        notes: list[str] = []
        for file in files:
            if not self._knows(frames.ATTACHMENTS):
                notes.append(note_of(file))
                continue
            made = await asyncio.to_thread(read_file, file)
            if isinstance(made, str):
                notes.append(made)
            else:
                await self._send({"type": "AGENT_EVENT_FILE", **made})
        if notes:
            await self._chunk("\n\n" + "\n".join(f"[{note}]" for note in notes))
