"""`parley matrix login | status | verify | recovery-key | logout`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from parley import audit
from parley.cli._shared import current_profile, fail, print_json

if TYPE_CHECKING:
    from parley.profiles import Profile
    from parley.surfaces.matrix.account import Account

__all__ = ["register"]

_NOT_LOGGED_IN = 3

app = typer.Typer(help="The account by which a profile is on Matrix.", no_args_is_help=True)

_RecoveryStdin = Annotated[
    bool,
    typer.Option(
        "--recovery-key-stdin",
        help="Read the account's recovery key or passphrase from standard input.",
    ),
]
_Reset = Annotated[
    bool,
    typer.Option(
        "--reset-cross-signing",
        help="Replace the account's cross-signing keys; who verified it must do so again.",
    ),
]


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="matrix")


@app.command("login")
def login(
    *,
    homeserver: Annotated[
        str | None,
        typer.Option(metavar="NAME|URL", help="Its name, such as matrix.org, or its address."),
    ] = None,
    user: Annotated[
        str | None, typer.Option(metavar="ID", help="The agent's own account: @bot:server.")
    ] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
    token_stdin: Annotated[
        bool, typer.Option("--token-stdin", help="Read an access token from standard input.")
    ] = False,
    sso: Annotated[bool, typer.Option("--sso", help="Log in with a browser.")] = False,
    recovery_key_stdin: _RecoveryStdin = False,
    owner: Annotated[
        str | None,
        typer.Option(metavar="ID", help="You, as @you:server: may speak to it and allow all."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Be another user than before; the old files stay.")
    ] = False,
    reset_cross_signing: _Reset = False,
) -> None:
    """Log in, once and for all; asks for what is missing.

    The device stays the same for good: logging in again brings the same one back. What is read
    from standard input is a line each: the password or token, then the recovery key.
    """
    from parley.cli._matrix_ask import Way, read_line
    from parley.cli._matrix_login import Wishes, log_in
    from parley.surfaces.matrix.cross_signing import Means
    from parley.surfaces.matrix.extra import require_extra

    require_extra()
    ways: dict[Way, bool] = {"password": password_stdin, "token": token_stdin, "sso": sso}
    chosen = [way for way, said in ways.items() if said]
    if len(chosen) > 1:
        fail("Give one of --password-stdin, --token-stdin and --sso.")
    secret = None
    if password_stdin or token_stdin:
        secret = read_line("password" if password_stdin else "access token")
    recovery = read_line("recovery key") if recovery_key_stdin else None
    wishes = Wishes(
        homeserver,
        user,
        chosen[0] if chosen else None,
        secret,
        owner,
        Means(recovery=recovery, reset=reset_cross_signing),
        replace,
    )
    log_in(current_profile(), wishes)


@app.command("status")
def status(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Tell how the profile stands on Matrix."""
    from parley.cli._matrix_standing import ask_standing
    from parley.cli._matrix_view import as_lines, as_record
    from parley.surfaces.matrix.account import matrix_home, read_account

    profile = current_profile()
    account = read_account(profile)
    if account is None:
        if as_json:
            print_json({"logged_in": False})
            raise typer.Exit(_NOT_LOGGED_IN)
        fail(_nobody(profile), code=_NOT_LOGGED_IN)
    standing = asyncio.run(ask_standing(account, matrix_home(profile)))
    record = as_record(profile, account, standing)
    if as_json:
        print_json(record)
    else:
        typer.echo("\n".join(as_lines(record)))
    if standing.trouble is not None:
        raise typer.Exit(1)


@app.command("verify")
def verify(
    *,
    recovery_key_stdin: _RecoveryStdin = False,
    reset_cross_signing: _Reset = False,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the account's password, for a reset.")
    ] = False,
) -> None:
    """Cross-sign the device, so that clients trust it."""
    from parley.cli._matrix_ask import at_terminal, read_line
    from parley.cli._matrix_sign import sign_device
    from parley.surfaces.matrix.account import matrix_home
    from parley.surfaces.matrix.cross_signing import Means
    from parley.surfaces.matrix.extra import require_extra

    require_extra()
    profile = current_profile()
    account = _account(profile)
    _refuse_while_served(profile)
    password = read_line("password") if password_stdin else None
    recovery = read_line("recovery key") if recovery_key_stdin else None
    asks = at_terminal() and not password_stdin and not recovery_key_stdin
    means = Means(password=password, recovery=recovery, reset=reset_cross_signing)
    signing = sign_device(account, matrix_home(profile), means, asks=asks)
    if signing.trouble is not None:
        fail(signing.trouble)
    signing.tell(matrix_home(profile))


@app.command("recovery-key")
def recovery_key() -> None:
    """Print the recovery key of the account, where it was made here."""
    from parley.surfaces.matrix.account import matrix_home
    from parley.surfaces.matrix.secret_storage import kept_recovery_key

    profile = current_profile()
    key = kept_recovery_key(matrix_home(profile))
    if key is None:
        account = _account(profile)
        fail(f"The recovery key of {account.user_id} is not kept here: it was made elsewhere.")
    typer.echo(key)
    audit.record("login.recovery_key_shown")


@app.command("logout")
def logout(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
) -> None:
    """End the device at the homeserver. Its keys are kept aside, and read nothing new."""
    from parley.cli._matrix_ask import at_terminal
    from parley.config.edit import set_value
    from parley.config.errors import shown
    from parley.surfaces.matrix.account import matrix_home
    from parley.surfaces.matrix.homeserver import Homeserver
    from parley.surfaces.matrix.keeping import DEVICE_FILES, set_aside
    from parley.surfaces.matrix.login import log_out

    profile = current_profile()
    account = _account(profile)
    _refuse_while_served(profile)
    if not yes:
        if not at_terminal():
            fail("Say --yes: the device ends for good.")
        question = f"End the device {account.device_id} of {account.user_id} for good?"
        typer.confirm(question, abort=True, err=True)
    ended = asyncio.run(log_out(Homeserver(account.homeserver), account.access_token))
    aside = set_aside(matrix_home(profile), DEVICE_FILES)
    audit.record("login.matrix_ended", user=account.user_id, device=account.device_id)
    set_value(profile, "surfaces.matrix.enabled", False)
    before = "" if ended else " (the homeserver had ended it already)"
    typer.echo(f"{account.user_id} is logged out{before}.")
    if aside is not None:
        typer.echo(f"The keys of {account.device_id} are kept in {shown(aside)}.")


def _account(profile: Profile) -> Account:
    from parley.surfaces.matrix.account import read_account

    account = read_account(profile)
    if account is None:
        fail(_nobody(profile), code=_NOT_LOGGED_IN)
    return account


def _nobody(profile: Profile) -> str:
    named = "" if profile.is_default else f" --profile {profile.name}"
    return f"`{profile.name}` is not on Matrix yet; log in with: parley matrix login{named}"


def _refuse_while_served(profile: Profile) -> None:
    """The keys of a device are used by one process at a time."""
    from parley.gateway.home import holder_of

    holder = holder_of(profile)
    if holder is not None:
        fail(
            f"Stop what serves this profile first (process {holder.pid}): it uses the keys of this "
            "device."
        )
