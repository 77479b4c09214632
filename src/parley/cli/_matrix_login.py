"""`parley matrix login`: from what was said and asked to an account that is kept and signed."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import dataclass, field, replace
from typing import Final

import typer

from parley import audit
from parley.cli._matrix_ask import Way, ask, ask_hidden, at_terminal, pick_way
from parley.cli._matrix_sign import Signing, sign_device
from parley.cli._matrix_sso import token_by_sso
from parley.cli._shared import fail
from parley.config.document import Value
from parley.config.edit import preview, set_values
from parley.config.errors import shown
from parley.config.settings import Settings
from parley.gateway.home import holder_of
from parley.profiles import Profile
from parley.protocol import ParleyError
from parley.surfaces.matrix.account import Account, matrix_home, read_account, write_account
from parley.surfaces.matrix.connection import MatrixFault
from parley.surfaces.matrix.cross_signing import Means
from parley.surfaces.matrix.device_keys import are_keys_lost
from parley.surfaces.matrix.homeserver import Homeserver
from parley.surfaces.matrix.keeping import DEVICE_FILES, USER_FILES, set_aside
from parley.surfaces.matrix.login import (
    Grant,
    by_access_token,
    by_login_token,
    by_password,
    find_homeserver,
    is_user_id,
    log_out,
    ways_in,
    who_is,
)
from parley.surfaces.matrix.seeds import read_seeds

__all__ = ["Wishes", "log_in"]

_ENABLED: Final = "surfaces.matrix.enabled"
_FLOWS: Final[dict[Way, str]] = {"password": "m.login.password", "sso": "m.login.sso"}
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was said on the command line and on standard input."""

    homeserver: str | None
    user: str | None
    way: Way | None
    secret: str | None = field(repr=False)
    owner: str | None
    means: Means
    replace: bool


def log_in(profile: Profile, wishes: Wishes) -> None:
    """Log in and tell how it went."""
    _Login(profile, wishes).run()


