"""The keys that programs call a profile's API with: made, listed, revoked, and looked up.

They are in `<home>/api_keys.json`, where only a hash of each is kept.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import string
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from parley import audit
from parley.config.api_key_text import (
    LOCAL_NAME,
    SCOPES,
    SECRET_LENGTH,
    ApiKey,
    check_expiry,
    check_name,
    check_scopes,
    digest_of,
    is_local_token,
    keys_text,
    local_token,
    parse_keys,
    token_of,
    whose_token,
)
from parley.config.errors import ConfigError, shown
from parley.config.files import locked, read_text, replace_text
from parley.profiles import Profile

__all__ = ["SCOPES", "ApiKey", "KeyFile", "KeyRing"]

_log = logging.getLogger(__name__)

_MOST_KEYS: Final = 200
_LETTERS: Final = string.ascii_letters + string.digits
_NOBODYS: Final = secrets.token_bytes(32)
# In nanoseconds: a file that changed twice within a tick of the clock may look as if it had not.
_TICK: Final = 50_000_000
_MOMENT: Final = 0.25


class KeyFile:
    """The keys of one profile."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self.path = profile.home / "api_keys.json"

    def keys(self) -> list[ApiKey]:
        """Every key, the oldest first. Raises when the file cannot be used."""
        text = read_text(self.path)
        try:
            return [] if text is None else parse_keys(text)
        except ValueError as error:
            raise ConfigError(
                f"{shown(self.path)} is damaged, and no key in it works; take the file away and "
                "make new keys with: parley keys create"
            ) from error

    def create(
        self,
        name: str | None,
        scopes: Collection[str],
        *,
        all_profiles: bool = False,
        expires_at: float | None = None,
        per_minute: int | None = None,
    ) -> tuple[ApiKey, str]:
        """A new key, and its token, which is not to be had again. Unnamed it is `key-<id>`."""
        now = time.time()
        check_scopes(scopes)
        check_expiry(expires_at, now)
        if all_profiles and not self._profile.is_default:
            raise ConfigError(
                "Only a key of the default profile can be for all profiles; make it with: "
                "parley keys create --all-profiles --profile default"
            )
        with locked(self._profile.home):
            before = self.keys()
            if len(before) >= _MOST_KEYS:
                raise ConfigError(
                    f"There are {_MOST_KEYS} keys, and no more can be made; revoke one that is "
                    "not used any more: parley keys list"
                )
            key_id = _fresh_id({key.id for key in before})
            name = f"key-{key_id}" if name is None else name
            check_name(name, {key.name for key in before})
            token = token_of(self._profile.name, key_id, _secret())
            key = ApiKey(
                id=key_id,
                name=name,
                profile=self._profile.name,
                scopes=frozenset(scopes),
                all_profiles=all_profiles,
                created_at=now,
                expires_at=expires_at,
                per_minute=per_minute or None,
                digest=digest_of(token),
            )
            replace_text(self.path, keys_text([*before, key]), private=True)
        audit.record(
            "key.created",
            profile=self._profile,
            id=key.id,
            name=key.name,
            scopes=sorted(key.scopes),
            all_profiles=key.all_profiles,
            expires_at=key.expires_at,
        )
        return key, token

    def revoke(self, id_or_name: str) -> ApiKey | None:
        """Take a key away, for every process and at once; None when there is none such."""
        with locked(self._profile.home):
            before = self.keys()
            gone = next((key for key in before if id_or_name in (key.id, key.name)), None)
            if gone is not None:
                kept = [key for key in before if key is not gone]
                replace_text(self.path, keys_text(kept), private=True)
                audit.record("key.revoked", profile=self._profile, id=gone.id, name=gone.name)
        return gone


