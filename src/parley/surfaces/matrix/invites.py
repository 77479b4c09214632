"""Invitations: whoever may speak is followed into their room, others are turned down quietly.

That an invitation was accepted is written down before anything is done about it, and until all of
it is done: a restart goes on where the last run ended.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

from parley.agent.foreign import one_line
from parley.protocol import ParleyError, SessionSource
from parley.surfaces.matrix.allowed import Allowed, server_of
from parley.surfaces.matrix.connection import Connection, part
from parley.surfaces.matrix.errands import Errands
from parley.surfaces.matrix.room_names import Marks
from parley.surfaces.matrix.room_state import beginning, members, read_event
from parley.surfaces.matrix.rooms import Rooms, member_events, shown_name

__all__ = ["Hall", "Invite", "Invites", "read_invite"]

_log = logging.getLogger("parley.matrix")

_INVITE: Final = "matrix:invite:"
_AT_ONCE: Final = 3
_JOIN_WITHIN: Final = 120.0
_MOST_NAMED: Final = 1000


class Hall(Marks, Protocol):
    """What invitations need of the front door."""

    async def welcome(self, source: SessionSource, event_id: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Invite:
    """Someone asks us into a room."""

    room_id: str
    inviter: str
    direct: bool
    """They say that the room is for the two of us."""
    asked_at: float
    name: str | None = None
    """How the inviter calls themselves."""


def read_invite(room_id: str, us: str, events: Iterable[Mapping[str, Any]]) -> Invite | None:
    """The invitation in the `invite_state` of a sync; None when there is none for us in it."""
    told = {user: (event.get("sender"), content) for user, event, content in member_events(events)}
    inviter, ours = told.get(us, (None, {}))
    if not isinstance(inviter, str) or ours.get("membership") != "invite":
        return None
    _, theirs = told.get(inviter, (None, {}))
    direct, name = ours.get("is_direct") is True, shown_name(theirs.get("displayname"))
    return Invite(room_id, inviter, direct, time.time(), name)


class Invites:
    """What was asked of us and is not done yet; `resume` takes up what an earlier run left."""

    def __init__(self, connection: Connection, hall: Hall, rooms: Rooms, allowed: Allowed) -> None:
        self._connection = connection
        self._hall = hall
        self._rooms = rooms
        self._allowed = allowed
        self._accepting = Errands("invite", at_once=_AT_ONCE)
        self._refusing = Errands("refusal", at_once=_AT_ONCE)
        self._named: set[str] = set()

    async def resume(self) -> None:
        for name, text in (await self._hall.marks(_INVITE)).items():
            invite = _invite(text)
            if invite is not None and self._allowed.may_speak(invite.inviter):
                self._accept(invite)
            else:
                await self._hall.put_marks({name: None})

    async def take(self, invite: Invite) -> None:
        """On return it is durable, and is done by and by; the same one again changes nothing."""
        room_id, mark = invite.room_id, _INVITE + invite.room_id
        if not self._allowed.may_speak(invite.inviter):
            self._say_refused(invite)
            leave = partial(self._leave, room_id)
            self._refusing.begin(room_id, leave, partial(self._say_failed, invite))
            return
        kept = _invite(await self._hall.mark(mark))
        is_known = kept is not None and kept.inviter == invite.inviter
        if is_known and self._accepting.has(room_id):
            return
        await self._hall.put_marks({mark: json.dumps(asdict(invite))})
        await self._accepting.drop(room_id)
        self._accept(invite)

    async def withdrawn(self, room_id: str) -> None:
        """We are not invited there any more."""
        if await self._accepting.drop(room_id):
            await self._hall.put_marks({_INVITE + room_id: None})

    async def close(self) -> None:
        await self._accepting.close()
        await self._refusing.close()

    async def idle(self) -> None:
        """Wait until everything that was taken is done."""
        await self._accepting.idle()
        await self._refusing.idle()

    # ── accepting ──

    def _accept(self, invite: Invite) -> None:
        self._accepting.begin(
            invite.room_id,
            partial(self._join_and_greet, invite),
            partial(self._give_up, invite),
            since=invite.asked_at,
        )

    async def _join_and_greet(self, invite: Invite) -> None:
        await self._join(invite)
        self._rooms.expect(invite.room_id)
        await self._greet(invite)
        await self._hall.put_marks({_INVITE + invite.room_id: None})

    async def _join(self, invite: Invite) -> None:
        # A room's id need not say where the room is: the inviter's server knows it.
        server = server_of(invite.inviter)
        await self._connection.call(
            "POST",
            f"/v3/join/{part(invite.room_id)}",
            {},
            query={"via": server, "server_name": server},
            timeout=_JOIN_WITHIN,
        )

    async def _greet(self, invite: Invite) -> None:
        room_id = invite.room_id
        first = await beginning(self._connection, room_id)
        if first is None or first.is_space:
            return
        if first.predecessor in self._connection.nio.rooms:
            return  # an upgrade of a room that we know: the conversation there goes on
        alone = len(await members(self._connection, room_id)) <= 2
        await self._rooms.begin(room_id, invite.inviter if alone else None)
        if (alone or invite.direct) and not self._rooms.is_ours(room_id):
            source = self._rooms.source(room_id, invite.inviter)
            source = replace(source, user_name=source.user_name or invite.name)
            # An invitation is shown to us without its id; that we came is an event as well.
            us = self._connection.user_id
            entry = await read_event(self._connection, room_id, "m.room.member", us)
            if entry is not None:
                await self._hall.welcome(source, entry.event_id)

    async def _give_up(self, invite: Invite, fault: ParleyError) -> None:
        await self._say_failed(invite, fault)
        await self._hall.put_marks({_INVITE + invite.room_id: None})

    async def _say_failed(self, invite: Invite, fault: ParleyError) -> None:
        told = {"room": invite.room_id, "inviter": invite.inviter, "why": str(fault)}
        _log.warning("invite_failed", extra=told)

    # ── turning down ──

    async def _leave(self, room_id: str) -> None:
        await self._connection.call("POST", f"/v3/rooms/{part(room_id)}/leave", {})

    def _say_refused(self, invite: Invite) -> None:
        """One line for each who asks, however often they do."""
        inviter = one_line(invite.inviter, 255)
        if inviter in self._named:
            return
        if len(self._named) >= _MOST_NAMED:
            self._named.clear()
        self._named.add(inviter)
        _log.warning(
            "%s asked the agent into a room and was turned down; to let them speak: "
            "`parley config set surfaces.matrix.allow %s` (several with commas).",
            inviter,
            inviter,
        )


def _invite(kept: str | None) -> Invite | None:
    try:
        return None if kept is None else Invite(**json.loads(kept))
    except (ValueError, TypeError):
        return None