class _Login:
    def __init__(self, profile: Profile, wishes: Wishes) -> None:
        self._profile = profile
        self._wishes = wishes
        self._home = matrix_home(profile)
        self._password: str | None = None
        self._known = _known_account(profile)
        self._holder = holder_of(profile)
        self._asks = at_terminal() and wishes.secret is None

    def run(self) -> None:
        settings = preview(self._profile, {_ENABLED: True})  # a broken file is told of now
        served = preview(self._profile, {}).surfaces.matrix.enabled
        self._check_wishes()
        server = asyncio.run(find_homeserver(self._homeserver()))
        _say(f"The homeserver is {server.url}.")
        grant = self._granted(server)
        account = self._as_account(server, grant)
        self._make_room_for(account)
        signing = self._signed(account)
        write_account(self._profile, account)
        audit.record(
            "login.matrix",
            profile=self._profile,
            user=account.user_id,
            device=account.device_id,
            homeserver=account.homeserver,
        )
        self._end_lost(account)
        owners = settings.access.owners
        owner = self._owner(account, owners)
        changes: dict[str, Value] = {_ENABLED: True}
        if owner is not None and owner not in owners:
            changes["access.owners"] = [*owners, owner]
        set_values(self._profile, changes)
        _say(f"Logged in as {account.user_id}; its device is {account.device_id}.")
        _say(f"Its keys are kept in {shown(self._home)}.")
        signing.tell(self._home)
        _say("")
        if owner is None and not _names_somebody(settings):
            _say("Nobody may speak to it yet; you may after:")
            _say(f"  parley config set access.owners matrix:@you:server{self._named()}")
        self._tell_next(account, served=served)

    # ── what is wanted ──

    def _check_wishes(self) -> None:
        wishes = self._wishes
        if wishes.user is not None and wishes.user.startswith("@") and not is_user_id(wishes.user):
            fail(f"{wishes.user!r} is no Matrix id; one looks like @bot:example.org.")
        if wishes.owner is not None and not is_user_id(wishes.owner):
            fail(f"{wishes.owner!r} is no Matrix id; yours looks like @you:example.org.")
        means = wishes.means
        if self._holder is not None and self._known and (means.recovery or means.reset):
            fail(
                f"Stop what serves this profile first (process {self._holder.pid}): it uses the "
                "keys of this device."
            )

    def _homeserver(self) -> str:
        wishes, known = self._wishes, self._known
        if wishes.homeserver:
            return wishes.homeserver
        if known is not None and (wishes.user is None or _is_same(wishes.user, known.user_id)):
            return known.homeserver
        if wishes.user is not None and ":" in wishes.user:
            return wishes.user
        if not self._asks:
            fail("Say where: `parley matrix login --homeserver NAME --user @bot:NAME`.")
        return ask("Homeserver (a name such as matrix.org, or its address)")

    # ── the ways in ──

    def _granted(self, server: Homeserver) -> Grant:
        offered = asyncio.run(ways_in(server))
        ways: list[Way] = [way for way, flow in _FLOWS.items() if flow in offered]
        way = self._wishes.way
        if way is None and not self._asks:
            fail("Say how: --password-stdin, --token-stdin or --sso.")
        way = way or pick_way([*ways, "token"])
        if way != "token" and way not in ways:
            others = " or ".join(f"--{one}" if one == "sso" else f"--{one}-stdin" for one in ways)
            fail(
                f"{server.url} offers no login by {'password' if way == 'password' else 'SSO'}; "
                f"use {others or '--token-stdin'}."
            )
        if way == "password":
            grant = self._by_password(server)
        elif way == "sso":
            grant = asyncio.run(self._by_sso(server))
        else:
            token = self._wishes.secret or ask_hidden("Access token (hidden)")
            grant = asyncio.run(by_access_token(server, token.strip()))
        self._check_grant(server, grant, ours=way != "token")
        return grant

    def _by_password(self, server: Homeserver) -> Grant:
        known = self._known
        user = self._wishes.user
        if user is None and not self._asks:
            fail("Say who: --user @bot:server.")
        before = known.user_id if known else None
        user = user or ask("The agent's own account (such as @bot:server)", default=before)
        self._agree_to_replace(user)
        for tried in range(1, _TRIES + 1):
            password = self._wishes.secret or ask_hidden(f"Password of {user} (hidden)")
            _say("Logging in …")
            try:
                grant = asyncio.run(
                    by_password(
                        server,
                        user,
                        password,
                        device_id=self._device_for(user),
                        device_name=self._device_name(),
                    )
                )
            except MatrixFault as fault:
                if fault.code != "M_FORBIDDEN" or not self._asks or tried == _TRIES:
                    raise
                typer.echo(str(fault), err=True)
            else:
                self._password = password
                return grant
        raise AssertionError

    async def _by_sso(self, server: Homeserver) -> Grant:
        token = await token_by_sso(server)
        _say("Logging in …")
        device = self._device_for(self._known.user_id) if self._known else None
        return await by_login_token(
            server, token, device_id=device, device_name=self._device_name()
        )

    def _check_grant(self, server: Homeserver, grant: Grant, *, ours: bool) -> None:
        """The homeserver must know the token as that of the user who was meant."""
        user_id, device_id = asyncio.run(who_is(server, grant.access_token))
        if (user_id, device_id) != (grant.user_id, grant.device_id):
            raise ParleyError("The homeserver gave a token of another device; nothing is kept.")
        wanted = self._wishes.user
        try:
            if wanted is not None and not _is_same(wanted, user_id):
                fail(f"This login is that of {user_id}, not of {wanted}; nothing is kept.")
            self._agree_to_replace(user_id)
        except (SystemExit, typer.Abort):
            if ours:
                asyncio.run(log_out(server, grant.access_token))
            raise

    def _agree_to_replace(self, user: str) -> None:
        known = self._known
        if known is None or _is_same(user, known.user_id):
            return
        if self._holder is not None:
            fail(
                f"This profile is {known.user_id} on Matrix, and process {self._holder.pid} serves "
                "it; stop that first."
            )
        if self._wishes.replace:
            return
        if not self._asks:
            fail(
                f"This profile is {known.user_id} on Matrix; to be {user} instead, say --replace: "
                "the files of the former are kept aside."
            )
        typer.confirm(
            f"This profile is {known.user_id} on Matrix. Be {user} instead?", abort=True, err=True
        )
        self._wishes = replace(self._wishes, replace=True)

    # ── what is kept ──

    def _device_for(self, user: str) -> str | None:
        """The device that we were before, unless nothing can be read with it any more."""
        known = self._known
        if known is None or not _is_same(user, known.user_id) or self._is_lost(known):
            return None
        return known.device_id

    def _is_lost(self, account: Account) -> bool:
        return are_keys_lost(self._home / "keys", account)

    def _device_name(self) -> str:
        return "Parley" if self._profile.is_default else f"Parley ({self._profile.name})"

    def _as_account(self, server: Homeserver, grant: Grant) -> Account:
        known = self._known
        same_user = known is not None and known.user_id == grant.user_id
        same = known is not None and same_user and known.device_id == grant.device_id
        if known is not None and same_user and not same and self._is_lost(known):
            _say(
                f"The encryption keys of the device {known.device_id} are lost; "
                f"{grant.device_id} takes its place."
            )
        elif known is not None and same_user and not same:
            _say(
                f"The token belongs to the device {grant.device_id}, which is used from now on; "
                f"{known.device_id} stays as it is at the homeserver."
            )
        pickle_key = known.pickle_key if known is not None and same else secrets.token_urlsafe(32)
        return Account(server.url, grant.user_id, grant.device_id, grant.access_token, pickle_key)

    def _make_room_for(self, account: Account) -> None:
        """Move the files of another user out of the way."""
        seeds = read_seeds(self._home)
        owner = self._known.user_id if self._known else seeds.user_id if seeds else None
        if owner is not None and owner != account.user_id:
            aside = set_aside(self._home, (*DEVICE_FILES, *USER_FILES))
            if aside is not None:
                _say(f"What belongs to {owner} is kept in {shown(aside)}.")

    def _end_lost(self, account: Account) -> None:
        """A device whose keys are lost is of no use to anyone, and others would write to it."""
        known = self._known
        if known is None or not self._is_lost(known) or known.device_id == account.device_id:
            return
        with contextlib.suppress(ParleyError):
            asyncio.run(log_out(Homeserver(known.homeserver), known.access_token))

    def _signed(self, account: Account) -> Signing:
        if self._holder is not None and self._known is not None:
            return Signing(left_to=self._holder.pid)
        _say("Signing the device …")
        means = replace(self._wishes.means, password=self._password)
        return sign_device(account, self._home, means, asks=self._asks)

    def _owner(self, account: Account, owners: list[str]) -> str | None:
        owner = self._wishes.owner
        if owner is None and self._asks and not any(o.startswith("matrix:") for o in owners):
            owner = ask("Your own Matrix id, as its owner (Enter for nobody)", default="") or None
            while owner is not None and not is_user_id(owner):
                owner = ask("That is no Matrix id; one looks like @you:server", default="") or None
        if owner == account.user_id:
            _say(f"{owner} is the agent itself, and is not made its owner.")
            return None
        return None if owner is None else f"matrix:{owner}"

    # ── what comes next ──

    def _tell_next(self, account: Account, *, served: bool) -> None:
        if self._holder is None:
            _say(f"Next: `parley gateway run{self._named()}`, and invite {account.user_id}.")
        elif served:
            _say(f"The gateway takes the account by itself; invite {account.user_id}.")
        else:
            _say(
                f"The gateway (process {self._holder.pid}) takes the account at its next start; "
                f"then invite {account.user_id}."
            )

    def _named(self) -> str:
        return "" if self._profile.is_default else f" --profile {self._profile.name}"


def _known_account(profile: Profile) -> Account | None:
    try:
        return read_account(profile)
    except ParleyError:  # it cannot be read: this login makes it anew
        return None


def _names_somebody(settings: Settings) -> bool:
    """Whether anyone may speak on Matrix."""
    owners = any(owner.startswith("matrix:") for owner in settings.access.owners)
    return owners or bool(settings.surfaces.matrix.allow)


def _is_same(said: str, user_id: str) -> bool:
    """Whether a user was meant, by id or by name alone."""
    return said == user_id or (not said.startswith("@") and said == user_id[1:].partition(":")[0])


def _say(text: str) -> None:
    typer.echo(text)