class KeyRing:
    """Whose key a token is, for the server; what another process changes counts at once.

    `house` is the profile that the server's home is of: only in its file a key can be for all
    profiles. While there is no key at all, the generated one in `<home>/api.key` works, if
    `allow_local` says that nobody but this machine reaches the server.
    """

    def __init__(
        self,
        profiles: Callable[[], Sequence[Profile]],
        house: Profile,
        *,
        allow_local: bool = False,
    ) -> None:
        self._profiles = profiles
        self._house = house
        self._allow_local = allow_local
        self._local_file = house.home / "api.key"
        self._files: dict[str, _LiveFile] = {}
        self._found_local: tuple[float, ApiKey | None] | None = None

    def find(self, token: str, now: float) -> ApiKey | None:
        """The key whose token this is, if it may be used now."""
        key = self._candidate(token)
        # Compared in any case: the time it takes does not tell whether there is such a key.
        same = hmac.compare_digest(digest_of(token), _NOBODYS if key is None else key.digest)
        return key if key is not None and same and not key.expired(now) else None

    def has_keys(self) -> bool:
        """Whether there is any key; an expired one counts, and so does a file that is damaged."""
        held = (self._held(profile) for profile in (self._house, *self._profiles()))
        return any(keys is None or keys for keys in held)

    def local_key(self) -> str:
        """The key of this machine; one is made when there is none, or none that is whole."""
        found = self._local()
        if found is not None:
            return found
        with locked(self._house.home):
            found = self._local()
            if found is None:
                found = local_token(_secret())
                replace_text(self._local_file, found + "\n", private=True)
                audit.record("key.local_made", profile=self._house)
        return found

    def _candidate(self, token: str) -> ApiKey | None:
        """The key that a token claims to be."""
        named = whose_token(token)
        if named is None:
            return self._local_candidate() if is_local_token(token) else None
        name, key_id = named
        profile = self._served(name)
        keys = None if profile is None else self._held(profile)
        key = None if keys is None else keys.get(key_id)
        if key is None or key.profile != name:
            return None
        # A file that is not the house's cannot raise its keys above its own profile.
        return None if key.all_profiles and name != self._house.name else key

    def _local_candidate(self) -> ApiKey | None:
        """The key of this machine, as it was found a moment ago.

        Looked for anew each time it would cost as many looks at the disk as there are profiles.
        """
        now = time.monotonic()
        found = self._found_local
        if found is None or not found[0] <= now < found[0] + _MOMENT:
            found = self._found_local = (now, self._look_for_local())
        return found[1]

    def _look_for_local(self) -> ApiKey | None:
        if not self._allow_local or self.has_keys():
            return None
        try:
            token = self._local()
        except ConfigError:
            return None
        if token is None:
            return None
        return ApiKey(
            id=LOCAL_NAME,
            name=LOCAL_NAME,
            profile=self._house.name,
            scopes=frozenset(SCOPES),
            all_profiles=True,
            created_at=0.0,
            expires_at=None,
            per_minute=None,
            digest=digest_of(token),
        )

    def _local(self) -> str | None:
        token = (read_text(self._local_file, lossy=True) or "").strip()
        return token if is_local_token(token) else None

    def _served(self, name: str) -> Profile | None:
        if name == self._house.name:
            return self._house
        return next((profile for profile in self._profiles() if profile.name == name), None)

    def _held(self, profile: Profile) -> Mapping[str, ApiKey] | None:
        file = self._files.get(profile.name)
        if file is None:
            file = self._files[profile.name] = _LiveFile(KeyFile(profile))
        return file.keys()


class _LiveFile:
    """A file's keys by their ids, as they are now; it is read again only when it has changed."""

    def __init__(self, file: KeyFile) -> None:
        self._file = file
        self._stamp: tuple[int, int, int] | None = None
        self._read: Mapping[str, ApiKey] | None = None
        self._told = False

    def keys(self) -> Mapping[str, ApiKey] | None:
        """None when the file cannot be used: then nobody is let in."""
        try:
            found = self._file.path.stat()
        except FileNotFoundError:
            self._stamp = None
            if not self._file.path.is_symlink():
                return {}
            self._tell(f"{shown(self._file.path)} leads nowhere.")
            return None
        except OSError as error:
            self._stamp = None
            self._tell(f"{shown(self._file.path)} cannot be read ({error.strerror}).")
            return None
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if stamp != self._stamp:
            self._read = self._read_now()
            settled = time.time_ns() - found.st_mtime_ns > _TICK
            # What could not be read is tried again: it may not have been the file's fault.
            self._stamp = stamp if settled and self._read is not None else None
        return self._read

    def _read_now(self) -> Mapping[str, ApiKey] | None:
        try:
            found = self._file.keys()
        except ConfigError as error:
            self._tell(str(error))
            return None
        self._told = False
        return {key.id: key for key in found}

    def _tell(self, why: str) -> None:
        if not self._told:
            self._told = True
            _log.error("the API keys of a profile are refused: %s", why)


def _fresh_id(taken: Collection[str]) -> str:
    while (made := secrets.token_hex(4)) in taken:
        pass
    return made


def _secret() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(SECRET_LENGTH))
