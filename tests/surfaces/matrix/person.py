"""A person on Matrix, for tests: a second real client, with encryption and a device of its own.

async with Person.on(synapse) as alice:
    room = await alice.create_dm(bot.user_id, encrypted=True)
    asked = await alice.send(room, "Hello")
    answer = await alice.wait_for_message(lambda each: each.sender == bot.user_id)
"""

from __future__ import annotations

import asyncio
import json
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from nio import (
    AsyncClient,
    AsyncClientConfig,
    EncryptionError,
    Event,
    InviteEvent,
    LocalProtocolError,
    MatrixRoom,
    MegolmEvent,
    RoomKeyEvent,
    ToDeviceMessage,
)
from nio.crypto.attachments import decrypt_attachment, encrypt_attachment

from parley.surfaces.matrix.connection import part
from tests.servers.synapse import Account, Synapse
from tests.waiting import until

__all__ = ["Message", "Person"]

_MEGOLM = "m.megolm.v1.aes-sha2"


@dataclass(slots=True)
class Message:
    """A message as a client shows it now: its edits are in it."""

    event_id: str
    room_id: str
    sender: str
    text: str
    html: str | None
    content: dict[str, Any]
    """Of its latest edit."""
    first: dict[str, Any]
    """As it was sent."""
    encrypted: bool
    edits: int = 0
    redacted: bool = False
    texts: list[str] = field(default_factory=list)
    """All that it said, one after another."""

    @property
    def kind(self) -> str:
        return str(self.content.get("msgtype", ""))

    @property
    def thread(self) -> str | None:
        """The event that its thread hangs on."""
        relation = self.first.get("m.relates_to", {})
        return relation.get("event_id") if relation.get("rel_type") == "m.thread" else None

    @property
    def reply_to(self) -> str | None:
        relation = self.first.get("m.relates_to", {})
        if relation.get("is_falling_back"):
            return None
        found: str | None = relation.get("m.in_reply_to", {}).get("event_id")
        return found


