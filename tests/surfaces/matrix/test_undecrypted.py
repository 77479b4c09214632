"""Messages that cannot be read: their keys are asked for, people are told, and late keys count."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from parley.surfaces.matrix.connection import Connection, part
from parley.surfaces.matrix.incoming import AGENT_KEY
from parley.surfaces.matrix.syncing import Syncing
from parley.surfaces.matrix.undecrypted import Unread, notice_of
from tests.servers.synapse import Account, Synapse
from tests.surfaces.matrix.door import Door
from tests.surfaces.matrix.listener import connected
from tests.surfaces.matrix.person import Person
from tests.waiting import until


class _Reader:
    """Follows the homeserver as the surface does, as far as unreadable messages go."""

    def __init__(self, connection: Connection, door: Door, **more: Any) -> None:
        self.syncing = Syncing(connection, poll_seconds=5)
        self.unread = Unread(connection, door, **more)
        self.door = door
        self.us = connection.user_id
        self.said: list[str] = []
        self.ready = False

    @asynccontextmanager
    async def reading(self, since: str | None = None) -> AsyncIterator[_Reader]:
        following = asyncio.create_task(self._follow(since))
        try:
            yield self
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await self.unread.close()
            await self.syncing.close()

    async def _follow(self, since: str | None) -> None:
        await self.unread.start()
        await self.syncing.bootstrap(since)
        async with aclosing(self.syncing.batches()) as batches:
            async for batch in batches:
                found = await self.unread.take(batch)
                await self.door.put_marks({"since": batch.since, **found.marks})
                self.unread.kept(found)
                self.said += [
                    str(event["content"].get("body"))
                    for _, event in [*batch.events, *found.events]
                    if event["type"] == "m.room.message" and event["sender"] != self.us
                ]
                self.ready = True


def _waiting(door: Door) -> list[str]:
    return [name for name in door.marks_kept if name.startswith("matrix:unread:")]


async def _dm(alice: Person, connection: Connection) -> str:
    room = await alice.create_dm(connection.user_id, encrypted=True)
    await connection.call("POST", f"/v3/rooms/{part(room)}/join", {})
    await alice.wait_for_member(room, connection.user_id)
    return room


async def test_whoever_writes_what_we_cannot_read_is_told_once_and_answered_when_the_key_comes(
    synapse: Synapse, tmp_path: Path
) -> None:
    door = Door()
    async with Person.on(synapse) as alice, connected(synapse, tmp_path) as connection:
        async with _Reader(connection, door, notice_after=0.2).reading() as bot:
            await until(lambda: bot.ready)
            room = await _dm(alice, connection)
            secret = await alice.send_unreadable(room, "the secret")
            notice = await alice.wait_for_text(connection.user_id, "cannot read this message")
            assert notice.encrypted
            assert notice.reply_to == secret
            assert notice.kind == "m.notice"
            assert AGENT_KEY in notice.content
            assert "send it again" in notice.text
            assert "unverified sessions" in notice.text
            assert _waiting(door) == [f"matrix:unread:{secret}"]
            await until(lambda: json.loads(door.marks_kept[f"matrix:unread:{secret}"])["told"])
        # A restart neither forgets it nor tells of it again.
        again = _Reader(connection, door, notice_after=0.0)
        async with again.reading(door.marks_kept["since"]) as bot:
            await until(lambda: bot.ready)
            assert _waiting(door)
            await alice.share_key(room)
            await until(lambda: "the secret" in bot.said)
            await until(lambda: not _waiting(door))
            await alice.send(room, "and now a readable one")
            await until(lambda: bot.said == ["the secret", "and now a readable one"])
        assert len(alice.from_sender(connection.user_id)) == 1


async def test_a_key_that_comes_in_time_spares_people_the_notice(
    synapse: Synapse, tmp_path: Path
) -> None:
    door = Door()
    async with (
        Person.on(synapse) as alice,
        connected(synapse, tmp_path) as connection,
        _Reader(connection, door).reading() as bot,
    ):
        await until(lambda: bot.ready)
        room = await _dm(alice, connection)
        await alice.send_unreadable(room, "a little late")
        await until(lambda: _waiting(door))
        await alice.share_key(room)
        await until(lambda: "a little late" in bot.said)
        assert not _waiting(door)
        assert alice.from_sender(connection.user_id) == []


async def test_people_are_not_told_again_and_again_nor_strangers_at_all(
    synapse: Synapse, tmp_path: Path
) -> None:
    door = Door()
    async with (
        Person.on(synapse) as alice,
        Person.on(synapse) as mallory,
        connected(synapse, tmp_path) as connection,
        _Reader(
            connection,
            door,
            notice_after=0.1,
            may_speak=lambda sender: sender == alice.user_id,
        ).reading() as bot,
    ):
        await until(lambda: bot.ready)
        room, theirs = await _dm(alice, connection), await _dm(mallory, connection)
        ignored = await mallory.send_unreadable(theirs, "you cannot read me")
        sent = [await alice.send_unreadable(room, f"number {number}") for number in range(3)]
        await alice.redact(room, await alice.send_unreadable(room, "taken back"))
        names = [f"matrix:unread:{event}" for event in sent]

        def all_told() -> bool:
            kept = [json.loads(door.marks_kept.get(name, '{"told": null}')) for name in names]
            return all(each["told"] for each in kept)

        await until(all_told)
        await until(lambda: sorted(_waiting(door)) == sorted(names))
        assert f"matrix:unread:{ignored}" not in door.marks_kept
        await alice.wait_for_text(connection.user_id, "cannot read")
        assert len(alice.from_sender(connection.user_id)) == 1
        assert mallory.from_sender(connection.user_id) == []


async def test_old_ones_are_forgotten(synapse: Synapse, tmp_path: Path) -> None:
    record = {"room": "!r", "sender": "@a:b", "at": 1.0, "session": "s", "told": None}
    door = Door({"matrix:unread:$old": json.dumps(record), "matrix:unread:$broken": "{"})
    async with connected(synapse, tmp_path) as connection, _Reader(connection, door).reading():
        await until(lambda: not _waiting(door))


async def test_the_key_is_asked_for_from_our_devices_and_the_senders(
    synapse: Synapse, tmp_path: Path
) -> None:
    """With plain clients at the other ends, which show every request as it comes."""
    door = Door()
    alice = await asyncio.to_thread(synapse.register)
    ours = await asyncio.to_thread(synapse.register)
    other = await asyncio.to_thread(_log_in, synapse, ours)
    async with (
        connected(synapse, tmp_path, ours) as connection,
        _Reader(connection, door).reading() as bot,
    ):
        await until(lambda: bot.ready)
        room = await asyncio.to_thread(_encrypted_room, synapse, alice, ours)
        await connection.call("POST", f"/v3/rooms/{part(room)}/join", {})
        sealed = {
            "algorithm": "m.megolm.v1.aes-sha2",
            "sender_key": "c2VuZGVy",
            "device_id": alice.device_id,
            "session_id": "the-session",
            "ciphertext": "AwgAEnA",
        }
        path = f"/_matrix/client/v3/rooms/{part(room)}/send/m.room.encrypted/1"
        await asyncio.to_thread(synapse.call, "PUT", path, sealed, token=alice.token)
        for token in (alice.token, other):
            request = await asyncio.to_thread(_first_request, synapse, token)
            assert request["sender"] == ours.user_id
            assert request["content"]["action"] == "request"
            assert request["content"]["requesting_device_id"] == ours.device_id
            assert request["content"]["body"]["session_id"] == "the-session"
            assert request["content"]["body"]["room_id"] == room


def test_the_notice_stays_in_the_thread_of_the_message() -> None:
    event = {"content": {"m.relates_to": {"rel_type": "m.thread", "event_id": "$root"}}}
    relation = notice_of("$asked", "@a:b", event)["m.relates_to"]
    assert relation["rel_type"] == "m.thread"
    assert relation["event_id"] == "$root"
    assert relation["m.in_reply_to"] == {"event_id": "$asked"}


def _log_in(synapse: Synapse, account: Account) -> str:
    """The token of another device."""
    asked = {
        "type": "m.login.password",
        "identifier": {"type": "m.id.user", "user": account.user_id},
        "password": account.password,
    }
    return str(synapse.call("POST", "/_matrix/client/v3/login", asked)["access_token"])


def _encrypted_room(synapse: Synapse, owner: Account, guest: Account) -> str:
    algorithm = {"algorithm": "m.megolm.v1.aes-sha2"}
    body = {
        "invite": [guest.user_id],
        "initial_state": [{"type": "m.room.encryption", "state_key": "", "content": algorithm}],
    }
    made = synapse.call("POST", "/_matrix/client/v3/createRoom", body, token=owner.token)
    return str(made["room_id"])


def _first_request(synapse: Synapse, token: str) -> dict[str, Any]:
    since = ""
    for _ in range(20):
        path = f"/_matrix/client/v3/sync?timeout=1000&set_presence=offline{since}"
        told = synapse.call("GET", path, token=token)
        for event in told.get("to_device", {}).get("events", []):
            if event["type"] == "m.room_key_request":
                found: dict[str, Any] = event
                return found
        since = f"&since={told['next_batch']}"
    raise AssertionError("no request came")
