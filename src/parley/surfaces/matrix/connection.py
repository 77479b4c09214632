"""The one connection to the homeserver: calls of its API, and sends that are encrypted where they
must be. What goes wrong is a `MatrixFault`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from parley.config.files import make_private_directory
from parley.surfaces.matrix.account import Account
from parley.surfaces.matrix.errors import MatrixFault, reason_of
from parley.surfaces.matrix.room_keys import RoomKeys

if TYPE_CHECKING:
    from aiohttp import ClientResponse
    from nio import AsyncClient

__all__ = ["Connection", "MatrixFault", "part", "reason_of"]

_log = logging.getLogger("parley.matrix")

_CALL_WITHIN: Final = 30.0
_LARGEST_ANSWER: Final = 64 * 1024 * 1024


def part(text: str) -> str:
    """A room's or an event's id as it stands in a path."""
    return quote(text, safe="")


class Connection:
    """Opened once for an account. `nio` keeps what is known of rooms, devices and keys."""

    def __init__(self, account: Account, keys: Path) -> None:
        from nio import AsyncClient, AsyncClientConfig

        make_private_directory(keys)
        self.directory = keys
        self.account = account
        self.nio: AsyncClient = AsyncClient(
            account.homeserver,
            account.user_id,
            device_id=account.device_id,
            store_path=str(keys),
            config=AsyncClientConfig(
                encryption_enabled=True,
                store_sync_tokens=False,
                pickle_key=account.pickle_key,
                max_limit_exceeded=0,
                max_timeouts=0,
                request_timeout=60,
            ),
        )
        self.keys = RoomKeys(self.nio, self.call)
        self._encrypted: set[str] = set()

    @property
    def user_id(self) -> str:
        return self.account.user_id

    async def open(self) -> None:
        """Load the keys of our device; they are made when it has none yet."""
        account = self.account
        self.nio.restore_login(account.user_id, account.device_id, account.access_token)
        for file in self.directory.glob("*.db*"):
            file.chmod(0o600)

    async def close(self) -> None:
        await self.nio.close()

    # ── calls ──

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        timeout: float = _CALL_WITHIN,
    ) -> dict[str, Any]:
        """One call below `/_matrix/client`; returns its JSON, raises a `MatrixFault`."""
        import aiohttp

        address = f"/_matrix/client{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            answer = await self.nio.send(
                method,
                address,
                None if body is None else json.dumps(body),
                {
                    "Authorization": f"Bearer {self.account.access_token}",
                    "Content-Type": "application/json",
                },
                timeout=timeout,
            )
            async with answer:
                text = await _whole(answer)
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise MatrixFault(f"The homeserver cannot be reached ({reason_of(error)}).") from error
        try:
            told = json.loads(text)
        except ValueError:
            told = None
        if status >= 400:
            raise _refusal(status, told if isinstance(told, dict) else {})
        if not isinstance(told, dict):
            raise MatrixFault("What answers there is no Matrix homeserver.")
        return told

    # ── sends ──

    def note_encrypted(self, room_id: str) -> None:
        """From now on nothing goes there as plain text, whatever the server says."""
        self._encrypted.add(room_id)

    def is_encrypted(self, room_id: str) -> bool:
        room = self.nio.rooms.get(room_id)
        return room_id in self._encrypted or (room is not None and room.encrypted)

    async def send(self, room_id: str, kind: str, content: Mapping[str, Any], txn: str) -> str:
        """Send an event, encrypted where the room is; returns its id.

        The same `txn` sent again is the same event: the server keeps the first, and tells its id.
        """
        wrapped = await self.wrap(room_id, kind, content)
        return await self.put(room_id, *wrapped, txn)

    async def wrap(
        self, room_id: str, kind: str, content: Mapping[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        """The event as it goes over the wire. Reactions are never encrypted."""
        from nio import EncryptionError, LocalProtocolError

        room = self.nio.rooms.get(room_id)
        if room is None:
            raise MatrixFault("It is not known yet whether this room is encrypted.")
        if kind == "m.reaction" or not self.is_encrypted(room_id):
            return kind, dict(content)
        if not room.encrypted:
            raise MatrixFault(
                "This room is encrypted, and its keys are not known here yet; nothing was sent."
            )
        await self.keys.share(room_id)
        try:
            wrapped_kind, wrapped = self.nio.encrypt(room_id, kind, dict(content))
        except (EncryptionError, LocalProtocolError) as error:
            self.keys.forget(room_id)
            raise MatrixFault(f"This could not be encrypted ({reason_of(error)}).") from error
        return wrapped_kind, dict(wrapped)

    async def put(self, room_id: str, kind: str, content: Mapping[str, Any], txn: str) -> str:
        """Send an event just as it is."""
        if kind not in {"m.room.encrypted", "m.reaction"} and self.is_encrypted(room_id):
            raise MatrixFault("Plain text does not go into an encrypted room.")
        path = f"/v3/rooms/{part(room_id)}/send/{part(kind)}/{part(txn)}"
        told = await self.call("PUT", path, content)
        return str(told["event_id"])


async def _whole(answer: ClientResponse) -> bytes:
    """All of an answer; a single `read(n)` gives only what has come so far."""
    pieces, size = list[bytes](), 0
    async for piece in answer.content.iter_any():
        size += len(piece)
        if size > _LARGEST_ANSWER:
            raise MatrixFault("The homeserver's answer is too large.")
        pieces.append(piece)
    return b"".join(pieces)


def _refusal(status: int, told: Mapping[str, Any]) -> MatrixFault:
    code, words = str(told.get("errcode", "")), str(told.get("error", "")).strip()
    after = told.get("retry_after_ms")
    return MatrixFault(
        f"The homeserver refused this ({status}{f' {code}' if code else ''}): "
        f"{words or 'it gave no reason'}",
        status=status,
        code=code,
        after=after / 1000 if isinstance(after, int | float) else None,
    )
