"""`/v1/runs`: turns that go on by themselves, with a log that can be followed from any point."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from typing import Final as Final_

from parley.gateway.approvals import Answer
from parley.gateway.requests import ProfileDoor
from parley.protocol import ChatMessage, Failed, Final, SessionSource
from parley.storage.contract import RequestRecord
from parley.surfaces.api.body import read_json
from parley.surfaces.api.callers import Caller
from parley.surfaces.api.desk import Desk
from parley.surfaces.api.errors import ApiError, failed_to_error
from parley.surfaces.api.items import resolve_references
from parley.surfaces.api.records import Ended, Records, fingerprint_of, new_record
from parley.surfaces.api.responses import go_on_from
from parley.surfaces.api.stream import EventStream
from parley.surfaces.api.wire.content import attachments_keeper
from parley.surfaces.api.wire.responses_out import output_items, response_usage
from parley.surfaces.api.wire.runs import (
    RunStatus,
    approval_decided,
    encode_run_event,
    hermes_event,
    read_approval,
    read_run,
    run_object,
)

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["approve", "events", "render", "show", "start", "stop"]


async def start(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    """Begin a run, and come back at once."""
    from aiohttp import web

    rules = desk.rules
    body = await read_json(request, most=rules.body_bytes, seconds=rules.body_seconds)
    model, session, before = (
        value if isinstance(value := body.get(name), str) else None
        for name in ("model", "session_id", "previous_response_id")
    )
    talk = desk.talk(request, caller, model, session=session)
    named = talk.named_session
    earlier: tuple[ChatMessage, ...] | None = None
    if before is not None:
        # Apart: until its turn begins, nothing would keep another from going on there too.
        place = await go_on_from(desk, talk, before, apart=True)
        talk, earlier = place.talk, place.earlier
    keep = attachments_keeper(talk.door.attachments)
    continued = not talk.is_new or bool(earlier)
    whole = await resolve_references(talk.door.rows, caller.owner, body)
    parsed = await desk.read(request, lambda: read_run(whole, keep, continued=continued))
    asked = talk.request("run", parsed, lasting=True, earlier=earlier, can_ask=True)
    message = talk.message(asked, parsed.text)
    key = desk.idempotency_key(request)
    record = new_record(
        message,
        "run",
        owner=caller.owner,
        door=talk.door,
        body={"session_id": talk.session, "model": talk.model, "metadata": parsed.metadata},
        key=key,
        fingerprint=None if key is None else fingerprint_of("run", named, body),
    )
    known = await desk.hand_in(talk, message, record)
    if known is None:
        return web.json_response(_shown(talk.door, record), status=202, headers=talk.headers)
    last = await desk.records(talk.door).last_event(known.id)
    made = _shown(talk.door, known, last)
    told = replace(talk, session=made["session_id"]).headers
    told["Idempotent-Replayed"] = "true"
    return web.json_response(made, status=202, headers=told)


async def show(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    from aiohttp import web

    records, record = await _found(desk, request, caller)
    last = await records.last_event(record.id)
    return web.json_response(_shown(records.door, record, last))


async def stop(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    """Stop a run; one that is over stays as it ended."""
    records, record = await _found(desk, request, caller)
    await records.stop(record)
    return await show(desk, request, caller)


async def approve(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    """Answer what a run, or a streamed answer under way, asks for."""
    from aiohttp import web

    rules = desk.rules
    body = await read_json(request, most=64 * 1024, seconds=rules.body_seconds)
    answer = read_approval(body)
    allowed = answer.decision == "approve"
    id = request.match_info["id"]
    open_ask = desk.asks.find(id, caller.owner)
    if open_ask is not None and open_ask.door.profile.name in caller.reach:
        door, lane, records, runs = open_ask.door, open_ask.lane, None, True
    else:
        if "runs" not in caller.key.scopes:
            raise ApiError.not_found("There is no such answer under way for this key.")
        records, record = await _found(desk, request, caller)
        door, lane = records.door, record.lane
        runs = _runs(record, await records.last_event(id))
    found = Answer()
    approval = answer.approval_id
    if approval is None:
        waiting = door.approvals_waiting(lane) if runs else ()
        approval = waiting[0] if len(waiting) == 1 else ""
    if runs and approval:
        found = await door.decide(
            lane,
            approval=approval,
            allowed=allowed,
            by=SessionSource(platform="api", user_id=caller.owner),
            scope=answer.scope,
        )
    if found.refused:
        raise ApiError.forbidden(found.refused)
    if found.question is None:
        raise ApiError.conflict(
            "Nothing waits for this approval: it was answered, or its run has ended.",
            param="approval_id",
            code="approval_not_waiting",
        )
    if records is not None:
        decided = approval_decided(approval, "approve" if allowed else "deny")
        records.note(id, ("approval.decided", decided))
    return web.json_response({"id": approval, "allowed": allowed})


async def events(desk: Desk, request: web.Request, caller: Caller) -> web.StreamResponse:
    """Everything that happened in a run, from the start or from `Last-Event-ID`, and what will."""
    after, names = _after(request), _names(request)
    records, record = await _found(desk, request, caller)
    async with EventStream(
        request,
        keepalive_seconds=desk.rules.keepalive_seconds,
        stalled_seconds=desk.rules.stalled_seconds,
        allowed=caller.still,
    ) as out:
        async for event in records.events(record.id, after):
            kind, data = event.kind, event.data
            if names == "hermes":
                kind, data = hermes_event(kind, data)
            told = encode_run_event(kind, record.id, data)
            await out.send(told, event=kind, id=event.number)
    return out.response


async def _found(desk: Desk, request: web.Request, caller: Caller) -> tuple[Records, RequestRecord]:
    """The run of this id, in one of the profiles that the key may use."""
    found = await desk.look_up(caller, request.match_info["id"], "run")
    if found is None:
        raise ApiError.not_found("There is no such run for this key.")
    return found


def render(ended: Ended) -> dict[str, Any]:
    """The part of a run that its end adds."""
    reply = ended.reply
    told: dict[str, Any] = {"output": None, "usage": response_usage(ended.usage), "error": None}
    if isinstance(reply, Final):
        told["output"] = reply.text
        if reply.calls:
            told["output_items"] = output_items(reply)
    elif isinstance(reply, Failed):
        told["error"] = failed_to_error(reply).as_body()["error"]
    return told


_STATUS: Final_[dict[str, RunStatus]] = {
    "queued": "queued",
    "running": "running",
    "stopping": "running",
    "done": "completed",
    "failed": "failed",
    "stopped": "cancelled",
}


def _shown(door: ProfileDoor, record: RequestRecord, last_event: int = 0) -> dict[str, Any]:
    status = _STATUS[record.state]
    if _runs(record, last_event):
        status = "waiting_for_approval" if door.waits_for_approval(record.lane) else "running"
    made = run_object(
        record.id,
        status=status,
        session_id=record.body["session_id"],
        model=record.body["model"],
        created_at=record.created_at,
        ended_at=record.ended_at,
        last_event_id=last_event,
    )
    return made | {"metadata": record.body["metadata"]} | dict(record.result or {})


def _runs(record: RequestRecord, last_event: int) -> bool:
    """Whether what happens in its lane is its own: it has begun, and is not over."""
    return record.ended_at is None and last_event > 0


def _names(request: web.Request) -> str:
    """Whose names the events have: by the query, else by the header."""
    names = request.query.get("names") or request.headers.get("X-Parley-Names") or "parley"
    if names not in {"parley", "hermes"}:
        raise ApiError.bad_request("`names` must be parley or hermes.", param="names")
    return names


def _after(request: web.Request) -> int:
    told = {
        "after": request.query.get("after"),
        "Last-Event-ID": request.headers.get("Last-Event-ID"),
    }
    after = 0
    for name, given in told.items():
        if not given:
            continue
        if not given.isascii() or not given.isdecimal() or len(given) > 15:
            raise ApiError.bad_request(f"`{name}` must be the number of an event.", param=name)
        after = int(given)  # the header is the newer word: a browser adds it when it comes back
    return after
