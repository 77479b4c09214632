"""`/v1/conversations`: conversations that responses are added to, item by item."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from parley.gateway.requests import ProfileDoor
from parley.gateway.routing import NobodyThere
from parley.protocol import InboundMessage, Request
from parley.storage.contract import RequestRecord
from parley.storage.items import ConversationChange, ConversationRecord, ItemBody
from parley.surfaces.api.body import read_json
from parley.surfaces.api.callers import Caller
from parley.surfaces.api.desk import Desk
from parley.surfaces.api.errors import ApiError
from parley.surfaces.api.items import no_such_after, page_asked, resolve_references
from parley.surfaces.api.records import check_same, fingerprint_of, new_record
from parley.surfaces.api.talk import Talk
from parley.surfaces.api.wire.content import attachments_keeper
from parley.surfaces.api.wire.conversations import (
    conversation_object,
    messages_of,
    read_items,
    read_new_conversation,
    read_update,
)
from parley.surfaces.api.wire.ids import new_id
from parley.surfaces.api.wire.items import item_list

if TYPE_CHECKING:
    from aiohttp import web

__all__ = [
    "add_items",
    "create",
    "delete",
    "delete_item",
    "find_conversation",
    "list_items",
    "show",
    "show_item",
    "update",
]

_MOST_ITEMS: Final = 10_000
_TRIES: Final = 5
_PAGE: Final = 500


async def create(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    body = await _body(desk, request)
    talk = desk.talk(request, caller, None, session=new_id("conv"))
    body = await resolve_references(talk.door.rows, caller.owner, body, field="items")
    keep = attachments_keeper(talk.door.attachments)
    metadata, (items, messages) = await desk.read(
        request, lambda: read_new_conversation(body, keep)
    )
    message = _message(talk)
    lane, _ = talk.door.named(message)
    record = ConversationRecord(talk.session, caller.owner, lane, metadata, time.time())
    made = conversation_object(record)
    done = _done(desk, request, talk, route="conversation", body=body, made=made)
    change = ConversationChange(items, messages, message.source, done)
    before = await talk.door.rows.create_conversation(record, change)
    return _given(made, before, done)


async def show(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    _, record = await _found(desk, request, caller)
    return _given(conversation_object(record))


async def update(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    metadata = read_update(await _body(desk, request))
    door, record = await _found(desk, request, caller)
    await door.rows.note_conversation(record.id, metadata)
    return _given(conversation_object(replace(record, metadata=metadata)))


async def delete(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    """With all that was said in it."""
    door, record = await _found(desk, request, caller)
    with desk.conversations.editing(record.id) as may:
        if not may or not await door.rows.delete_conversation(record):
            raise _busy()
    return _given({"id": record.id, "object": "conversation.deleted", "deleted": True})


# ── items ──


async def add_items(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    body = await _body(desk, request)
    door, record = await _found(desk, request, caller)
    body = await resolve_references(door.rows, caller.owner, body, field="items")
    keep = attachments_keeper(door.attachments)
    items, messages = await desk.read(request, lambda: read_items(body, keep))
    fresh = [await _with_new_id(door, record, item) for item in items]
    talk = replace(desk.talk(request, caller, door.profile.name), session=record.id)
    made = item_list(fresh, more=False)
    route = f"conversation items {record.id}"
    done = _done(desk, request, talk, route=route, body=body, made=made)
    change = ConversationChange(fresh, messages, _message(talk).source, done)
    added = await door.rows.add_conversation_items(record, change, most=_MOST_ITEMS)
    if added is False:
        raise ApiError.bad_request(
            f"A conversation has {_MOST_ITEMS} items at most.", param="items"
        )
    return _given(made, None if added is True else added, done)


async def list_items(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    asked = page_asked(request)
    door, record = await _found(desk, request, caller)
    page = await door.rows.page_of_items(
        "conversation",
        record.id,
        limit=asked.limit,
        newest_first=asked.newest_first,
        after=asked.after,
    )
    if page is None:
        raise no_such_after()
    return _given(item_list(page.items, more=page.more))


async def show_item(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    door, record = await _found(desk, request, caller)
    item = await door.rows.conversation_item(record.id, request.match_info["item"])
    if item is None:
        raise _no_item()
    return _given(item)


async def delete_item(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    """The conversation goes on as if it had never been there."""
    door, record = await _found(desk, request, caller)
    id = request.match_info["item"]
    keep = attachments_keeper(door.attachments)
    talk = replace(desk.talk(request, caller, door.profile.name), session=record.id)
    with desk.conversations.editing(record.id) as may:
        for _ in range(_TRIES if may else 0):
            items = await _all_items(door, record)
            left = [item for item in items if item["id"] != id]
            if len(left) == len(items):
                raise _no_item()
            messages = await desk.read(request, lambda: messages_of(left, keep))  # noqa: B023
            change = ConversationChange(left, messages, _message(talk).source)
            removed = await door.rows.remove_conversation_item(record, id, change)
            if removed is False:
                break
            if removed:
                return _given(conversation_object(record))
    raise _busy()


async def _with_new_id(door: ProfileDoor, record: ConversationRecord, item: ItemBody) -> ItemBody:
    """An id names one item of a conversation."""
    if await door.rows.conversation_item(record.id, item["id"]) is None:
        return item
    return {**item, "id": new_id(item["id"].partition("_")[0])}


async def _all_items(door: ProfileDoor, record: ConversationRecord) -> list[ItemBody]:
    items: list[ItemBody] = []
    while True:
        after = items[-1]["id"] if items else None
        page = await door.rows.page_of_items(
            "conversation", record.id, limit=_PAGE, newest_first=False, after=after
        )
        if page is None:
            raise _busy()
        items += page.items
        if not page.more:
            return items


# ── what they share ──


async def find_conversation(
    door: ProfileDoor, caller: Caller, id: str
) -> ConversationRecord | None:
    """One that is this caller's own, in this profile."""
    found = await door.rows.conversation(id)
    return found if found is not None and found.owner == caller.owner else None


