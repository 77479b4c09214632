"""The account's secret storage: what a recovery key opens, on the homeserver."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from parley.config.files import make_private_directory, read_text, replace_text
from parley.surfaces.matrix.connection import Connection, MatrixFault, part
from parley.surfaces.matrix.recovery_key import read_recovery_key, write_recovery_key
from parley.surfaces.matrix.secret_cipher import StorageKey, lock, new_key, open_key, unlock
from parley.surfaces.matrix.seeds import USAGES, Seeds
from parley.surfaces.matrix.signing import from_base64, to_base64

__all__ = ["SecretStorage", "forget_recovery_key", "kept_recovery_key", "recovery_file"]

_DEFAULT: Final = "m.secret_storage.default_key"


def recovery_file(home: Path) -> Path:
    """Where the recovery key is that we made."""
    return home / "recovery.key"


def kept_recovery_key(home: Path) -> str | None:
    """The recovery key that we made; None where the account has one of somebody else."""
    text = (read_text(recovery_file(home)) or "").strip()
    return text if read_recovery_key(text) is not None else None


def forget_recovery_key(home: Path) -> None:
    """It opens nothing any more."""
    recovery_file(home).unlink(missing_ok=True)


class SecretStorage:
    """That of one account."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def opened(self, typed: str) -> StorageKey | None:
        """The account's key, if a recovery key or a passphrase opens it."""
        key_id = await self.default_key()
        if key_id is None:
            return None
        description = await self._read(f"m.secret_storage.key.{key_id}")
        return await asyncio.to_thread(open_key, key_id, description, typed)

    async def default_key(self) -> str | None:
        """The id of the account's key, where it has one."""
        key_id = (await self._read(_DEFAULT)).get("key")
        return key_id if isinstance(key_id, str) and key_id else None

    async def seeds(self, key: StorageKey) -> Seeds | None:
        """The seeds that are in it, if all are."""
        found: dict[str, bytes] = {}
        for usage in USAGES:
            name = f"m.cross_signing.{usage}"
            secret = unlock(key, name, await self._read(name))
            try:
                found[usage] = from_base64(secret or "")
            except ValueError:
                return None
        if any(len(seed) != 32 for seed in found.values()):
            return None
        return Seeds(self._connection.user_id, **found, stored=True)

    async def keep(self, seeds: Seeds, key: StorageKey) -> None:
        """Put the seeds into it."""
        for usage in USAGES:
            name = f"m.cross_signing.{usage}"
            await self._write(name, lock(key, name, to_base64(seeds.of(usage))))

    async def keep_anew(self, seeds: Seeds, home: Path) -> None:
        """Put the seeds under a key of our own, which becomes the account's.

        Its recovery key is kept first, and the account is told last: whatever comes between, no
        key is in use that nobody knows.
        """
        kept = await asyncio.to_thread(kept_recovery_key, home)
        raw = None if kept is None else read_recovery_key(kept)
        if raw is None:
            raw = secrets.token_bytes(32)
            await asyncio.to_thread(_write_recovery_key, home, raw)
        key, description = new_key(raw)
        await self._write(f"m.secret_storage.key.{key.id}", description)
        await self.keep(seeds, key)
        await self._write(_DEFAULT, {"key": key.id})

    async def _read(self, kind: str) -> Mapping[str, Any]:
        try:
            return await self._connection.call("GET", self._path(kind))
        except MatrixFault as fault:
            if fault.status == 404:
                return {}
            raise

    async def _write(self, kind: str, content: Mapping[str, Any]) -> None:
        await self._connection.call("PUT", self._path(kind), content)

    def _path(self, kind: str) -> str:
        return f"/v3/user/{part(self._connection.user_id)}/account_data/{part(kind)}"


def _write_recovery_key(home: Path, raw: bytes) -> None:
    make_private_directory(home)
    replace_text(recovery_file(home), write_recovery_key(raw) + "\n", private=True)
