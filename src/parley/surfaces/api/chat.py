"""`POST /v1/chat/completions`: one answer, whole or as it is made."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from parley.agent.providers.calls import parse_arguments
from parley.gateway.live import TurnEnded, TurnStarted
from parley.protocol import (
    ApprovalAsked,
    CallDelta,
    Failed,
    Final,
    ReasoningDelta,
    StepTaken,
    TextDelta,
    TextReset,
    ToolCall,
    ToolFinished,
    ToolStarted,
    Usage,
)
from parley.storage.contract import RequestRecord
from parley.surfaces.api.asks import Ask, Happening, first_word, reply_of
from parley.surfaces.api.body import read_json
from parley.surfaces.api.callers import Caller
from parley.surfaces.api.desk import Desk
from parley.surfaces.api.errors import ApiError, failed_to_error
from parley.surfaces.api.once import give_once
from parley.surfaces.api.outgoing import Outgoing
from parley.surfaces.api.records import Ended, fingerprint_of, new_record
from parley.surfaces.api.stream import EventStream
from parley.surfaces.api.wire.chat_in import read_chat
from parley.surfaces.api.wire.chat_out import (
    ChatChunks,
    chat_completion,
    finish_reason,
)
from parley.surfaces.api.wire.content import attachments_keeper
from parley.surfaces.api.wire.encode import encode
from parley.surfaces.api.wire.streamed_calls import CallPiece, StreamedCalls
from parley.surfaces.api.wire.streamed_text import StreamDiverged, StreamedText

if TYPE_CHECKING:
    from aiohttp import web

    from parley.surfaces.api.wire.parsed import ParsedRequest

__all__ = ["complete", "render"]

_STOPPED = "answer_stopped"


async def complete(desk: Desk, request: web.Request, caller: Caller) -> web.StreamResponse:
    rules = desk.rules
    body = await read_json(request, most=rules.body_bytes, seconds=rules.body_seconds)
    model = body.get("model")
    talk = desk.talk(request, caller, model if isinstance(model, str) else None)
    keep = attachments_keeper(talk.door.attachments)
    continued = not talk.is_new
    parsed = await desk.read(request, lambda: read_chat(body, keep, continued=continued))
    key = desk.idempotency_key(request)
    told = request.headers.get("X-Parley-Events") == "1" and parsed.stream
    asked = talk.request("chatcmpl", parsed, lasting=key is not None, can_ask=told)
    message = talk.message(asked, parsed.text)
    way = Outgoing(desk, request, talk)
    reply = _Reply(way, parsed, asked.id, int(time.time()), told)
    if key is None:
        async with desk.put_in(talk, message) as ask:
            return await reply.give(ask)
    record = new_record(
        message,
        "chat",
        owner=caller.owner,
        door=talk.door,
        body={"model": talk.model, "session_id": talk.session},
        key=key,
        fingerprint=fingerprint_of("chat", talk.named_session, body),
    )
    reply.created = int(record.created_at)
    return await give_once(desk, talk, message, record, reply)


def render(ended: Ended) -> dict[str, Any]:
    """A completion that was stored, as it was given the first time."""
    record = ended.record
    reply = ended.reply if isinstance(ended.reply, Final) else Final("")
    return chat_completion(
        record.id, int(record.created_at), record.body["model"], reply, ended.usage
    )


def _as_ending(result: Mapping[str, Any]) -> TurnEnded:
    """The end of the turn that a stored completion tells of."""
    [choice] = result["choices"]
    calls = tuple(
        ToolCall(
            call["id"], call["function"]["name"], parse_arguments(call["function"]["arguments"])
        )
        for call in choice["message"].get("tool_calls", ())
    )
    reply = Final(
        choice["message"]["content"] or "",
        calls=calls,
        complete=choice["finish_reason"] not in {"length", "content_filter"},
        filtered=choice["finish_reason"] == "content_filter",
        reasoning=choice["message"].get("reasoning_content", ""),
    )
    counted = result["usage"]
    usage = counted and Usage(
        "",
        "",
        counted["prompt_tokens"],
        counted["completion_tokens"],
        counted["prompt_tokens_details"]["cached_tokens"],
        reasoning_tokens=counted["completion_tokens_details"]["reasoning_tokens"],
    )
    return TurnEnded(ending=reply, usage=usage)


@dataclass(slots=True)
class _Reply:
    """One answer on its way. `told`: the program knows Parley's own events."""

    way: Outgoing
    parsed: ParsedRequest
    id: str
    created: int
    told: bool

    async def give(self, ask: Ask) -> web.StreamResponse:
        if self.parsed.stream:
            return await self._stream(ask)
        ended = await ask.end()
        reply = reply_of(ended)
        if isinstance(reply, Failed):
            raise failed_to_error(reply)
        model = self.way.talk.model
        return self.way.whole(chat_completion(self.id, self.created, model, reply, ended.usage))

    async def repeat(self, before: RequestRecord) -> web.StreamResponse:
        result = before.result or {}
        way = self.way.of(before)
        if not self.parsed.stream:
            return way.whole(result, again=True)
        async with way.stream(again=True) as out:
            writer = _Writer(out, self._chunks(result["id"], result["created"]), self.parsed, False)
            writer.begin()
            await writer.take(_as_ending(result))
        return out.response

    def _chunks(self, id: str, created: int) -> ChatChunks:
        counts = self.parsed.include_usage
        return ChatChunks(id, created, self.way.talk.model, include_usage=counts)

    async def _stream(self, ask: Ask) -> web.StreamResponse:
        event = await first_word(ask)
        if isinstance(event, TurnEnded):
            failed = reply_of(event)
            if isinstance(failed, Failed):
                raise self._refusal(failed, tried=event.ending is not None)
        async with self.way.stream() as out:
            chunks = self._chunks(self.id, self.created)
            writer = _Writer(out, chunks, self.parsed, self.told)
            writer.begin()
            if event is None:
                await out.flush()
            while True:
                if event is not None:
                    try:
                        await writer.take(event)
                    except StreamDiverged as error:
                        out.hold(encode(failed_to_error(error.failed).as_body()))
                        return out.response
                if isinstance(event, TurnEnded):
                    return out.response
                event = await ask.next()

    def _refusal(self, failed: Failed, *, tried: bool) -> ApiError:
        """What was tried here in vain, another gateway need not have tried here again."""
        error = failed_to_error(failed)
        if tried and self.told:
            error.headers["X-Should-Retry"] = "false"
        return error


