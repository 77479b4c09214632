"""An answer on its way to one client: what happens in a turn, as the frames that this one knows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

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
from parley.surfaces.api.wire.streamed_text import StreamDiverged, StreamedText

__all__ = ["Answer", "Send", "error_frame"]

Send: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None]]


def error_frame(code: str, details: str, *, id: str | None = None) -> dict[str, Any]:
    named = {} if id is None else {"id": id}
    return {"type": "ERROR", "code": code, "details": details, **named}


class Answer:
    """Of the message `id`, if it has one. `knows` tells what the client does, as of now.

    All chunks of a plain client together are an answer that can be read: what was said before a
    tool was used is a paragraph of its own. A reply that begins again in other words raises
    `StreamDiverged`, for a plain client cannot take back what it was sent.
    """

    def __init__(self, send: Send, knows: Callable[[str], bool], id: str | None) -> None:
        self._send = send
        self._knows = knows
        self._id = id
        self._text = StreamedText("\n\n")

    async def take(self, event: Happening) -> None:
        match event:
            case TextDelta(text=text) if text:
                await self._chunk(self._text.add(text))
            case TextReset() | TurnStarted(resumed=True):
                await self._begin_again()
            case ToolStarted(call=call):
                await self._tool({"name": call.name, "state": "started", "id": call.id})
            case ToolFinished(call=call, ok=ok):
                told = {"name": call.name, "state": "finished", "ok": ok, "id": call.id}
                await self._tool(told)
            case ApprovalAsked(call=call, question=question, id=id, lasting=lasting):
                if self._knows(frames.APPROVALS):
                    asked = {"id": id, "question": question, "tool": call.name, "lasting": lasting}
                    await self._send({"type": "APPROVAL_ASKED", **asked})
            case _ if ends_step(event):
                self._text.end_message()
            case _:
                pass

    async def working(self) -> None:
        if self._knows(frames.PROGRESS):
            await self._send({"type": "AGENT_EVENT_WORKING"})

    async def end(self, reply: Final | Failed, usage: Usage | None, *, pending: int = 0) -> None:
        if isinstance(reply, Failed):
            await self._send(error_frame(reply.kind, reply.sentence, id=self._id))
            return
        await self._chunk(await self._rest_of(reply.text))
        await self._files(reply.attachments)
        used = 0 if usage is None else usage.input_tokens + usage.output_tokens
        told: dict[str, Any] = {"type": "AGENT_EVENT_END", "tokens_used": used}
        if self._id is not None:
            told["id"] = self._id
        if self._knows(frames.CALLBACKS):
            told["pending"] = pending
        await self._send(told)

    async def _chunk(self, text: str) -> None:
        if text:
            whole = self._text.take_gap() + text
            await self._send({"type": "AGENT_EVENT_TEXT_CHUNK", "text": whole})

    async def _tool(self, told: Mapping[str, Any]) -> None:
        if self._knows(frames.PROGRESS):
            self._text.drop_gap()
            await self._send({"type": "AGENT_EVENT_TOOL", **told})

    async def _begin_again(self) -> None:
        if not self._knows(frames.PROGRESS):
            self._text.begin_again()
        elif self._text.sent:
            self._text.clear()
            await self._send({"type": "AGENT_EVENT_RESET"})

    async def _rest_of(self, text: str) -> str:
        try:
            return self._text.rest_of(text)
        except StreamDiverged:
            if not self._knows(frames.PROGRESS):
                raise
            await self._begin_again()
            return text

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
            self._text.drop_gap()  # the notes begin with one
            await self._chunk("\n\n" + "\n".join(f"[{note}]" for note in notes))
