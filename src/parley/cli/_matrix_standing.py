"""How a profile stands on Matrix, asked of the homeserver; its keys are not opened for this."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from parley.surfaces.matrix.account import Account
from parley.surfaces.matrix.connection import MatrixFault
from parley.surfaces.matrix.device_keys import KEYS_LOST, are_keys_lost
from parley.surfaces.matrix.homeserver import Homeserver
from parley.surfaces.matrix.identity import Identity, read_identity
from parley.surfaces.matrix.login import who_is

__all__ = ["Standing", "ask_standing"]


@dataclass(frozen=True, slots=True)
class Standing:
    """`trouble`: why it does not work. `token_refused`: the homeserver knows us no more.
    `keys_lost`: it knows a device whose keys are not here.
    """

    trouble: str | None = None
    token_refused: bool = False
    keys_lost: bool = False
    identity: Identity | None = None

    @property
    def is_cross_signed(self) -> bool:
        return self.identity is not None and self.identity.is_cross_signed


async def ask_standing(account: Account, home: Path) -> Standing:
    """`home` is the profile's directory of Matrix."""
    server, token = Homeserver(account.homeserver), account.access_token
    try:
        if await who_is(server, token) != (account.user_id, account.device_id):
            return Standing("The access token is that of another device.", token_refused=True)
        told = await server.call(
            "POST",
            "/_matrix/client/v3/keys/query",
            {"device_keys": {account.user_id: []}},
            token=token,
        )
    except MatrixFault as fault:
        return Standing(str(fault), token_refused=fault.status == 401)
    identity = read_identity(told, account.user_id, account.device_id)
    if identity.device is not None and are_keys_lost(home / "keys", account):
        return Standing(KEYS_LOST, keys_lost=True, identity=identity)
    return Standing(identity=identity)
