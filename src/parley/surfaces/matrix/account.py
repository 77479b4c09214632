"""The account by which a profile is on Matrix: one device, kept for good in the profile's home."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Final

from parley.config.files import make_private_directory, read_text, replace_text
from parley.profiles import DEFAULT_PROFILE, Profile
from parley.protocol import ParleyError

__all__ = ["Account", "matrix_home", "read_account", "write_account"]

_FILE: Final = "account.json"


def matrix_home(profile: Profile) -> Path:
    """Where a profile's device and its keys are."""
    return profile.home / "matrix"


@dataclass(frozen=True, slots=True)
class Account:
    """What `parley matrix login` leaves. `pickle_key` locks the files of the device's keys."""

    homeserver: str
    user_id: str
    device_id: str
    access_token: str = field(repr=False)
    pickle_key: str = field(repr=False)


def read_account(profile: Profile) -> Account | None:
    """The account, or None where nobody has logged in yet."""
    file = matrix_home(profile) / _FILE
    text = read_text(file)
    if text is None:
        return None
    try:
        record = json.loads(text)
        names = [each.name for each in fields(Account)]
        return Account(**{name: str(record[name]) for name in names})
    except (ValueError, KeyError, TypeError) as error:
        named = "" if profile.name == DEFAULT_PROFILE else f" --profile {profile.name}"
        raise ParleyError(
            f"{file} cannot be understood; log in again with `parley matrix login{named}`."
        ) from error


def write_account(profile: Profile, account: Account) -> None:
    home = matrix_home(profile)
    make_private_directory(home)
    replace_text(home / _FILE, json.dumps(asdict(account), indent=2) + "\n", private=True)
