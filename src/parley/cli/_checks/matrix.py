"""Matrix: whether its account is there, is let in, and is trusted by others."""

from __future__ import annotations

import asyncio
import stat
from typing import Final

from parley.cli._checks.finding import Finding, fault, note, ok, quoted
from parley.cli._checks.settings import Ground
from parley.config.errors import shown
from parley.config.settings import Settings
from parley.profiles import Profile
from parley.protocol import ParleyError
from parley.surfaces.matrix.account import Account, matrix_home, read_account
from parley.surfaces.matrix.extra import has_extra, how_to_install

__all__ = ["check_matrix"]

_CHECK: Final = "matrix"
_PRIVATE: Final = ("account.json", "cross_signing.json", "recovery.key")


async def check_matrix(ground: Ground, *, offline: bool) -> list[Finding]:
    """Unless `offline`, ask the homeserver; nothing where Matrix is neither served nor known."""
    profile = ground.profile
    enabled = ground.settings is not None and ground.settings.surfaces.matrix.enabled
    try:
        account = await asyncio.to_thread(read_account, profile)
    except ParleyError as error:
        return [fault(_CHECK, str(error), f"parley matrix login{_of(profile)}")]
    if not enabled and account is None:
        return []
    if not has_extra():
        return [fault(_CHECK, "it needs a part that is not installed.", how_to_install())]
    if account is None:
        what = "it is to be served, but nobody has logged in."
        return [fault(_CHECK, what, f"parley matrix login{_of(profile)}")]
    found = await asyncio.to_thread(_check_modes, profile)
    if not enabled and ground.settings is not None:
        mend = f"parley config set surfaces.matrix.enabled true{_of(profile)}"
        found.append(note(_CHECK, f"{account.user_id} is logged in, but it is not served.", mend))
    if enabled and ground.settings is not None and not _lets_in(ground.settings):
        mend = f"parley config set access.owners matrix:@you:server{_of(profile)}"
        found.append(note(_CHECK, "nobody may speak to it yet: name yourself its owner.", mend))
    if offline:
        return [ok(_CHECK, f"{account.user_id} is logged in; not asked."), *found]
    return [*await _check_standing(profile, account), *found]


async def _check_standing(profile: Profile, account: Account) -> list[Finding]:
    from parley.cli._matrix_standing import ask_standing

    standing = await ask_standing(account, matrix_home(profile))
    if standing.token_refused:
        what = f"{account.homeserver} does not know the device of {account.user_id} any more."
        return [fault(_CHECK, what, f"parley matrix login{_of(profile)}")]
    if standing.keys_lost:
        what = "the encryption keys of its device are lost, so it cannot read encrypted rooms."
        return [fault(_CHECK, what, f"parley matrix login{_of(profile)}")]
    if standing.trouble is not None:
        return [fault(_CHECK, standing.trouble, f"parley matrix status{_of(profile)}")]
    if not standing.is_cross_signed:
        what = f"the device of {account.user_id} is not cross-signed: some clients do not trust it."
        return [note(_CHECK, what, f"parley matrix verify{_of(profile)}")]
    return [ok(_CHECK, f"{account.user_id} is logged in, and its device is cross-signed.")]


def _check_modes(profile: Profile) -> list[Finding]:
    """Nobody else may read what opens the account."""
    home = matrix_home(profile)
    wanted = {home: 0o700, home / "keys": 0o700} | {home / name: 0o600 for name in _PRIVATE}
    return [
        fault(_CHECK, f"others may read {shown(path)}.", f"chmod {mode:o} {quoted(path)}")
        for path, mode in wanted.items()
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077
    ]


def _lets_in(settings: Settings) -> bool:
    owners = any(owner.startswith("matrix:") for owner in settings.access.owners)
    return owners or bool(settings.surfaces.matrix.allow)


def _of(profile: Profile) -> str:
    return "" if profile.is_default else f" --profile {profile.name}"
