"""An API key as it is written: the token a program sends, and the record kept of it. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeGuard

from parley.config.errors import ConfigError
from parley.profiles import PROFILE_NAME

__all__ = [
    "LOCAL_NAME",
    "SCOPES",
    "SECRET_LENGTH",
    "ApiKey",
    "check_expiry",
    "check_name",
    "check_scopes",
    "digest_of",
    "is_local_token",
    "keys_text",
    "local_token",
    "parse_keys",
    "token_of",
    "whose_token",
]

SCOPES: Final = ("chat", "runs", "admin")
LOCAL_NAME: Final = "local"
SECRET_LENGTH: Final = 43  # of 62 letters and digits: 256 bits

_ID: Final = re.compile(r"[0-9a-f]{8}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_SECRET: Final = rf"[A-Za-z0-9]{{{SECRET_LENGTH}}}"
# Neither an id nor a secret has a `-` in it: all that is left before them is the profile's name.
_TOKEN: Final = re.compile(rf"sk-parley-([a-z0-9][a-z0-9-]{{0,31}})-([0-9a-f]{{8}})-{_SECRET}")
_LOCAL_TOKEN: Final = re.compile(rf"sk-parley-{LOCAL_NAME}-{_SECRET}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_LATEST: Final = 250_000_000_000  # calendars end soon after
_FIELDS: Final = frozenset(
    {"id", "name", "profile", "scopes", "all_profiles"}
    | {"created_at", "expires_at", "per_minute", "sha256"}
)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is known of a key; without `per_minute` the server's own limit counts."""

    id: str
    name: str
    profile: str
    """The one it was made for."""
    scopes: frozenset[str]
    all_profiles: bool
    created_at: float
    expires_at: float | None
    per_minute: int | None
    digest: bytes = field(repr=False)
    """The SHA-256 of the whole token."""

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at


# ── the token ──


def token_of(profile: str, key_id: str, secret: str) -> str:
    return f"sk-parley-{profile}-{key_id}-{secret}"


def whose_token(token: str) -> tuple[str, str] | None:
    """The profile and the id that a token names; None when it is no token of ours."""
    named = _TOKEN.fullmatch(token)
    return None if named is None else (named[1], named[2])


def local_token(secret: str) -> str:
    return f"sk-parley-{LOCAL_NAME}-{secret}"


def is_local_token(token: str) -> bool:
    return _LOCAL_TOKEN.fullmatch(token) is not None


def digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "backslashreplace")).digest()


# ── what may be asked for ──


def check_name(name: str, taken: Collection[str]) -> None:
    """Raise unless a new key may be called so, beside those of the names `taken`."""
    if name == LOCAL_NAME:
        raise ConfigError("`local` is the key that Parley makes itself; choose another name.")
    if not _NAME.fullmatch(name):
        raise ConfigError(
            "The name of a key is made of letters, digits, `.`, `_` and `-`, 40 at most, with a "
            "letter or digit first."
        )
    if _ID.fullmatch(name):
        raise ConfigError(f"`{name}` looks like the id of a key; choose another name.")
    if name in taken:
        raise ConfigError(
            f"There is a key `{name}` already; choose another name, or revoke it first with: "
            f"parley keys revoke {name}"
        )


def check_scopes(scopes: Collection[str]) -> None:
    known = ", ".join(SCOPES)
    if not scopes:
        raise ConfigError(f"A key needs a scope; there are {known}.")
    for scope in scopes:
        if scope not in SCOPES:
            raise ConfigError(f"There is no scope {scope[:40]!a}; there are {known}.")


def check_expiry(expires_at: float | None, now: float) -> None:
    if expires_at is None:
        return
    if expires_at <= now:
        raise ConfigError("A key cannot expire in the past; give a later time, or `never`.")
    if not _is_moment(expires_at):
        raise ConfigError("That is too far away for a key to expire; say `never`.")


# ── the record ──


def keys_text(keys: Sequence[ApiKey]) -> str:
    """The text of a file with these keys."""
    return json.dumps({"keys": [_record(key) for key in keys]}, indent=2) + "\n"


def parse_keys(text: str) -> list[ApiKey]:
    """The keys in such a text. Anything in it that is not known for certain is a `ValueError`."""
    try:
        whole = json.loads(text)
    except RecursionError as error:
        raise ValueError("too deep") from error
    records = whole.get("keys") if isinstance(whole, dict) and len(whole) == 1 else None
    if not isinstance(records, list):
        raise ValueError("not an object with a list of `keys`")  # noqa: TRY004
    keys = [_key(record) for record in records]
    if len({key.id for key in keys}) < len(keys) or len({key.name for key in keys}) < len(keys):
        raise ValueError("two keys with the same id or name")
    return keys


def _record(key: ApiKey) -> dict[str, object]:
    return {
        "id": key.id,
        "name": key.name,
        "profile": key.profile,
        "scopes": [scope for scope in SCOPES if scope in key.scopes],
        "all_profiles": key.all_profiles,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "per_minute": key.per_minute,
        "sha256": key.digest.hex(),
    }


def _key(record: object) -> ApiKey:
    if not isinstance(record, dict) or set(record) != _FIELDS:
        raise ValueError("a key has other fields than it should")
    name, scopes = record["name"], record["scopes"]
    created, expires, limit = record["created_at"], record["expires_at"], record["per_minute"]
    fits = (
        _is_text(record["id"], _ID)
        and _is_text(name, _NAME)
        and name != LOCAL_NAME
        and _is_text(record["profile"], PROFILE_NAME)
        and isinstance(scopes, list)
        and scopes != []
        and all(isinstance(scope, str) and scope in SCOPES for scope in scopes)
        and isinstance(record["all_profiles"], bool)
        and _is_moment(created)
        and (expires is None or _is_moment(expires))
        and (limit is None or (type(limit) is int and limit >= 0))
        and _is_text(record["sha256"], _DIGEST)
    )
    if not fits:
        raise ValueError("a key has a field that it cannot have")
    return ApiKey(
        id=record["id"],
        name=name,
        profile=record["profile"],
        scopes=frozenset(scopes),
        all_profiles=record["all_profiles"],
        created_at=float(created),
        expires_at=None if expires is None else float(expires),
        per_minute=limit or None,
        digest=bytes.fromhex(record["sha256"]),
    )


def _is_text(value: object, shape: re.Pattern[str]) -> bool:
    return isinstance(value, str) and shape.fullmatch(value) is not None


def _is_moment(value: object) -> TypeGuard[float]:
    """A time there is a date for; NaN, to which nothing is ever later, is none."""
    return type(value) in (int, float) and 0 <= value <= _LATEST  # type: ignore[operator]
