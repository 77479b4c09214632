"""The keys of our own device: published once, never over others, and found out when they are lost.

A device whose files are gone makes new keys under its old name. They are not uploaded: nobody would
trust them, and the homeserver keeps the old ones.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from parley.surfaces.matrix.account import Account
from parley.surfaces.matrix.errors import MatrixFault
from parley.surfaces.matrix.identity import Identity, read_identity

if TYPE_CHECKING:
    from parley.surfaces.matrix.connection import Connection

__all__ = ["KEYS_LOST", "KeysLost", "are_keys_lost", "ask_identity", "check_keys", "upload_keys"]

_log = logging.getLogger("parley.matrix")

KEYS_LOST: Final = (
    "The encryption keys of this device are lost, so it cannot read encrypted rooms: run "
    "`parley matrix login` for a new device."
)
_TRIES: Final = 4


class KeysLost(MatrixFault):
    """The homeserver has other keys for this device than are kept here."""

    def __init__(self) -> None:
        super().__init__(KEYS_LOST)


def are_keys_lost(directory: Path, account: Account) -> bool:
    """What is known without the homeserver: there is no file of keys, or not the right one."""
    return not _file(directory, account, "db").exists() or _mark(directory, account).exists()


async def ask_identity(connection: Connection) -> Identity:
    """What the homeserver publishes of us."""
    account = connection.account
    told = await connection.call("POST", "/v3/keys/query", {"device_keys": {account.user_id: []}})
    return read_identity(told, account.user_id, account.device_id)


async def check_keys(connection: Connection) -> Identity:
    """What the homeserver publishes of us; raises `KeysLost` where that is another's."""
    identity = await ask_identity(connection)
    ours = connection.nio.olm.account.identity_keys
    lost = identity.device is not None and not identity.device_has(
        ed25519=ours["ed25519"], curve25519=ours["curve25519"]
    )
    await asyncio.to_thread(_note, connection, lost=lost)
    if lost:
        raise KeysLost
    return identity


async def upload_keys(connection: Connection) -> None:
    """Publish our device and as many one-time keys as are missing."""
    from nio import KeysUploadResponse

    nio = connection.nio
    if not nio.should_upload_keys:
        return
    if not nio.olm.account.shared:
        await check_keys(connection)
    for _ in range(_TRIES):
        keys = nio.olm.share_keys()
        # Kept first: after a crash the same ones are sent again, not others of the same names.
        nio.olm.save_account()
        try:
            told = await connection.call("POST", "/v3/keys/upload", keys)
        except MatrixFault as fault:
            if fault.status != 400 or "already exists" not in str(fault):
                raise
            # The files are older than what the homeserver has: those names are passed over.
            _log.warning("one_time_keys_passed_over", extra={"device": nio.device_id})
            await check_keys(connection)
            nio.olm.mark_keys_as_published()
            nio.olm.save_account()
            continue
        answer = KeysUploadResponse.from_dict(told)
        if not isinstance(answer, KeysUploadResponse):
            raise MatrixFault("The homeserver's answer about our keys cannot be understood.")
        await nio.receive_response(answer)
        return
    raise MatrixFault("The homeserver does not take the one-time keys of this device.")


def _note(connection: Connection, *, lost: bool) -> None:
    """Kept for `login` and `doctor`, which do not open the keys."""
    mark = _mark(connection.directory, connection.account)
    if lost:
        mark.touch(mode=0o600)
    else:
        mark.unlink(missing_ok=True)


def _mark(directory: Path, account: Account) -> Path:
    return _file(directory, account, "lost")


def _file(directory: Path, account: Account, kind: str) -> Path:
    return directory / f"{account.user_id}_{account.device_id}.{kind}"
