"""Cross-signing of our own device, so that clients trust it that trust no other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from parley.protocol import ParleyError
from parley.surfaces.matrix.connection import Connection, MatrixFault
from parley.surfaces.matrix.device_keys import ask_identity, check_keys, upload_keys
from parley.surfaces.matrix.homeserver import Answer, Homeserver
from parley.surfaces.matrix.identity import Identity, key_of
from parley.surfaces.matrix.secret_storage import (
    SecretStorage,
    forget_recovery_key,
    kept_recovery_key,
)
from parley.surfaces.matrix.seeds import (
    USAGES,
    Seeds,
    new_seeds,
    read_seeds,
    write_seeds,
)
from parley.surfaces.matrix.signing import is_signed, sign

__all__ = ["KeysElsewhere", "Means", "PasswordWanted", "cross_sign", "ensure_cross_signed"]

_log = logging.getLogger("parley.matrix")

_FOREIGN: Final = (
    "This account's cross-signing keys were made elsewhere, so this device is not signed and some "
    "clients will not talk to it: run `parley matrix verify` with the account's recovery key, or "
    "replace them with `parley matrix verify --reset-cross-signing`."
)
_UNOPENED: Final = (
    "The account's secret storage was made elsewhere, so its recovery key does not recover the "
    "cross-signing keys made here: run `parley matrix verify` with that recovery key."
)
_ASKS_FIRST: Final = (
    "The homeserver wants the account's password before it takes new cross-signing keys: run "
    "`parley matrix verify --reset-cross-signing`."
)


class KeysElsewhere(MatrixFault):
    """The account's keys were made elsewhere: its recovery key is wanted."""


class PasswordWanted(MatrixFault):
    """The homeserver does this for whoever knows the account's password."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a person gave for it: `recovery` is a recovery key or a passphrase."""

    password: str | None = field(default=None, repr=False)
    recovery: str | None = field(default=None, repr=False)
    reset: bool = False


async def ensure_cross_signed(connection: Connection, home: Path) -> str | None:
    """See to it that our device is signed; returns what is wrong, in one sentence.

    `home` is the profile's directory of Matrix. Nothing is raised: a device that is not signed
    serves all the same.
    """
    try:
        await cross_sign(connection, home)
    except ParleyError as error:
        _log.warning("the device is not cross-signed: %s", error)
        return str(error)
    except Exception as error:  # noqa: BLE001 - supervisor: it serves without
        _log.exception("the device could not be cross-signed")
        return f"The device could not be cross-signed ({type(error).__name__})."
    return None


async def cross_sign(connection: Connection, home: Path, means: Means | None = None) -> None:
    """Make, take over or find the account's keys, and sign our device with them.

    What is in order already is left as it is.
    """
    means = means or Means()
    identity = await _published(connection)
    seeds = await asyncio.to_thread(read_seeds, home)
    if seeds is not None and seeds.user_id != connection.user_id:
        seeds = None
    if means.reset:
        seeds = await _reset(connection, home, means)
    elif identity.master is None:
        seeds = await _set_up(connection, home, seeds, means)
    elif seeds is None or not _is_ours(identity, seeds):
        seeds = await _taken_over(connection, identity, means)
        await asyncio.to_thread(write_seeds, home, seeds)
    await _sign(connection, identity if not means.reset else await ask_identity(connection), seeds)
    if not seeds.stored:
        await _store(connection, home, seeds, means)


# ── our device ──


async def _published(connection: Connection) -> Identity:
    """What the homeserver knows of us, once our device's keys are there."""
    await upload_keys(connection)
    identity = await check_keys(connection)
    if identity.device is None:
        # The device was ended and came back: what was uploaded for it went with it.
        connection.nio.olm.account.shared = False
        await upload_keys(connection)
        identity = await check_keys(connection)
    if identity.device is None:
        raise MatrixFault("The homeserver did not take this device's keys.")
    return identity


async def _sign(connection: Connection, identity: Identity, seeds: Seeds) -> None:
    """Sign the device with the self-signing key, and the master key with the device's."""
    user_id, device_id = identity.user_id, identity.device_id
    signed: dict[str, Any] = {}
    key = seeds.public("self_signing")
    if identity.device is not None and not is_signed(identity.device, user_id, key):
        signed[device_id] = _signed(
            identity.device, user_id, f"ed25519:{key}", sign(identity.device, seeds.self_signing)
        )
    fingerprint = connection.nio.olm.account.identity_keys["ed25519"]
    if identity.master is not None and not is_signed(
        identity.master, user_id, fingerprint, named=device_id
    ):
        signed[seeds.public("master")] = _signed(
            identity.master, user_id, *_sign_by_device(connection, identity.master)
        )
    if not signed:
        return
    told = await connection.call("POST", "/v3/keys/signatures/upload", {user_id: signed})
    if told.get("failures"):
        raise MatrixFault("The homeserver did not take the signature of this device.")