class Person:
    """Someone with a client open. Everything seen is kept, in the order it came."""

    def __init__(self, synapse: Synapse, account: Account, client: AsyncClient) -> None:
        self.synapse = synapse
        self.account = account
        self.client = client
        self.messages: dict[str, Message] = {}
        self.reactions: list[tuple[str, str, str]] = []
        """Each as (who, what, to which event)."""
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        """All of every kind, as (room, event as it was decrypted)."""
        self.invites: dict[str, str] = {}
        """Rooms that one is asked into, and by whom."""
        self.receipts: dict[tuple[str, str], str] = {}
        """What others have read last, by room and user."""
        self.typing: dict[str, tuple[str, ...]] = {}
        """Who is typing, by room."""
        self.typed: set[tuple[str, str]] = set()
        """Who was ever seen typing, as (room, user)."""
        self.unreadable: list[MegolmEvent] = []
        self._withheld: dict[str, dict[str, str]] = {}
        client.add_event_callback(self._on_event, None)
        client.add_event_callback(self._on_invite, InviteEvent)
        client.add_ephemeral_callback(self._on_ephemeral, None)
        client.add_to_device_callback(self._on_key, RoomKeyEvent)

    @classmethod
    @asynccontextmanager
    async def on(
        cls,
        synapse: Synapse,
        account: Account | None = None,
        *,
        name: str | None = None,
        new_device: bool = False,
    ) -> AsyncIterator[Person]:
        """Sign in and follow what happens until the block is left.

        `account` is a new user's if left out; with `new_device` there is a login by password.
        """
        if account is None:
            account = await asyncio.to_thread(synapse.register, display_name=name)
        with tempfile.TemporaryDirectory(prefix="parley-person-") as home:
            client = AsyncClient(
                synapse.url,
                account.user_id,
                store_path=home,
                config=AsyncClientConfig(
                    encryption_enabled=True,
                    store_sync_tokens=False,
                    max_limit_exceeded=20,
                    max_timeouts=3,
                ),
            )
            if new_device:
                await client.login(account.password)
            else:
                client.restore_login(account.user_id, account.device_id, account.token)
            found = cls(synapse, account, client)
            await client.sync(timeout=0, full_state=True)
            await client.keys_upload()
            following = asyncio.create_task(client.sync_forever(timeout=5000))
            try:
                yield found
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
                await client.close()

    @property
    def user_id(self) -> str:
        return self.account.user_id

    # ── rooms ──

    async def create_room(
        self,
        *,
        invite: Sequence[str] = (),
        encrypted: bool = False,
        direct: bool = False,
        name: str | None = None,
        **more: Any,
    ) -> str:
        """A room of one's own; returns as soon as the client knows it."""
        state: list[dict[str, Any]] = list(more.pop("initial_state", []))
        if encrypted:
            content = {"algorithm": _MEGOLM}
            state.append({"type": "m.room.encryption", "state_key": "", "content": content})
        made = await self.call(
            "POST",
            "/v3/createRoom",
            {
                "invite": list(invite),
                "is_direct": direct,
                "preset": "trusted_private_chat" if direct else "private_chat",
                "initial_state": state,
                **({"name": name} if name else {}),
                **more,
            },
        )
        room_id = str(made["room_id"])
        await self.wait_for_room(room_id)
        return room_id

    async def create_dm(self, other: str, *, encrypted: bool = True, **more: Any) -> str:
        """A room for two, and the other one invited."""
        return await self.create_room(invite=[other], encrypted=encrypted, direct=True, **more)

    async def invite(self, room_id: str, user_id: str) -> None:
        await self.call("POST", f"/v3/rooms/{part(room_id)}/invite", {"user_id": user_id})

    async def kick(self, room_id: str, user_id: str) -> None:
        await self.call("POST", f"/v3/rooms/{part(room_id)}/kick", {"user_id": user_id})

    async def join(self, room_id: str) -> None:
        await self.call("POST", f"/v3/rooms/{part(room_id)}/join", {})
        await self.wait_for_room(room_id)
        self.invites.pop(room_id, None)

    async def leave(self, room_id: str) -> None:
        await self.call("POST", f"/v3/rooms/{part(room_id)}/leave", {})

    async def set_state(
        self, room_id: str, kind: str, content: Mapping[str, Any], key: str = ""
    ) -> str:
        path = f"/v3/rooms/{part(room_id)}/state/{part(kind)}/{part(key)}"
        return str((await self.call("PUT", path, content))["event_id"])

    async def wait_for_room(self, room_id: str, *, seconds: float = 60.0) -> None:
        await until(lambda: room_id in self.client.rooms, seconds=seconds)

    async def wait_for_member(self, room_id: str, user_id: str, *, seconds: float = 60.0) -> None:
        """Until this client knows that the other has joined."""

        def joined() -> bool:
            room = self.client.rooms.get(room_id)
            return room is not None and user_id in room.users and not room.users[user_id].invited

        await until(joined, seconds=seconds)

    async def wait_for_invite(self, *, apart_from: Sequence[str] = (), seconds: float = 60) -> str:
        """The room that one is asked into next; known ones may be left out."""
        await until(lambda: set(self.invites) - set(apart_from), seconds=seconds)
        return next(room for room in self.invites if room not in apart_from)

    # ── saying something; each returns the event's id ──

    async def send(
        self,
        room_id: str,
        text: str,
        *,
        html: str | None = None,
        mentions: Sequence[str] | None = (),
        more: Mapping[str, Any] | None = None,
    ) -> str:
        """A message of text. `mentions=None` leaves the whole of `m.mentions` out."""
        content: dict[str, Any] = {"msgtype": "m.text", "body": text}
        if html is not None:
            content |= {"format": "org.matrix.custom.html", "formatted_body": html}
        if mentions is not None:
            content["m.mentions"] = {"user_ids": list(mentions)} if mentions else {}
        return await self.send_event(room_id, "m.room.message", {**content, **(more or {})})

    async def reply_to(self, room_id: str, event_id: str, text: str, **more: Any) -> str:
        relation = {"m.in_reply_to": {"event_id": event_id}}
        return await self.send(room_id, text, more={"m.relates_to": relation}, **more)

    async def in_thread(self, room_id: str, root: str, text: str, **more: Any) -> str:
        relation = {
            "rel_type": "m.thread",
            "event_id": root,
            "is_falling_back": True,
            "m.in_reply_to": {"event_id": root},
        }
        return await self.send(room_id, text, more={"m.relates_to": relation}, **more)

    async def edit(self, room_id: str, event_id: str, text: str) -> str:
        content = {
            "msgtype": "m.text",
            "body": f"* {text}",
            "m.new_content": {"msgtype": "m.text", "body": text, "m.mentions": {}},
            "m.mentions": {},
            "m.relates_to": {"rel_type": "m.replace", "event_id": event_id},
        }
        return await self.send_event(room_id, "m.room.message", content)

    async def react(self, room_id: str, event_id: str, key: str) -> str:
        relation = {"rel_type": "m.annotation", "event_id": event_id, "key": key}
        return await self.send_event(room_id, "m.reaction", {"m.relates_to": relation})

    async def redact(self, room_id: str, event_id: str) -> str:
        path = f"/v3/rooms/{part(room_id)}/redact/{part(event_id)}/{secrets.token_hex(8)}"
        return str((await self.call("PUT", path, {}))["event_id"])

    async def send_file(
        self,
        room_id: str,
        data: bytes,
        *,
        name: str = "notes.txt",
        media_type: str = "text/plain",
        msgtype: str = "m.file",
        caption: str | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> str:
        """A file, encrypted first where the room is."""
        content: dict[str, Any] = {
            "msgtype": msgtype,
            "body": caption or name,
            "filename": name,
            "info": {"mimetype": media_type, "size": len(data)},
        }
        if self.is_encrypted(room_id):
            sealed, keys = encrypt_attachment(data)
            uri = await self.upload(sealed, "application/octet-stream")
            content["file"] = {**keys, "url": uri}
        else:
            content["url"] = await self.upload(data, media_type)
        return await self.send_event(room_id, "m.room.message", {**content, **(more or {})})

    async def send_event(self, room_id: str, kind: str, content: Mapping[str, Any]) -> str:
        """Any event, encrypted where the room is and for every device there."""
        await self.wait_for_room(room_id)
        if kind != "m.reaction" and self.is_encrypted(room_id):
            if not self.client.rooms[room_id].members_synced:
                await self.client.joined_members(room_id)
            await self._query_keys()
        answer = await self.client.room_send(
            room_id, kind, dict(content), ignore_unverified_devices=True
        )
        event_id = getattr(answer, "event_id", None)
        assert event_id, f"It could not be sent: {answer}"
        return str(event_id)

    async def send_unreadable(self, room_id: str, text: str) -> str:
        """An encrypted message whose key nobody else gets, until `share_key`."""
        assert self.is_encrypted(room_id)
        olm = self.client.olm
        assert olm is not None
        self.forget_key(room_id)
        olm.create_outbound_group_session(room_id)
        session = olm.outbound_group_sessions[room_id]
        self._withheld[room_id] = {
            "algorithm": _MEGOLM,
            "room_id": room_id,
            "session_id": session.id,
            "session_key": session.session_key,
        }
        session.mark_as_shared()
        sealed = olm.group_encrypt(
            room_id,
            {"type": "m.room.message", "content": {"msgtype": "m.text", "body": text}},
        )
        self.forget_key(room_id)
        path = f"/v3/rooms/{part(room_id)}/send/m.room.encrypted/{secrets.token_hex(8)}"
        return str((await self.call("PUT", path, sealed))["event_id"])

    async def share_key(self, room_id: str) -> None:
        """Give everyone in the room the key of the last unreadable message."""
        olm = self.client.olm
        assert olm is not None
        if not self.client.rooms[room_id].members_synced:
            await self.client.joined_members(room_id)
        await self._query_keys()
        missing = self.client.get_missing_sessions(room_id)
        if missing:
            await self.client.keys_claim(missing)
        for user_id in self.client.rooms[room_id].users:
            for device in olm.device_store.active_user_devices(user_id):
                if device.id != self.client.device_id:
                    session = olm.session_store.get(device.curve25519)
                    sealed = olm._olm_encrypt(
                        session, device, "m.room_key", self._withheld[room_id]
                    )
                    await self.client.to_device(
                        ToDeviceMessage("m.room.encrypted", user_id, device.id, sealed)
                    )

    def forget_key(self, room_id: str) -> None:
        """The next message is encrypted with a new key."""
        olm = self.client.olm
        assert olm is not None
        olm.outbound_group_sessions.pop(room_id, None)

    # ── files ──

    async def upload(self, data: bytes, media_type: str = "application/octet-stream") -> str:
        async with (
            aiohttp.ClientSession() as http,
            http.post(
                f"{self.synapse.url}/_matrix/media/v3/upload",
                data=data,
                headers={**self._bearer, "Content-Type": media_type},
            ) as answer,
        ):
            told = await answer.json()
            assert answer.status == 200, told
            return str(told["content_uri"])

    async def download(self, content: Mapping[str, Any]) -> bytes:
        """What is in the file of a message, decrypted."""
        sealed = content.get("file")
        uri = str(sealed["url"] if sealed else content["url"])
        path = f"/_matrix/client/v1/media/download/{uri.removeprefix('mxc://')}"
        async with (
            aiohttp.ClientSession() as http,
            http.get(self.synapse.url + path, headers=self._bearer) as answer,
        ):
            data = await answer.read()
            assert answer.status == 200, data
        if not sealed:
            return data
        opened: bytes = decrypt_attachment(
            data, sealed["key"]["k"], sealed["hashes"]["sha256"], sealed["iv"]
        )
        return opened

    # ── seeing something ──

    def is_encrypted(self, room_id: str) -> bool:
        room = self.client.rooms.get(room_id)
        return room is not None and bool(room.encrypted)

    def from_sender(self, sender: str, room_id: str | None = None) -> list[Message]:
        """How the messages of someone stand now; edits are no messages of their own."""
        return [
            each
            for each in self.messages.values()
            if each.sender == sender and room_id in {None, each.room_id} and not each.redacted
        ]

    async def wait_for_message(
        self, fits: Callable[[Message], object], *, seconds: float = 60.0
    ) -> Message:
        """The first message that fits, as it stands now (edits count)."""
        await until(lambda: any(map(fits, self.messages.values())), seconds=seconds)
        return next(each for each in self.messages.values() if fits(each))

    async def wait_for_text(
        self, sender: str, text: str, *, room_id: str | None = None, seconds: float = 60.0
    ) -> Message:
        """A message of theirs that now has these words in it."""
        return await self.wait_for_message(
            lambda each: each in self.from_sender(sender, room_id) and text in each.text,
            seconds=seconds,
        )

    async def wait_for_reaction(self, sender: str, event_id: str, *, seconds: float = 60.0) -> str:
        def found() -> list[str]:
            return [what for who, what, to in self.reactions if (who, to) == (sender, event_id)]

        await until(found, seconds=seconds)
        return found()[0]

    async def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """One call below `/_matrix/client`, as this person."""
        async with (
            aiohttp.ClientSession() as http,
            http.request(
                method,
                f"{self.synapse.url}/_matrix/client{path}",
                data=None if body is None else json.dumps(body),
                headers={**self._bearer, "Content-Type": "application/json"},
            ) as answer,
        ):
            told: dict[str, Any] = await answer.json()
            if answer.status >= 400:
                raise RuntimeError(f"{method} {path}: {answer.status} {told}")
            return told

    @property
    def _bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.client.access_token}"}

    async def _query_keys(self) -> None:
        if self.client.should_query_keys:
            await self.client.keys_query()

    # ── what comes ──

    async def _on_event(self, room: MatrixRoom, event: Event) -> None:
        if isinstance(event, InviteEvent):
            return
        if isinstance(event, MegolmEvent):
            self.unreadable.append(event)
            return
        source = event.source
        self.events.append((room.room_id, source))
        content = source.get("content", {})
        relation = content.get("m.relates_to") or {}
        kind = source.get("type")
        if kind == "m.reaction":
            self.reactions.append((event.sender, relation["key"], relation["event_id"]))
        elif kind == "m.room.redaction":
            target = source.get("redacts") or content.get("redacts")
            if target in self.messages:
                self.messages[target].redacted = True
        elif kind == "m.room.message" and content:
            if relation.get("rel_type") == "m.replace":
                self._edit(event.sender, relation["event_id"], content)
            else:
                self._add(room, event, content)

    def _add(self, room: MatrixRoom, event: Event, content: dict[str, Any]) -> None:
        text = str(content.get("body", ""))
        self.messages[event.event_id] = Message(
            event_id=event.event_id,
            room_id=room.room_id,
            sender=event.sender,
            text=text,
            html=content.get("formatted_body"),
            content=content,
            first=content,
            encrypted=event.decrypted,
            texts=[text],
        )

    def _edit(self, sender: str, target: str, content: dict[str, Any]) -> None:
        message = self.messages.get(target)
        if message is None or message.sender != sender:
            return
        message.content = content.get("m.new_content", {})
        message.text = str(message.content.get("body", ""))
        message.html = message.content.get("formatted_body")
        message.edits += 1
        message.texts.append(message.text)

    async def _on_invite(self, room: MatrixRoom, event: InviteEvent) -> None:
        source = event.source
        if source.get("type") == "m.room.member" and source.get("state_key") == self.user_id:
            self.invites[room.room_id] = event.sender

    async def _on_ephemeral(self, room: MatrixRoom, event: Any) -> None:
        if hasattr(event, "users"):
            self.typing[room.room_id] = tuple(event.users)
            self.typed.update((room.room_id, user) for user in event.users)
        for receipt in getattr(event, "receipts", ()):
            self.receipts[room.room_id, receipt.user_id] = receipt.event_id

    async def _on_key(self, _key: RoomKeyEvent) -> None:
        """A key came: what could not be read may be readable now."""
        waiting, self.unreadable = self.unreadable, []
        for event in waiting:
            try:
                opened = self.client.decrypt_event(event)
            except (EncryptionError, LocalProtocolError):
                self.unreadable.append(event)
            else:
                await self._on_event(self.client.rooms[event.room_id], opened)
