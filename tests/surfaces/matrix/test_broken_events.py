"""Events of a homeserver that keeps to no rule: one of them must not stop all that follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.surfaces.matrix.account import Account
from parley.surfaces.matrix.connection import Connection
from parley.surfaces.matrix.invites import read_invite
from parley.surfaces.matrix.membership import Membership
from parley.surfaces.matrix.room_names import RoomNames
from parley.surfaces.matrix.rooms import Rooms
from parley.surfaces.matrix.syncing import Batch
from parley.surfaces.matrix.undecrypted import Unread
from tests.surfaces.matrix.door import Door

_MEMBER = {"type": "m.room.member", "state_key": "@ann:b", "sender": "@ann:b", "event_id": "$1"}


@pytest.mark.parametrize(
    "event",
    [
        {**_MEMBER, "content": {"membership": {"leave": 1}}},
        {**_MEMBER, "content": {"membership": ["leave"]}},
        {"type": "m.room.redaction", "sender": "@ann:b", "event_id": "$1", "content": "gone"},
    ],
    ids=["a-mapping", "a-list", "redaction-of-text"],
)
async def test_an_event_of_the_wrong_shape_is_passed_over(
    event: dict[str, Any], tmp_path: Path
) -> None:
    account = Account("http://127.0.0.1:9", "@us:b", "D", "token", "pickle")
    connection = Connection(account, tmp_path)
    door = Door()
    rooms = Rooms(connection, door, RoomNames(door))
    connection.nio.rooms["!r:b"] = _room("!r:b")
    batch = Batch("s1", events=[("!r:b", event)])
    await Membership(connection, door, rooms).take(batch.events, batch.left, first=True)
    assert not (await Unread(connection, door).take(batch)).marks
    await connection.close()


def test_an_invitation_may_hold_what_is_no_event() -> None:
    state: list[Any] = [7, {**_MEMBER, "state_key": "@us:b", "content": {"membership": "invite"}}]
    invite = read_invite("!r:b", "@us:b", state)
    assert invite is not None
    assert invite.inviter == "@ann:b"


def _room(room_id: str) -> Any:
    from nio import MatrixRoom

    return MatrixRoom(room_id, "@us:b")
