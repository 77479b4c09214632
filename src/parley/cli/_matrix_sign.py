"""Signing the device, for `parley matrix login` and `verify`, and telling what came of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

import typer

from parley.cli._matrix_ask import ask_hidden
from parley.config.errors import shown
from parley.protocol import ParleyError
from parley.surfaces.matrix.account import Account
from parley.surfaces.matrix.connection import Connection
from parley.surfaces.matrix.cross_signing import KeysElsewhere, Means, PasswordWanted, cross_sign
from parley.surfaces.matrix.secret_storage import kept_recovery_key, recovery_file

__all__ = ["Signing", "sign_device"]


@dataclass(frozen=True, slots=True)
class Signing:
    """What came of it: a trouble, or a recovery key if one was made; or a process that does it."""

    trouble: str | None = None
    recovery_key: str | None = field(default=None, repr=False)
    left_to: int | None = None

    def tell(self, home: Path) -> None:
        if self.left_to is not None:
            typer.echo(f"The gateway (process {self.left_to}) signs the device itself.")
        elif self.trouble is not None:
            typer.echo(f"The device is not cross-signed: {self.trouble}")
        else:
            typer.echo("The device is cross-signed: it is trusted wherever the account is.")
        if self.recovery_key is not None:
            typer.echo(f"\nThe account's recovery key:\n  {self.recovery_key}")
            typer.echo("It opens the account's keys where you log it in elsewhere, as in Element.")
            typer.echo(f"Write it down. It is also kept in {shown(recovery_file(home))}.")


def sign_device(account: Account, home: Path, means: Means, *, asks: bool) -> Signing:
    """Sign the device of an account; with `asks`, a person is there to be asked for a key."""
    before = kept_recovery_key(home)
    trouble: str | None = None
    try:
        try:
            asyncio.run(_sign(account, home, means))
        except KeysElsewhere as fault:
            recovery = ""
            if asks and means.recovery is None:
                typer.echo("This account's cross-signing keys were made elsewhere.", err=True)
                label = "Its recovery key or passphrase (hidden, Enter to leave it unsigned)"
                recovery = ask_hidden(label, empty=True)
            if not recovery.strip():
                trouble = str(fault)
            else:
                asyncio.run(_sign(account, home, replace(means, recovery=recovery)))
        except PasswordWanted:
            if not asks:
                raise
            password = ask_hidden(f"Password of {account.user_id} (hidden)")
            asyncio.run(_sign(account, home, replace(means, password=password)))
    except ParleyError as error:
        trouble = str(error)
    made = kept_recovery_key(home)
    return Signing(trouble, made if made != before else None)


async def _sign(account: Account, home: Path, means: Means) -> None:
    connection = Connection(account, home / "keys")
    try:
        await connection.open()
        await cross_sign(connection, home, means)
    finally:
        await connection.close()
