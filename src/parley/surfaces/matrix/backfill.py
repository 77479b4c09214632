"""What was said between two syncs and did not fit into the second."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from parley.surfaces.matrix.connection import Connection, MatrixFault, part

__all__ = ["fill_gap", "since_we_came"]

_log = logging.getLogger("parley.matrix")

_AT_ONCE: Final = 100
_MOST: Final = 1_000


async def fill_gap(
    connection: Connection, room_id: str, *, since: str, before: str
) -> list[dict[str, Any]]:
    """The events after the sync token `since` and up to the token `before`, oldest first.

    Where there are very many, the oldest of them are left out; so is all that was there before
    we came into the room.
    """
    found: list[dict[str, Any]] = []
    path, at = f"/v3/rooms/{part(room_id)}/messages", before
    while len(found) < _MOST:
        query = {"dir": "b", "from": at, "to": since, "limit": str(_AT_ONCE)}
        try:
            told = await connection.call("GET", path, query=query)
        except MatrixFault as fault:
            if fault.is_passing:
                raise
            _log.warning("gap_not_filled", extra={"room": room_id, "reason": str(fault)})
            break
        chunk, end = told.get("chunk"), told.get("end")
        if not isinstance(chunk, list):
            raise MatrixFault("The homeserver's answer cannot be understood.")
        events = [each for each in chunk if isinstance(each, dict)]
        found.extend(events)
        came = any(_is_our_coming(each, connection.user_id) for each in events)
        if came or not isinstance(end, str) or end == at:
            break
        at = end
    else:
        _log.warning("gap_too_large", extra={"room": room_id, "taken": len(found)})
    return found[::-1]


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
