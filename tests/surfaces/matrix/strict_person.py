"""A person whose client trusts no device that its owner has not cross-signed.

It is another implementation of Matrix (mautrix on libolm), which is not there for every Python:
whoever uses this asks for it by `pytest.importorskip("mautrix.crypto")`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.servers.synapse import Account, Synapse
from tests.waiting import until

__all__ = ["Heard", "StrictPerson", "strict_person"]


@dataclass(frozen=True, slots=True)
class Heard:
    """A message that could be read. `trust` is that of the device it came from."""

    room_id: str
    sender: str
    text: str
    trust: str
    event_id: str
    content: dict[str, Any] = field(repr=False)


class StrictPerson:
    """Use `strict_person(…)` to make one; it syncs until the end of the block."""

    def __init__(self, account: Account, client: Any) -> None:
        self.account = account
        self.client = client
        self.heard: list[Heard] = []

    @property
    def user_id(self) -> str:
        return self.account.user_id

    async def make_room(self, *invited: str) -> str:
        """An encrypted room."""
        from mautrix.types import (
            EncryptionAlgorithm,
            EventType,
            RoomEncryptionStateEventContent,
            StrippedStateEvent,
        )

        encryption = StrippedStateEvent(
            type=EventType.ROOM_ENCRYPTION,
            state_key="",
            content=RoomEncryptionStateEventContent(algorithm=EncryptionAlgorithm.MEGOLM_V1),
        )
        return str(
            await self.client.create_room(invitees=list(invited), initial_state=[encryption])
        )

    async def send_encrypted(self, room_id: str, text: str) -> str:
        """Send to the devices that are trusted, and to no other; returns the event's id."""
        await self.look_again(*await self.client.get_joined_members(room_id))
        return str(await self.client.send_text(room_id, text))

    async def look_again(self, *users: str) -> None:
        """Ask for their keys now, not when the homeserver tells that they have changed."""
        others = [user for user in users if user != self.user_id]
        await self.client.crypto._fetch_keys(others, include_untracked=True)

    async def trust_of(self, user_id: str, device_id: str) -> str:
        """How far a device is trusted, such as `unverified` or `cross-signed-tofu`."""
        await self.look_again(user_id)
        device = await self.client.crypto.crypto_store.get_device(user_id, device_id)
        return str(await self.client.crypto.resolve_trust(device))

    async def hears(self, text: str, *, seconds: float = 8.0) -> Heard:
        """Wait for a message that was decrypted."""
        await until(lambda: any(one.text == text for one in self.heard), seconds=seconds)
        return next(one for one in self.heard if one.text == text)

    async def _take(self, event: Any) -> None:
        # What was not encrypted has no such mark.
        crypto = event.get("mautrix", None) or {}
        if event.sender == self.user_id or not crypto.get("was_encrypted"):
            return
        self.heard.append(
            Heard(
                str(event.room_id),
                str(event.sender),
                str(event.content.body),
                str(crypto["trust_state"]),
                str(event.event_id),
                event.content.serialize(),
            )
        )


@asynccontextmanager
async def strict_person(
    server: Synapse, account: Account | None = None
) -> AsyncIterator[StrictPerson]:
    """A client of its own device, which forgets all at the end of the block."""
    from mautrix.client import Client
    from mautrix.crypto import OlmMachine
    from mautrix.types import DeviceID, EventType, TrustState, UserID

    who = await asyncio.to_thread(server.register) if account is None else account
    keys, rooms = _stores(who.user_id)
    client = Client(
        UserID(who.user_id),
        DeviceID(who.device_id),
        base_url=server.url,
        token=who.token,
        sync_store=keys,
        state_store=rooms,
    )
    await keys.put_device_id(who.device_id)
    machine = OlmMachine(client, keys, rooms)
    machine.send_keys_min_trust = TrustState.CROSS_SIGNED_TOFU
    await machine.load()
    client.crypto = machine
    await machine.share_keys()
    person = StrictPerson(who, client)
    client.add_event_handler(EventType.ROOM_MESSAGE, person._take)
    syncing = client.start(None)
    try:
        yield person
    finally:
        client.stop()
        await asyncio.gather(syncing, return_exceptions=True)
        await client.api.session.close()


def _stores(user_id: str) -> tuple[Any, Any]:
    """Where keys and rooms are remembered: mautrix's stores in memory, with what they lack."""
    from mautrix.client.state_store import MemoryStateStore
    from mautrix.crypto.store import MemoryCryptoStore
    from mautrix.types import (
        CrossSigner,
        CrossSigningUsage,
        RoomID,
        SigningKey,
        TOFUSigningKey,
        UserID,
    )

    class Keys(MemoryCryptoStore):
        async def put_cross_signing_key(
            self, user_id: UserID, usage: CrossSigningUsage, key: SigningKey
        ) -> None:
            held = self._cross_signing_keys.setdefault(user_id, {})
            first = held[usage].first if usage in held else key
            held[usage] = TOFUSigningKey(key=key, first=first)

        async def drop_signatures_by_key(self, signer: CrossSigner) -> int:
            return len(self._signatures.pop(signer, {}))

    class Rooms(MemoryStateStore):
        async def find_shared_rooms(self, user_id: UserID) -> list[RoomID]:
            return [
                room_id
                for room_id, members in self.members.items()
                if user_id in members and self.encryption.get(room_id)
            ]

    return Keys(user_id, "a pickle key"), Rooms()
