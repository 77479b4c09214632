"""Following a real homeserver: nothing twice, nothing lost, whatever comes."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from parley.surfaces.matrix import backfill
from parley.surfaces.matrix import syncing as syncing_module
from parley.surfaces.matrix.connection import part
from parley.surfaces.matrix.incoming import WAS_ENCRYPTED, understand
from parley.surfaces.matrix.receiving import hand_over
from parley.surfaces.matrix.syncing import Syncing
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.listener import Listener, connected
from tests.surfaces.matrix.person import Person
from tests.waiting import until


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
async def test_a_restart_goes_on_where_the_last_one_ended(
    synapse: Synapse, tmp_path: Path, encrypted: bool
) -> None:
    account = await asyncio.to_thread(synapse.register)
    async with Person.on(synapse) as alice:
        async with (
            connected(synapse, tmp_path, account) as connection,
            Listener(connection).listening() as bot,
        ):
            room = await alice.create_dm(account.user_id, encrypted=encrypted)
            await connection.call("POST", f"/v3/rooms/{part(room)}/join", {})
            await alice.wait_for_member(room, account.user_id)
            await alice.send(room, "one")
            event = await bot.wait_for_said("one")
            assert event["sender"] == alice.user_id
            assert event["room_id"] == room
            assert event[WAS_ENCRYPTED] is encrypted
            assert connection.is_encrypted(room) is encrypted
            since = bot.since
        await alice.send(room, "two")
        await alice.send(room, "three")

        async with (
            connected(synapse, tmp_path, account) as connection,
            Listener(connection).listening(since) as again,
        ):
            await again.wait_for_said("three")
            assert again.said() == ["two", "three"]
            assert again.batches[0].first
            quiet = again.since

        async with (
            connected(synapse, tmp_path, account) as connection,
            Listener(connection).listening(quiet) as third,
        ):
            await until(lambda: third.batches)
            assert third.said() == []
            assert connection.is_encrypted(room) is encrypted
            assert alice.user_id in connection.nio.rooms[room].users, "it knows its rooms"


async def test_what_was_said_before_the_first_start_is_history_but_invitations_count(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with Person.on(synapse) as alice, connected(synapse, tmp_path) as connection:
        room = await alice.create_dm(connection.user_id, encrypted=False)
        await connection.call("POST", f"/v3/rooms/{part(room)}/join", {})
        await alice.send(room, "long ago")
        asked = await alice.create_dm(connection.user_id, encrypted=False)
        async with Listener(connection).listening() as bot:
            await until(lambda: bot.batches)
            first = bot.batches[0]
            assert first.first
            assert any(
                event["sender"] == alice.user_id and event["type"] == "m.room.member"
                for event in first.invites[asked]
            )
            await alice.send(room, "now")
            await bot.wait_for_said("now")
            assert bot.said() == ["now"]


async def test_what_is_said_between_invitation_and_joining_is_said_to_us(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with (
        Person.on(synapse) as alice,
        connected(synapse, tmp_path) as connection,
        Listener(connection).listening() as bot,
    ):
        await until(lambda: bot.batches)
        room = await alice.create_room(encrypted=False)
        await alice.send(room, "not meant for anyone else")
        await alice.invite(room, connection.user_id)
        await alice.send(room, "hello there")
        await bot.wait_for(lambda batch: room in batch.invites)
        await bot.join(room)
        await bot.wait_for_said("hello there")
        assert bot.said() == ["hello there"]


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
async def test_more_than_one_sync_holds_is_fetched_in_order_and_once(
    synapse: Synapse, tmp_path: Path, encrypted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = syncing_module._FILTER.replace('"limit":50', '"limit":4')
    monkeypatch.setattr(syncing_module, "_FILTER", few)
    monkeypatch.setattr(backfill, "_AT_ONCE", 7)
    async with Person.on(synapse) as alice, connected(synapse, tmp_path) as connection:
        async with Listener(connection).listening() as bot:
            await until(lambda: bot.batches)
            room = await alice.create_dm(connection.user_id, encrypted=encrypted)
            await bot.wait_for(lambda batch: room in batch.invites)
            await bot.join(room)
            await alice.wait_for_member(room, connection.user_id)
            await alice.send(room, "first")
            await bot.wait_for_said("first")
            since = bot.since
        many = [f"message {number} " + "x" * 3000 for number in range(40)]
        for text in many:
            await alice.send(room, text)
        async with Listener(connection).listening(since) as again:
            await again.wait_for_said(many[-1])
            assert again.said() == many
            ids = Counter(event["event_id"] for _, event in again.events)
            assert set(ids.values()) == {1}


async def test_a_batch_that_could_not_be_kept_is_given_again(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with Person.on(synapse) as alice, connected(synapse, tmp_path) as connection:
        room = await alice.create_dm(connection.user_id, encrypted=True)
        await connection.call("POST", f"/v3/rooms/{part(room)}/join", {})
        syncing = Syncing(connection, poll_seconds=5)
        await syncing.bootstrap(None)
        await alice.wait_for_member(room, connection.user_id)

        async def next_with_text() -> tuple[str, list[str]]:
            async with aclosing(syncing.batches()) as batches:
                async for batch in batches:
                    texts = [event["content"].get("body") for _, event in batch.events]
                    if "kept?" in texts:
                        return batch.since, [str(text) for text in texts]
            raise AssertionError

        await alice.send(room, "kept?")
        assert await next_with_text() == await next_with_text()
        await syncing.close()


async def test_nothing_that_strangers_send_stops_it(synapse: Synapse, tmp_path: Path) -> None:
    """Broken to-device messages, broken encryption, wrong types: what is whole comes through."""
    async with (
        Person.on(synapse) as alice,
        connected(synapse, tmp_path) as connection,
        Listener(connection).listening() as bot,
    ):
        await until(lambda: bot.batches)
        room = await alice.create_dm(connection.user_id, encrypted=True)
        other = await alice.create_dm(connection.user_id, encrypted=False)
        await bot.wait_for(lambda batch: other in batch.invites)
        for each in (room, other):
            await bot.join(each)
            await alice.wait_for_member(each, connection.user_id)
        await alice.send(room, "before")
        await bot.wait_for_said("before")

        synapse.pause()  # so that all of it is in one sync
        waiting = [
            asyncio.create_task(alice.send(other, "plain, after")),
            asyncio.create_task(_break_a_key(alice, connection)),
        ]
        waiting += [
            asyncio.create_task(_put(alice, where, kind, content))
            for where, kind, content in (
                (room, "m.room.encrypted", _megolm(sender_key="")),
                (room, "m.room.encrypted", _megolm(ciphertext="!!! no base64")),
                (room, "m.room.encrypted", {"algorithm": 7}),
                (other, "m.room.message", {"msgtype": "m.text", "body": "", "m.relates_to": "x"}),
                (other, "m.reaction", {"m.relates_to": {"rel_type": 5}}),
            )
        ]
        await asyncio.sleep(0)
        synapse.resume()
        await asyncio.gather(*waiting)
        await alice.send(room, "encrypted, after")
        await bot.wait_for_said("plain, after")
        await bot.wait_for_said("encrypted, after")
        assert any(batch.unread for batch in bot.batches)


async def test_what_the_library_cannot_even_read_costs_nothing_else(
    synapse: Synapse, tmp_path: Path
) -> None:
    """No homeserver of ours lets such events through; others may."""
    head = {"event_id": "$e", "sender": "@a:x", "origin_server_ts": 1, "type": "m.room.message"}
    good = {**head, "event_id": "$good", "content": {"msgtype": "m.text", "body": "good"}}
    broken: list[object] = [
        7,
        {**head, "origin_server_ts": "yesterday", "content": {}},
        {**head, "unsigned": 5, "content": {"msgtype": "m.text", "body": "odd"}},
        {**head, "type": "m.room.encrypted", "content": {"ciphertext": ["x"]}},
        {"type": "m.room.message"},
    ]
    answer = {
        "next_batch": "s1",
        "to_device": {"events": [3, {"type": "m.room.encrypted"}, {"content": 1}]},
        "rooms": {
            "join": {"!r:x": {"timeline": {"events": [*broken, good]}, "state": {"events": [1]}}},
            "invite": {"!i:x": {"invite_state": {"events": ["?", {"type": 3}]}}},
        },
    }
    async with connected(synapse, tmp_path) as connection:
        timelines, keys_arrived = await hand_over(connection.nio, answer)
        assert timelines["!r:x"][-1]["content"]["body"] == "good"
        assert not keys_arrived
        assert "!r:x" in connection.nio.rooms
        for event in timelines["!r:x"]:
            understand(event, most_bytes=1)
        quiet = {"next_batch": "s1", "rooms": {"join": {"!late:x": {}}}}
        await hand_over(connection.nio, quiet)
        assert "!late:x" in connection.nio.rooms, "the same token again is no reason to skip it"


async def test_one_time_keys_that_were_all_taken_are_made_anew(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with Person.on(synapse) as alice, connected(synapse, tmp_path) as connection:
        async with Listener(connection).listening() as bot:
            await until(lambda: bot.batches)
            since = bot.since
        device = {connection.user_id: {connection.account.device_id: "signed_curve25519"}}
        taken = 0
        while True:
            claimed = await alice.call("POST", "/v3/keys/claim", {"one_time_keys": device})
            if not claimed["one_time_keys"]:
                break
            taken += 1
        assert taken >= 10
        async with Listener(connection, poll_seconds=0.2).listening(since) as again:
            await again.wait_for(lambda batch: not batch.first)
            room = await alice.create_dm(connection.user_id, encrypted=True)
            await again.wait_for(lambda batch: room in batch.invites)
            await again.join(room)
            await alice.wait_for_member(room, connection.user_id)
            await alice.send(room, "can you read this?")
            await again.wait_for_said("can you read this?")


async def test_leaving_and_being_sent_away_are_told_and_the_room_is_forgotten(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with (
        Person.on(synapse) as alice,
        connected(synapse, tmp_path) as connection,
        Listener(connection).listening() as bot,
    ):
        await until(lambda: bot.batches)
        room = await alice.create_room(invite=[connection.user_id], encrypted=True)
        await bot.wait_for(lambda batch: room in batch.invites)
        await bot.join(room)
        await until(lambda: room in connection.nio.rooms)
        await alice.kick(room, connection.user_id)
        batch = await bot.wait_for(lambda batch: room in batch.left)
        why = batch.left[room]
        assert why is not None
        assert why["sender"] == alice.user_id
        assert room not in connection.nio.rooms
        assert connection.is_encrypted(room), "it stays encrypted for us, come what may"


async def test_a_device_that_the_homeserver_does_not_know_is_told_how_to_log_in_again(
    synapse: Synapse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncing_module, "_SHORTEST_PAUSE", 0.05)
    account = await asyncio.to_thread(synapse.register)
    unknown = replace(account, token="syt_unknown")
    async with connected(synapse, tmp_path, unknown) as connection:
        right, connection.nio.homeserver = connection.nio.homeserver, "http://127.0.0.1:9"
        async with Listener(connection).listening() as bot:
            await until(lambda: bot.states)
            assert bot.states[0] is not None
            assert "cannot be reached" in bot.states[0]
            assert bot.syncing.fault == bot.states[0]
            connection.nio.homeserver = right
            await until(lambda: len(bot.states) > 1)
            assert bot.states[1] is not None
            assert "log in again with `parley matrix login`" in bot.states[1]
            assert "syt_unknown" not in bot.states[1]
            assert bot.batches == []


async def test_a_homeserver_that_is_back_goes_on_where_it_was(
    synapse: Synapse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncing_module, "_SHORTEST_PAUSE", 0.05)
    async with Person.on(synapse) as alice, connected(synapse, tmp_path) as connection:
        room = await alice.create_dm(connection.user_id, encrypted=False)
        await connection.call("POST", f"/v3/rooms/{part(room)}/join", {})
        async with Listener(connection, poll_seconds=0.1).listening() as bot:
            await until(lambda: len(bot.batches) > 1)
            right = connection.nio.homeserver
            connection.nio.homeserver = "http://127.0.0.1:9"
            await until(lambda: bot.states)
            await alice.send(room, "while you were away")
            connection.nio.homeserver = right
            await bot.wait_for_said("while you were away")
            assert [state is None for state in bot.states] == [False, True]


async def test_that_a_homeserver_is_back_is_known_though_nothing_happens_there(
    synapse: Synapse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncing_module, "_SHORTEST_PAUSE", 0.05)
    async with connected(synapse, tmp_path) as connection:
        right = connection.nio.homeserver
        connection.nio.homeserver = "http://127.0.0.1:9"
        async with Listener(connection, poll_seconds=0.1).listening() as bot:
            await until(lambda: bot.states)
            connection.nio.homeserver = right
            await until(lambda: bot.batches)
            connection.nio.homeserver = "http://127.0.0.1:9"
            await until(lambda: len(bot.states) == 3)
            bot.syncing._poll = 600.0
            connection.nio.homeserver = right
            await until(lambda: bot.syncing.fault is None)


async def test_a_token_that_the_homeserver_does_not_know_begins_anew(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with (
        connected(synapse, tmp_path) as connection,
        Listener(connection).listening("nonsense") as bot,
    ):
        await until(lambda: bot.batches)
        assert bot.said() == []


def _megolm(**changed: str) -> dict[str, object]:
    return {
        "algorithm": "m.megolm.v1.aes-sha2",
        "sender_key": "c2VuZGVy",
        "device_id": "DEVICE",
        "session_id": "session",
        "ciphertext": "AwgAEnA",
        **changed,
    }


async def _put(person: Person, room: str, kind: str, content: Mapping[str, object]) -> None:
    path = f"/v3/rooms/{part(room)}/send/{part(kind)}/{secrets.token_hex(8)}"
    await person.call("PUT", path, content)


async def _break_a_key(person: Person, connection: object) -> None:
    """To-device messages on which the library raises."""
    from parley.surfaces.matrix.connection import Connection

    assert isinstance(connection, Connection)
    olm = connection.nio.olm
    assert olm is not None
    ours = olm.account.identity_keys["curve25519"]
    for body in ("not base64 !", "AwgA"):
        for kind in (0, 1):
            sealed = {
                "algorithm": "m.olm.v1.curve25519-aes-sha2",
                "sender_key": "c2VuZGVy",
                "ciphertext": {ours: {"type": kind, "body": body}},
            }
            messages = {connection.user_id: {connection.account.device_id: sealed}}
            await person.call(
                "PUT",
                f"/v3/sendToDevice/m.room.encrypted/{secrets.token_hex(8)}",
                {"messages": messages},
            )