def _signed(keys: Mapping[str, Any], user_id: str, name: str, signature: str) -> dict[str, Any]:
    bare = {part: value for part, value in keys.items() if part not in {"signatures", "unsigned"}}
    return {**bare, "signatures": {user_id: {name: signature}}}


def _sign_by_device(connection: Connection, keys: Mapping[str, Any]) -> tuple[str, str]:
    bare = {part: value for part, value in keys.items() if part not in {"signatures", "unsigned"}}
    signature: str = connection.nio.olm.sign_json(bare)
    return f"ed25519:{connection.account.device_id}", signature


# ── the account's keys ──


def _is_ours(identity: Identity, seeds: Seeds) -> bool:
    published = (identity.master, identity.self_signing, identity.user_signing)
    return all(
        (keys is None and usage == "user_signing") or key_of(keys) == seeds.public(usage)
        for usage, keys in zip(USAGES, published, strict=True)
    )


async def _set_up(connection: Connection, home: Path, seeds: Seeds | None, means: Means) -> Seeds:
    """The first keys of the account: kept before anyone sees them."""
    seeds = replace(seeds or new_seeds(connection.user_id), stored=False)
    await asyncio.to_thread(write_seeds, home, seeds)
    await _publish(connection, seeds, means.password)
    return seeds


async def _reset(connection: Connection, home: Path, means: Means) -> Seeds:
    seeds = new_seeds(connection.user_id)
    await _publish(connection, seeds, means.password)
    await asyncio.to_thread(write_seeds, home, seeds)
    await asyncio.to_thread(forget_recovery_key, home)
    return seeds


async def _publish(connection: Connection, seeds: Seeds, password: str | None) -> None:
    """Upload the public keys; the homeserver may want the password for it."""
    account = connection.account
    server = Homeserver(account.homeserver)
    body = seeds.published(lambda keys: _sign_by_device(connection, keys))
    path, token = "/_matrix/client/v3/keys/device_signing/upload", account.access_token
    answer = await server.ask("POST", path, body, token=token)
    if answer.status == 401 and "flows" in answer.told:
        if not _takes_password(answer):
            raise MatrixFault(_elsewhere_allowed(answer), status=401)
        if password is None:
            raise PasswordWanted(_ASKS_FIRST, status=401)
        auth = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": account.user_id},
            "password": password,
            "session": answer.told.get("session"),
        }
        answer = await server.ask("POST", path, {**body, "auth": auth}, token=token)
        if answer.status == 401 and "flows" in answer.told:
            raise MatrixFault("The homeserver does not accept this password.", status=401)
    if answer.status != 200:
        raise answer.fault


def _takes_password(answer: Answer) -> bool:
    flows = answer.told.get("flows")
    return any(
        isinstance(flow, Mapping) and flow.get("stages") == ["m.login.password"]
        for flow in (flows if isinstance(flows, list) else [])
    )


def _elsewhere_allowed(answer: Answer) -> str:
    """What to say when it wants more than a password."""
    params = answer.told.get("params")
    told = params.values() if isinstance(params, Mapping) else []
    urls = [str(one["url"]) for one in told if isinstance(one, Mapping) and one.get("url")]
    where = f" at {urls[0]}" if urls else " in another client"
    return (
        f"The homeserver wants you to allow new cross-signing keys{where}; do so, then run "
        "`parley matrix verify --reset-cross-signing`."
    )


async def _taken_over(connection: Connection, identity: Identity, means: Means) -> Seeds:
    """The account's own keys, out of its secret storage."""
    if means.recovery is None:
        raise KeysElsewhere(_FOREIGN)
    storage = SecretStorage(connection)
    key = await storage.opened(means.recovery)
    if key is None:
        raise MatrixFault(
            "This recovery key or passphrase does not open the account's secret storage; look at "
            "it again, letter by letter."
        )
    seeds = await storage.seeds(key)
    if seeds is None or not _is_ours(identity, seeds):
        raise MatrixFault(
            "The account's secret storage does not hold its cross-signing keys; replace them with "
            "`parley matrix verify --reset-cross-signing`."
        )
    return seeds


async def _store(connection: Connection, home: Path, seeds: Seeds, means: Means) -> None:
    """Put the seeds into secret storage, under the account's key or a new one."""
    storage = SecretStorage(connection)
    typed = means.recovery or await asyncio.to_thread(kept_recovery_key, home)
    key = None if typed is None else await storage.opened(typed)
    if key is not None:
        await storage.keep(seeds, key)
    elif means.reset or await storage.default_key() is None:
        await storage.keep_anew(seeds, home)
    else:
        raise KeysElsewhere(_UNOPENED)
    await asyncio.to_thread(write_seeds, home, replace(seeds, stored=True))