class _Writer:
    """Makes chunks of what happens in a turn."""

    def __init__(
        self, out: EventStream, chunks: ChatChunks, parsed: ParsedRequest, told: bool
    ) -> None:
        self._out = out
        self._chunks = chunks
        self._counts = parsed.include_usage
        self._told = told
        self._one_message = parsed.wishes.response_format is not None
        self._text = StreamedText("\n\n")
        self._calls = StreamedCalls()
        self._has_thought = False
        self._thinks_again = False  # it began once more, or this is the next step

    def begin(self) -> None:
        self._out.hold(self._chunks.role())

    async def take(self, event: Happening) -> None:
        out = self._out
        match event:
            case TextDelta(text=text):
                if piece := self._text.add(text):
                    self._hold_gap()
                    await out.send(self._chunks.text(piece))
            case ReasoningDelta(text=text):
                await out.send(self._chunks.reasoning(self._apart(text)))
            case CallDelta():
                self._hold(self._calls.add(event))
                await out.flush()
            case TextReset() | TurnStarted(resumed=True):
                await self._begin_again()
            case StepTaken(messages=messages) if any(m.role == "assistant" for m in messages):
                await self._step()
            case ToolStarted(call=call) if self._told:
                begun = {"call_id": call.id, "name": call.name, "arguments": dict(call.arguments)}
                await out.send(encode({"phase": "started", **begun}), event="parley.tool")
            case ToolFinished(call=call, ok=ok) if self._told:
                told = {"call_id": call.id, "name": call.name, "ok": ok}
                await out.send(encode({"phase": "finished", **told}), event="parley.tool")
            case ApprovalAsked(call=call, question=question, id=id, lasting=lasting) if self._told:
                asked = {"id": id, "question": question, "call": call.to_dict()}
                await out.send(encode({**asked, "lasting": lasting}), event="parley.approval")
            case TurnEnded():
                await self._end(event)
            case _:
                pass

    def _hold_gap(self) -> None:
        """A chunk of its own: every other chunk is what the model said, letter for letter."""
        if gap := self._text.take_gap():
            self._out.hold(self._chunks.text(gap))

    def _hold(self, piece: CallPiece) -> None:
        if piece.is_new:
            self._out.hold(self._chunks.call_begins(piece.index, piece.call))
        if piece.arguments:
            self._out.hold(self._chunks.arguments(piece.index, piece.arguments))

    def _apart(self, thought: str) -> str:
        """Thoughts of each step, and each try, are a paragraph; none contradicts an answer."""
        gap = "\n\n" if self._thinks_again and not self._told else ""
        self._has_thought, self._thinks_again = True, False
        return gap + thought

    async def _begin_again(self) -> None:
        self._thinks_again = self._has_thought
        if self._told:
            await self._out.send(b"{}", event="parley.reset")
            self._text.clear()
            self._calls.clear()
        else:
            self._text.begin_again()
            self._calls.begin_again()

    async def _step(self) -> None:
        self._thinks_again = self._has_thought
        if self._told:
            await self._out.send(b"{}", event="parley.step")
            self._text.clear()
        elif self._one_message:
            # Whatever reads JSON reads one value: text before a tool call is not part of it.
            self._text.begin_again()
        else:
            self._text.end_message()

    async def _end(self, ended: TurnEnded) -> None:
        out, chunks = self._out, self._chunks
        reply = reply_of(ended)
        if isinstance(reply, Failed):
            error = failed_to_error(reply)
            if ended.ending is None:
                error.code = _STOPPED
            out.hold(encode(error.as_body()))
            return
        if reply.reasoning and not self._has_thought:
            out.hold(chunks.reasoning(reply.reasoning))
        if rest := await self._rest_of(reply.text):
            self._hold_gap()
            out.hold(chunks.text(rest))
        if not self._calls and reply.calls:
            out.hold(chunks.calls(reply.calls))
        else:
            for piece in self._calls.rest_of(reply.calls):
                self._hold(piece)
        out.hold(chunks.finish(finish_reason(reply)))
        if self._counts:
            out.hold(chunks.usage(ended.usage))
        out.hold(b"[DONE]")

    async def _rest_of(self, text: str) -> str:
        try:
            return self._text.rest_of(text)
        except StreamDiverged:
            if not self._told:
                raise
            await self._begin_again()
            return text
