"""Our device is cross-signed: clients that trust no other device talk to it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.surfaces.matrix.account import Account
from parley.surfaces.matrix.connection import Connection, MatrixFault
from parley.surfaces.matrix.cross_signing import Means, cross_sign, ensure_cross_signed
from parley.surfaces.matrix.device_keys import are_keys_lost, upload_keys
from parley.surfaces.matrix.identity import Identity, read_identity
from parley.surfaces.matrix.recovery_key import write_recovery_key
from parley.surfaces.matrix.secret_storage import (
    SecretStorage,
    kept_recovery_key,
    recovery_file,
)
from parley.surfaces.matrix.seeds import read_seeds, write_seeds
from tests.servers.ports import free_port
from tests.servers.synapse import Account as Registered
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.strict_person import StrictPerson, strict_person
from tests.surfaces.matrix.turnstile import Turnstile


def as_account(server: Synapse, registered: Registered) -> Account:
    return Account(
        server.url, registered.user_id, registered.device_id, registered.token, "a pickle key"
    )


@asynccontextmanager
async def opened(account: Account, home: Path) -> AsyncIterator[Connection]:
    connection = Connection(account, home / "keys")
    await connection.open()
    try:
        yield connection
    finally:
        await connection.close()


async def identity_of(connection: Connection) -> Identity:
    account = connection.account
    told = await connection.call("POST", "/v3/keys/query", {"device_keys": {account.user_id: []}})
    return read_identity(told, account.user_id, account.device_id)


async def read_next(connection: Connection, room_id: str, event_id: str) -> Any:
    """Sync until this event of the room has come; returns it as our client could read it."""
    for _ in range(20):
        synced = await connection.nio.sync(timeout=1000)
        joined = synced.rooms.join.get(room_id)
        for event in joined.timeline.events if joined else []:
            if event.event_id == event_id:
                return event
        if connection.nio.should_upload_keys:
            await connection.nio.keys_upload()
    raise AssertionError("the event did not come")


def another_device(
    server: Synapse, registered: Registered, *, device_id: str | None = None
) -> Registered:
    told = server.call(
        "POST",
        "/_matrix/client/v3/login",
        {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": registered.user_id},
            "password": registered.password,
            **({"device_id": device_id} if device_id else {}),
        },
    )
    return Registered(
        registered.user_id, registered.password, told["access_token"], told["device_id"]
    )


async def test_a_strict_client_talks_to_our_device_once_it_is_cross_signed(
    synapse: Synapse, tmp_path: Path
) -> None:
    from nio import MegolmEvent, RoomMessageText

    pytest.importorskip("mautrix.crypto")
    ours, home = as_account(synapse, synapse.register()), tmp_path / "matrix"
    async with opened(ours, home) as connection, strict_person(synapse) as person:
        await connection.nio.sync(full_state=True)
        await connection.nio.keys_upload()
        assert await person.trust_of(ours.user_id, ours.device_id) == "unverified"
        room = await person.make_room(ours.user_id)
        await connection.nio.join(room)
        unread = await person.send_encrypted(room, "can you read this?")
        assert isinstance(await read_next(connection, room, unread), MegolmEvent)

        assert await ensure_cross_signed(connection, home) is None
        assert await person.trust_of(ours.user_id, ours.device_id) == "cross-signed-tofu"
        await forget_room_key(person, room)
        sent = await person.send_encrypted(room, "and this?")
        event = await read_next(connection, room, sent)
        assert isinstance(event, RoomMessageText)
        assert event.body == "and this?"

        content = {"msgtype": "m.text", "body": "I can."}
        await connection.send(room, "m.room.message", content, "txn-1")
        assert (await person.hears("I can.")).trust == "cross-signed-tofu"


async def forget_room_key(person: StrictPerson, room_id: str) -> None:
    """The next message is encrypted with a new key, which is shared with who is trusted then."""
    await person.client.crypto.crypto_store.remove_outbound_group_session(room_id)


async def test_signing_again_changes_nothing_and_a_crash_between_is_made_good(
    synapse: Synapse, tmp_path: Path
) -> None:
    ours, home = as_account(synapse, synapse.register()), tmp_path / "matrix"
    async with opened(ours, home) as connection:
        assert await ensure_cross_signed(connection, home) is None
        first, seeds = await identity_of(connection), read_seeds(home)
        key = kept_recovery_key(home)
    assert first.is_cross_signed
    assert seeds is not None
    assert seeds.stored
    assert key is not None
    for file in (home / "cross_signing.json", recovery_file(home)):
        assert file.stat().st_mode & 0o777 == 0o600
    async with opened(ours, home) as connection:
        assert await ensure_cross_signed(connection, home) is None
        assert await identity_of(connection) == first
        # As a crash leaves it before the secrets are known to be stored.
        write_seeds(home, replace(seeds, stored=False))
        before = await SecretStorage(connection).default_key()
        assert await ensure_cross_signed(connection, home) is None
        assert await SecretStorage(connection).default_key() == before
    assert (read_seeds(home), kept_recovery_key(home)) == (seeds, key)


async def test_a_device_that_was_ended_comes_back_with_its_keys(
    synapse: Synapse, tmp_path: Path
) -> None:
    registered, home = synapse.register(), tmp_path / "matrix"
    ours = as_account(synapse, registered)
    async with opened(ours, home) as connection:
        assert await ensure_cross_signed(connection, home) is None
        first = await identity_of(connection)
    synapse.call("POST", "/_matrix/client/v3/logout", {}, token=registered.token)
    again = another_device(synapse, registered, device_id=registered.device_id)
    async with opened(as_account(synapse, again), home) as connection:
        assert (await identity_of(connection)).device is None
        assert await ensure_cross_signed(connection, home) is None
        second = await identity_of(connection)
    assert second.is_cross_signed
    assert second.device is not None
    assert first.device is not None
    assert second.device["keys"] == first.device["keys"]


async def test_another_implementation_recovers_our_keys_by_the_recovery_key(
    synapse: Synapse, tmp_path: Path
) -> None:
    pytest.importorskip("mautrix.crypto")
    registered, home = synapse.register(), tmp_path / "matrix"
    async with opened(as_account(synapse, registered), home) as connection:
        assert await ensure_cross_signed(connection, home) is None
    second = another_device(synapse, registered)
    async with strict_person(synapse, second) as person, strict_person(synapse) as other:
        assert await other.trust_of(second.user_id, second.device_id) == "unverified"
        with pytest.raises(ValueError, match="MAC"):
            wrong = write_recovery_key(bytes(32))
            await person.client.crypto.verify_with_recovery_key(wrong)
        await person.client.crypto.verify_with_recovery_key(kept_recovery_key(home))
        assert await other.trust_of(second.user_id, second.device_id) == "cross-signed-tofu"


@pytest.mark.parametrize("passphrase", [None, "correct horse battery staple"], ids=["key", "words"])
async def test_an_account_that_has_keys_already_is_signed_with_its_recovery_key(
    synapse: Synapse, tmp_path: Path, passphrase: str | None
) -> None:
    pytest.importorskip("mautrix.crypto")
    registered, home = synapse.register(), tmp_path / "matrix"
    async with strict_person(synapse, registered) as elsewhere:
        recovery = await elsewhere.client.crypto.generate_recovery_key(passphrase)
    ours = as_account(synapse, another_device(synapse, registered))
    async with opened(ours, home) as connection, strict_person(synapse) as other:
        told = await ensure_cross_signed(connection, home)
        assert told is not None
        assert "parley matrix verify" in told
        assert not (await identity_of(connection)).is_cross_signed
        for wrong in ("not this one", write_recovery_key(bytes(32))):
            with pytest.raises(MatrixFault, match="does not open") as failed:
                await cross_sign(connection, home, Means(recovery=wrong))
            assert wrong not in str(failed.value)
        assert read_seeds(home) is None
        await cross_sign(connection, home, Means(recovery=passphrase or recovery))
        assert await other.trust_of(ours.user_id, ours.device_id) == "cross-signed-tofu"
        assert await ensure_cross_signed(connection, home) is None
    assert not recovery_file(home).exists()  # it is the person's, and not ours to keep


async def test_keys_made_elsewhere_are_replaced_only_by_a_reset_with_the_password(
    synapse: Synapse, tmp_path: Path
) -> None:
    registered = synapse.register()
    async with opened(as_account(synapse, registered), tmp_path / "elsewhere") as connection:
        assert await ensure_cross_signed(connection, tmp_path / "elsewhere") is None
        old = await identity_of(connection)
    home = tmp_path / "matrix"
    ours = as_account(synapse, another_device(synapse, registered))
    async with opened(ours, home) as connection:
        with pytest.raises(MatrixFault, match="wants the account's password"):
            await cross_sign(connection, home, Means(reset=True))
        with pytest.raises(MatrixFault, match="does not accept this password"):
            await cross_sign(connection, home, Means(reset=True, password="a wrong one"))
        assert (await identity_of(connection)).master == old.master
        assert read_seeds(home) is None
        await cross_sign(connection, home, Means(reset=True, password=registered.password))
        new = await identity_of(connection)
        assert new.is_cross_signed
        assert new.master != old.master
        key = kept_recovery_key(home)
        assert key is not None
        assert await SecretStorage(connection).opened(key) is not None
        assert await ensure_cross_signed(connection, home) is None


async def test_a_device_with_other_keys_than_the_homeserver_has_is_never_signed(
    synapse: Synapse, tmp_path: Path
) -> None:
    ours = as_account(synapse, synapse.register())
    async with opened(ours, tmp_path / "first") as connection:
        await connection.nio.keys_upload()
    async with opened(ours, tmp_path / "second") as connection:
        connection.nio.olm.account.shared = True  # it believes that they are there
        told = await ensure_cross_signed(connection, tmp_path / "second")
        assert told is not None
        assert "parley matrix login" in told
        assert (await identity_of(connection)).master is None


async def test_keys_that_were_uploaded_before_a_crash_are_not_uploaded_as_others(
    synapse: Synapse, tmp_path: Path
) -> None:
    registered = synapse.register()
    async with Turnstile.before(synapse.url) as gate:
        ours = replace(as_account(synapse, registered), homeserver=gate.url)
        held = gate.hold("POST", "/keys/upload", done=True)
        async with opened(ours, tmp_path) as connection:
            uploading = asyncio.create_task(upload_keys(connection))
            await asyncio.wait_for(held.reached.wait(), 15)
            uploading.cancel()
        held.lose()
        async with opened(ours, tmp_path) as connection:
            await upload_keys(connection)
            assert connection.nio.olm.account.shared
            assert await ensure_cross_signed(connection, tmp_path) is None


async def test_older_files_of_a_device_pass_over_the_names_of_keys_that_are_taken(
    synapse: Synapse, tmp_path: Path
) -> None:
    ours = as_account(synapse, synapse.register())
    async with opened(ours, tmp_path / "first") as connection:
        await asyncio.to_thread(shutil.copytree, tmp_path / "first", tmp_path / "old")
        await upload_keys(connection)
    async with opened(ours, tmp_path / "old") as connection:
        assert not connection.nio.olm.account.shared
        path = "/v3/keys/claim"
        taken = {"one_time_keys": {ours.user_id: {ours.device_id: "signed_curve25519"}}}
        for _ in range(3):
            await connection.call("POST", path, taken)
        await upload_keys(connection)
        assert connection.nio.olm.account.shared
        assert not are_keys_lost(tmp_path / "old" / "keys", ours)


async def test_no_room_key_goes_to_a_device_that_nobody_verified(
    synapse: Synapse, tmp_path: Path
) -> None:
    pytest.importorskip("mautrix.crypto")
    registered, home = synapse.register(), tmp_path / "matrix"
    encryption = {"type": "m.room.encryption", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
    async with opened(as_account(synapse, registered), home) as connection:
        assert await ensure_cross_signed(connection, home) is None
        made = await connection.call("POST", "/v3/createRoom", {"initial_state": [encryption]})
        room = made["room_id"]
        await connection.nio.sync(full_state=True)
        said = {"msgtype": "m.text", "body": "before the other device was there"}
        kind, sealed = await connection.wrap(room, "m.room.message", said)
        await connection.put(room, kind, sealed, "txn-1")
        second = another_device(synapse, registered)
        async with strict_person(synapse, second) as other:

            async def gets_key(seconds: float) -> bool:
                asked = other.client.crypto.request_room_key(
                    room,
                    sealed["sender_key"],
                    sealed["session_id"],
                    {registered.user_id: {registered.device_id: None}},
                    timeout=seconds,
                )
                asking = asyncio.create_task(asked)
                while not asking.done():
                    await tend(connection)
                return bool(asking.result())

            assert not await gets_key(2)
            device = connection.nio.device_store[registered.user_id][second.device_id]
            connection.nio.verify_device(device)
            assert await gets_key(20)


async def tend(connection: Connection) -> None:
    """One round of what a client does all the time."""
    nio = connection.nio
    await nio.sync(timeout=200)
    if nio.should_query_keys:
        await nio.keys_query()
    if nio.should_claim_keys:
        await nio.keys_claim(nio.get_users_for_key_claiming())
    await nio.send_to_device_messages()


async def test_a_homeserver_that_is_away_is_a_sentence(tmp_path: Path) -> None:
    ours = Account(f"http://127.0.0.1:{free_port()}", "@a:localhost", "DEVICE", "token", "key")
    async with opened(ours, tmp_path) as connection:
        told = await ensure_cross_signed(connection, tmp_path)
    assert told is not None
    assert "cannot be reached" in told
