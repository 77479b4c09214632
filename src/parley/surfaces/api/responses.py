"""`/v1/responses`: answers that can be asked for again, and gone on from."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from parley.gateway.live import TurnEnded, TurnStarted
from parley.gateway.requests import ProfileDoor
from parley.protocol import (
    CallDelta,
    ChatMessage,
    Failed,
    Final,
    InboundMessage,
    ReasoningDelta,
    StepTaken,
    TextDelta,
    TextReset,
)
from parley.storage.contract import RequestRecord
from parley.surfaces.api.asks import Ask, Happening, first_word, reply_of
from parley.surfaces.api.background import follow, is_background, progress_of
from parley.surfaces.api.body import read_json
from parley.surfaces.api.callers import Caller
from parley.surfaces.api.conversations import find_conversation
from parley.surfaces.api.desk import Desk
from parley.surfaces.api.errors import ApiError, failed_to_error
from parley.surfaces.api.items import (
    no_such_after,
    page_asked,
    query_flag,
    query_number,
    resolve_references,
)
from parley.surfaces.api.once import give_once
from parley.surfaces.api.outgoing import Outgoing
from parley.surfaces.api.records import (
    BACKGROUND,
    Ended,
    Records,
    fingerprint_of,
    new_record,
)
from parley.surfaces.api.stream import EventStream
from parley.surfaces.api.talk import Talk
from parley.surfaces.api.wire.content import attachments_keeper
from parley.surfaces.api.wire.conversations import instructions_in
from parley.surfaces.api.wire.ids import new_id
from parley.surfaces.api.wire.items import item_list
from parley.surfaces.api.wire.response_log import response_in
from parley.surfaces.api.wire.responses_again import events_again
from parley.surfaces.api.wire.responses_events import ResponseEvents, ServerEvent
from parley.surfaces.api.wire.responses_in import read_response
from parley.surfaces.api.wire.responses_out import (
    incomplete_details,
    output_items,
    response_object,
    response_outcome,
    response_status,
)
from parley.surfaces.api.wire.streamed_text import StreamDiverged

if TYPE_CHECKING:
    from aiohttp import web

    from parley.surfaces.api.wire.parsed import ParsedRequest

__all__ = ["cancel", "create", "delete", "go_on_from", "input_items", "render", "show"]

_FOR_A_REPEAT = 86_400.0
_PLACE = "_place"
"""Where it was given: kept with a stored response, told to nobody."""


async def create(desk: Desk, request: web.Request, caller: Caller) -> web.StreamResponse:
    rules = desk.rules
    body = await read_json(request, most=rules.body_bytes, seconds=rules.body_seconds)
    model, before = body.get("model"), body.get("previous_response_id")
    talk = desk.talk(request, caller, model if isinstance(model, str) else None)
    if not isinstance(before, str):
        return await _create_in(desk, request, talk, body)
    # In the background until its turn begins nothing would keep another from going on there too.
    apart = body.get("background") is True
    place = await go_on_from(desk, talk, before, apart=apart)
    try:
        return await _create(desk, request, talk, body, place)
    finally:
        if not place.earlier and not apart:
            desk.let_go(before)


async def _create_in(
    desk: Desk, request: web.Request, talk: Talk, body: dict[str, Any]
) -> web.StreamResponse:
    """In the conversation that the request names; else in a new one, or that of the headers."""
    conversation = _conversation_in(body)
    if conversation is None:
        return await _create(desk, request, talk, body)
    async with desk.conversations.adding(conversation):
        place = await _in_conversation(talk, conversation)
        return await _create(desk, request, talk, body, place)


async def _create(
    desk: Desk,
    request: web.Request,
    asked_in: Talk,
    body: dict[str, Any],
    place: Place | None = None,
) -> web.StreamResponse:
    talk = asked_in if place is None else place.talk
    earlier = None if place is None else place.earlier
    keep = attachments_keeper(talk.door.attachments)
    continued = not talk.is_new or bool(earlier)
    whole = await resolve_references(talk.door.rows, talk.caller.owner, body)
    parsed = await desk.read(request, lambda: read_response(whole, keep, continued=continued))
    key = desk.idempotency_key(request)
    kind = BACKGROUND.removesuffix("_") if parsed.background else "resp"
    lasting = key is not None or parsed.background
    told = replace(parsed, instructions=_joined(place, parsed.instructions))
    asked = talk.request(kind, told, lasting=lasting, earlier=earlier)
    message = talk.message(asked, parsed.text)
    echo = response_object(asked.id, int(time.time()), talk.model, parsed, status="in_progress")
    record = new_record(
        message,
        "response",
        owner=talk.caller.owner,
        door=talk.door,
        body={
            "session_id": talk.session,
            "store": parsed.store,
            "forget": talk.is_new and not parsed.store,
            "echo": echo,
            "input": parsed.items,
            "background": parsed.background,
            "conversation": parsed.conversation,
        },
        key=key,
        fingerprint=fingerprint_of("response", asked_in.named_session, body) if key else None,
    )
    if not parsed.store:
        record = replace(record, expires_at=record.created_at + _FOR_A_REPEAT)
    way = Outgoing(desk, request, talk)
    if parsed.background:
        return await _give_in_background(way, message, record, stream=parsed.stream)
    reply = _Reply(way, parsed, record)
    if key is not None:
        return await give_once(desk, talk, message, record, reply)
    try:
        async with desk.put_in(talk, message) as ask:
            return await reply.give(ask)
    finally:
        if not parsed.store and talk.is_new:
            desk.spawn(_forget(talk.door, record))


async def _give_in_background(
    way: Outgoing, message: InboundMessage, record: RequestRecord, *, stream: bool
) -> web.StreamResponse:
    """Tell of it as soon as it is taken; it goes on by itself."""
    known = await way.desk.hand_in(way.talk, message, record)
    given = known or record
    records, again = way.desk.records(way.talk.door), known is not None
    if not stream:
        return way.of(given).whole(public(await progress_of(records, given)), again=again)
    async with way.of(given).stream(again=again) as out:
        await follow(out, records, given)
    return out.response


async def show(desk: Desk, request: web.Request, caller: Caller) -> web.StreamResponse:
    """A stored response; with `stream`, as the events it was made of."""
    from aiohttp import web

    streamed, after = query_flag(request, "stream"), query_number(request, "starting_after")
    records, record = await _found(desk, request, caller)
    result = public(await progress_of(records, record))
    if not streamed:
        return web.json_response(result)
    async with _event_stream(desk, request, caller) as out:
        if is_background(record):
            await follow(out, records, record, after=after)
        else:
            await _send(out, events_again(result)[_position(after) :])
    return out.response


async def cancel(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    """Stop a response in the background; one that is over stays as it ended."""
    from aiohttp import web

    records, record = await _found(desk, request, caller)
    if not is_background(record):
        raise ApiError.bad_request(
            "Only a response that was made with `background` can be cancelled."
        )
    await records.stop(record)
    _, record = await _found(desk, request, caller)
    return web.json_response(public(await progress_of(records, record)))


async def input_items(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    """What a stored response was given."""
    from aiohttp import web

    asked = page_asked(request)
    records, record = await _found(desk, request, caller)
    if record.result is None:
        page = asked.of(record.body["input"])
    else:
        page = await records.door.rows.page_of_items(
            "response",
            record.id,
            limit=asked.limit,
            newest_first=asked.newest_first,
            after=asked.after,
        )
    if page is None:
        raise no_such_after()
    return web.json_response(item_list(page.items, more=page.more))


async def delete(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    from aiohttp import web

    records, record = await _found(desk, request, caller)
    if record.result is None:
        await records.stop(record)
        records, record = await _found(desk, request, caller)
    await records.delete(record)
    rows = records.door.rows
    now = await rows.session_of(record.lane)
    # What was said in it goes too, unless others go on from there.
    alone = now is not None and now.turns == 1 and not record.body.get("conversation")
    if now is not None and alone and now.id == (record.result or {})[_PLACE]["session"]:
        await rows.delete_session(now.id)
    return web.json_response({"id": record.id, "object": "response", "deleted": True})


async def _found(desk: Desk, request: web.Request, caller: Caller) -> tuple[Records, RequestRecord]:
    found = await desk.look_up(caller, request.match_info["id"], "response")
    if found is None or not _is_kept(found[1]):
        raise ApiError.not_found("There is no such response for this key.")
    return found


def _is_kept(record: RequestRecord) -> bool:
    """Whether it may be asked for again."""
    return bool(record.body["store"]) and (record.result is not None or is_background(record))


@dataclass(frozen=True, slots=True)
class Place:
    """Where to go on: in a conversation as it is, or in a new one with what was said `earlier`."""

    talk: Talk
    earlier: tuple[ChatMessage, ...] = ()
    instructions: str = ""


def _conversation_in(body: Mapping[str, Any]) -> str | None:
    named = body.get("conversation")
    id = named.get("id") if isinstance(named, dict) else named
    return id if isinstance(id, str) else None


async def _in_conversation(talk: Talk, id: str) -> Place:
    found = await find_conversation(talk.door, talk.caller, id)
    if found is None:
        raise ApiError.not_found(
            f"There is no such conversation with {talk.model} for this key.",
            param="conversation",
            code="conversation_not_found",
        )
    how = instructions_in(await talk.door.rows.conversation_instructions(id))
    return Place(replace(talk, session=id, is_new=False), instructions=how)


def _joined(place: Place | None, instructions: str) -> str:
    standing = "" if place is None else place.instructions
    return "\n\n".join(text for text in (standing, instructions) if text)


async def go_on_from(desk: Desk, talk: Talk, previous: str, *, apart: bool = False) -> Place:
    """The conversation of an earlier response, which is yours until `let_go`.

    When that was not the last word there, or someone else goes on from it, or it is to be
    `apart`, a new one begins with all that led up to it. So it does where the response is in a
    conversation that a program made: only what names that conversation is added to it.
    """
    records = desk.records(talk.door)
    found = await records.find(previous, talk.caller.owner, "response")
    if found is None or not _is_kept(found):
        raise ApiError.not_found(
            "There is no response of this `previous_response_id` for this key.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    if found.result is None or found.result["status"] not in {"completed", "incomplete"}:
        raise ApiError.bad_request(
            "The response of this `previous_response_id` is not complete.",
            param="previous_response_id",
            code="previous_response_not_complete",
        )
    place = found.result[_PLACE]
    rows = talk.door.rows
    now = await rows.session_of(found.lane)
    last = None if now is None else (now.id, now.turns)
    is_last = last == (place["session"], place.get("turns"))
    apart = apart or bool(found.body.get("conversation"))
    if is_last and not apart and desk.go_on(previous):
        return Place(replace(talk, session=found.body["session_id"], is_new=False))
    told = await rows.transcript(place["session"] or "", whole=True)
    earlier = tuple(entry.message for entry in told if entry.turn <= (place["turn"] or 0))
    return Place(replace(talk, session=new_id("fork"), is_new=True), earlier)


def render(ended: Ended) -> dict[str, Any]:
    """A response that was stored."""
    echo, place = ended.record.body["echo"], {"turn": ended.turn, "session": ended.session}
    if ended.log:
        return {**response_in(echo, ended.log), _PLACE: place}
    reply = ended.reply if isinstance(ended.reply, Final) else Final("")
    outcome = response_outcome(
        response_status(reply),
        output_items(reply),
        usage=ended.usage,
        completed_at=int(time.time()),
        incomplete=incomplete_details(reply),
    )
    return {**echo, **outcome, _PLACE: place}


def public(result: Mapping[str, Any]) -> dict[str, Any]:
    """A response without our notes on where it was given."""
    return {name: value for name, value in result.items() if name != _PLACE}


@dataclass(slots=True)
class _Reply:
    """One response on its way."""

    way: Outgoing
    parsed: ParsedRequest
    record: RequestRecord

    async def give(self, ask: Ask) -> web.StreamResponse:
        if self.parsed.stream:
            return await self._stream(ask)
        steps: list[str] = []
        while not isinstance(event := await ask.next(), TurnEnded):
            if isinstance(event, StepTaken) and not self.parsed.wishes.response_format:
                steps += [each.text for each in event.messages if each.role == "assistant"]
        reply = reply_of(event)
        if isinstance(reply, Failed):
            raise failed_to_error(reply)
        made = render(Ended(self.record, reply, event.usage))
        made["output"] = output_items(reply, steps=steps)
        return self.way.whole(public(await self._keep(ask, made)))

    async def repeat(self, before: RequestRecord) -> web.StreamResponse:
        way, result = self.way.of(before), public(before.result or {})
        if not self.parsed.stream:
            return way.whole(result, again=True)
        async with way.stream(again=True) as out:
            await _send(out, events_again(result))
        return out.response

    async def _keep(self, ask: Ask, made: dict[str, Any]) -> Mapping[str, Any]:
        """Store it before it is told, if it is to be stored."""
        talk, record, desk = self.way.talk, self.record, self.way.desk
        is_kept = self.parsed.store or self.parsed.conversation is not None
        if not is_kept and record.key is None:
            return made
        now = await talk.door.rows.session_of(record.lane)
        place: dict[str, Any] = {"turn": ask.turn}
        if now is not None:
            place |= {"session": now.id, "turns": now.turns}
        return await desk.records(talk.door).keep(record, made | {_PLACE: place})

    async def _stream(self, ask: Ask) -> web.StreamResponse:
        event = await first_word(ask)
        if isinstance(event, TurnEnded):
            failed = reply_of(event)
            if isinstance(failed, Failed):
                raise failed_to_error(failed)
        record = self.record
        events = ResponseEvents(record.body["echo"])
        async with self.way.stream() as out:
            await _send(out, events.start())
            while True:
                try:
                    if isinstance(event, TurnEnded):
                        await self._end(out, events, ask, event)
                        return out.response
                    if event is not None:
                        await _send(out, _told(events, event))
                except StreamDiverged as error:
                    await _send(out, events.fail(error.failed))
                    return out.response
                event = await ask.next()

    async def _end(
        self, out: EventStream, events: ResponseEvents, ask: Ask, ended: TurnEnded
    ) -> None:
        reply = reply_of(ended)
        if isinstance(reply, Failed):
            await _send(out, events.fail(reply, ended.usage))
            return
        last = events.complete(reply, ended.usage, at=int(time.time()))
        await self._keep(ask, json.loads(last[-1].data)["response"])
        await _send(out, last)


def _position(after: int | None) -> int:
    """Of the event that follows the one that was seen last."""
    return 0 if after is None else after + 1


def _event_stream(desk: Desk, request: web.Request, caller: Caller) -> EventStream:
    rules = desk.rules
    return EventStream(
        request,
        keepalive_seconds=rules.keepalive_seconds,
        stalled_seconds=rules.stalled_seconds,
        allowed=caller.still,
    )


async def _send(out: EventStream, events: Sequence[ServerEvent]) -> None:
    """All of them in one write."""
    for event in events:
        out.hold(event.data, event=event.name)
    if events:
        await out.flush()


def _told(events: ResponseEvents, event: Happening) -> list[ServerEvent]:
    match event:
        case TextDelta(text=text):
            return events.text(text)
        case ReasoningDelta(text=text):
            return events.reasoning(text)
        case CallDelta():
            return events.call(event)
        case TextReset() | TurnStarted(resumed=True):
            return events.begin_again()
        case StepTaken(messages=messages) if any(each.role == "assistant" for each in messages):
            return events.step()
        case _:
            return []


async def _forget(door: ProfileDoor, record: RequestRecord) -> None:
    """What was said in a conversation that is not to be kept, however it ended."""
    await door.withdraw(record.lane, record.dedupe)
    now = await door.rows.session_of(record.lane)
    if now is not None:
        await door.rows.delete_session(now.id)
