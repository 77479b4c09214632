"""What was said between two syncs and did not fit into the second."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from parley.surfaces.matrix.connection import Connection, MatrixFault, part

__all__ = ["fill_gap", "sent_at", "since_we_came"]

_log = logging.getLogger("parley.matrix")

_AT_ONCE: Final = 100
_MOST: Final = 1_000


async def fill_gap(
    connection: Connection,
    room_id: str,
    *,
    since: str | None,
    before: str,
    newer_than: float = 0.0,
) -> tuple[list[dict[str, Any]], bool]:
    """The events after the sync token `since` and up to the token `before`, oldest first; and
    whether that is not all. Without a token, they go back to a time, as in `sent_at`.

    Where there are very many, the oldest of them are left out; so is all that was there before
    we came into the room.
    """
    found: list[dict[str, Any]] = []
    path, at = f"/v3/rooms/{part(room_id)}/messages", before
    while len(found) < _MOST:
        query = {"dir": "b", "from": at, "limit": str(_AT_ONCE)}
        query |= {"to": since} if since is not None else {}
        try:
            told = await connection.call("GET", path, query=query)
        except MatrixFault as fault:
            if fault.is_passing:
                raise
            _log.warning("gap_not_filled", extra={"room": room_id, "reason": str(fault)})
            return found[::-1], True
        chunk, end = told.get("chunk"), told.get("end")
        if not isinstance(chunk, list):
            raise MatrixFault("The homeserver's answer cannot be understood.")
        events = [each for each in chunk if isinstance(each, dict)]
        found.extend(events)
        came = any(_is_our_coming(each, connection.user_id) for each in events)
        is_old = bool(events) and sent_at(events[-1]) <= newer_than
        if came or is_old or not isinstance(end, str) or end == at:
            break
        at = end
    else:
        _log.warning("gap_too_large", extra={"room": room_id, "taken": len(found)})
        return found[::-1], True
    return found[::-1], False


def sent_at(event: Mapping[str, Any]) -> float:
    """When its homeserver took it, in milliseconds."""
    told = event.get("origin_server_ts")
    return float(told) if isinstance(told, int | float) else 0.0


def since_we_came(events: Sequence[dict[str, Any]], user_id: str) -> Sequence[dict[str, Any]]:
    """What is said to us where we are new: all since we were invited, or else since we joined."""
    came = next(
        (at for at in _backwards(events) if _is_our_coming(events[at], user_id)),
        None,
    )
    if came is None:
        return events
    invited = (
        at for at in _backwards(events[:came]) if _membership(events[at], user_id) == "invite"
    )
    return events[next(invited, came) :]


def _backwards(events: Sequence[object]) -> range:
    return range(len(events) - 1, -1, -1)


def _is_our_coming(event: Mapping[str, Any], user_id: str) -> bool:
    """A join, and no mere change of name."""
    if _membership(event, user_id) != "join":
        return False
    unsigned = event.get("unsigned")
    before = unsigned.get("prev_content") if isinstance(unsigned, Mapping) else None
    return not isinstance(before, Mapping) or before.get("membership") != "join"


def _membership(event: Mapping[str, Any], user_id: str) -> object:
    if event.get("type") != "m.room.member" or event.get("state_key") != user_id:
        return None
    content = event.get("content")
    return content.get("membership") if isinstance(content, Mapping) else None