async def _found(
    desk: Desk, request: web.Request, caller: Caller
) -> tuple[ProfileDoor, ConversationRecord]:
    """The conversation of this id, in one of the profiles that the key may use."""
    away: NobodyThere | None = None
    for name in caller.reach:
        try:
            door = desk.door.to(name)
        except NobodyThere as error:
            away = error
            continue
        found = await find_conversation(door, caller, request.match_info["id"])
        if found is not None:
            return door, found
    if away is not None:
        raise away
    raise ApiError.not_found("There is no such conversation for this key.")


async def _body(desk: Desk, request: web.Request) -> dict[str, Any]:
    rules = desk.rules
    return await read_json(request, most=rules.body_bytes, seconds=rules.body_seconds)


def _message(talk: Talk) -> InboundMessage:
    """Whose lane and source are those of the conversation."""
    return talk.message(Request(new_id("convreq"), ()), "")


def _done(
    desk: Desk,
    request: web.Request,
    talk: Talk,
    *,
    route: str,
    body: Mapping[str, Any],
    made: Mapping[str, Any],
) -> RequestRecord | None:
    """What is kept of a request with an idempotency key."""
    key = desk.idempotency_key(request)
    if key is None:
        return None
    record = new_record(
        _message(talk),
        "conversation",
        owner=talk.caller.owner,
        door=talk.door,
        body={},
        key=key,
        fingerprint=fingerprint_of(route, None, body),
    )
    return replace(record, state="done", result=made, ended_at=record.created_at)


def _given(
    made: Mapping[str, Any],
    before: RequestRecord | None = None,
    done: RequestRecord | None = None,
) -> web.Response:
    from aiohttp import web

    if before is None or done is None:
        return web.json_response(dict(made))
    check_same(before, done)
    return web.json_response(dict(before.result or {}), headers={"Idempotent-Replayed": "true"})


def _busy() -> ApiError:
    return ApiError.conflict(
        "A response of this conversation is under way; try again when it is over.",
        code="conversation_busy",
    )


def _no_item() -> ApiError:
    return ApiError.not_found("There is no such item in this conversation.")
