"""`/api/sessions` and `/api/jobs`: what a key has stored and planned, to be read only."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from parley.gateway.requests import ProfileDoor
from parley.protocol import InboundMessage, SessionSource
from parley.storage.contract import SessionRecord
from parley.storage.hands import JobRecord
from parley.surfaces.api.callers import Caller
from parley.surfaces.api.desk import Desk
from parley.surfaces.api.errors import ApiError
from parley.surfaces.api.items import limit_asked

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["jobs", "sessions"]


async def sessions(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    """The conversations of this key, the newest first."""
    door, prefix = _scope(desk, request, caller)
    limit, after = _page(request)
    found = await door.rows.sessions_under(prefix, limit=limit + 1, after=after)
    shown = [_session(each, prefix, door) for each in found[:limit]]
    last = found[limit - 1] if len(found) > limit else None
    return _listed(shown, None if last is None else (last.updated_at, last.id))


async def jobs(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    """What is planned in the conversations of this key, the next one first."""
    door, prefix = _scope(desk, request, caller)
    limit, after = _page(request)
    found = await door.rows.jobs_under(prefix, limit=limit + 1, after=after)
    last = found[limit - 1] if len(found) > limit else None
    shown = [_job(each, door) for each in found[:limit]]
    return _listed(shown, None if last is None else (last.next_at, last.job.id))


def _scope(desk: Desk, request: web.Request, caller: Caller) -> tuple[ProfileDoor, str]:
    """The profile that is meant, and how the lanes begin that may be seen of it."""
    door = desk.door.to(caller.target(request.query.get("model")))
    match request.query.get("all", "false"):
        case "false":
            return door, _own_lanes(door, caller.owner)
        case "true" if "admin" in caller.key.scopes:
            return door, ""
        case "true":
            raise ApiError.forbidden("This key may not see that: it needs the scope admin.")
        case _:
            raise ApiError.bad_request("`all` must be true or false.", param="all")


def _own_lanes(door: ProfileDoor, owner: str) -> str:
    # No key's name holds a slash: the lanes of one are not the beginning of another's.
    source = SessionSource("api", chat_id=f"{owner}/", user_id=owner)
    lane, _ = door.named(door.bind(InboundMessage(source, "", event_id="view")))
    return lane


def _page(request: web.Request) -> tuple[int, tuple[float, str] | None]:
    limit = limit_asked(request)
    cursor = request.query.get("after")
    if not cursor:
        return limit, None
    at, _, name = cursor.partition("~")
    try:
        place = float(at)
    except ValueError:
        place = math.nan
    if not math.isfinite(place) or not name:
        raise ApiError.bad_request("`after` must be a `next` of this list.", param="after")
    return limit, (place, name)


def _listed(data: list[dict[str, Any]], last: tuple[float, str] | None) -> web.Response:
    from aiohttp import web

    following = None if last is None else f"{last[0]!r}~{last[1]}"
    told = {"object": "list", "data": data, "has_more": last is not None, "next": following}
    return web.json_response(told)


def _session(found: SessionRecord, prefix: str, door: ProfileDoor) -> dict[str, Any]:
    return {
        "id": found.id,
        "object": "session",
        "model": door.profile.name,
        "platform": found.lane.split(":")[2],
        "session_id": unquote(found.lane.removeprefix(prefix)) if prefix else None,
        "title": found.title,
        "turns": found.turns,
        "input_tokens": found.input_tokens,
        "output_tokens": found.output_tokens,
        "created_at": int(found.created_at),
        "updated_at": int(found.updated_at),
        "current": found.current,
    }


def _job(found: JobRecord, door: ProfileDoor) -> dict[str, Any]:
    job = found.job
    return {
        "id": job.id,
        "object": "job",
        "model": door.profile.name,
        "platform": job.lane.split(":")[2],
        "text": job.message.text,
        "cron": job.cron,
        "every": job.every,
        "timezone": job.timezone,
        "next_at": int(found.next_at),
    }
