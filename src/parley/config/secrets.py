"""The secrets of one profile: the environment first, then the `.env` in its home.

They are read within the profile's scope only (`profile_scope`): what asks for them while another
profile's work is being done, or nobody's, is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from parley import audit
from parley.config.env import OPTIONAL_ENV_VARS, looks_secret
from parley.config.env_file import EnvFile, read_env_file, write_env_file
from parley.config.files import locked, read_text, replace_text
from parley.config.redact import secret_values
from parley.profiles import Profile, require_scope

__all__ = ["Secrets", "is_secret"]


class Secrets:
    """What a profile may use and nobody may read. Blank is unset.

    `environ` is the process's own, for the profile that the process was started for; a profile
    served beside it has none.
    """

    def __init__(self, profile: Profile, environ: Mapping[str, str] = os.environ) -> None:
        self._profile = profile
        self._environ = environ
        self._read: EnvFile | None = None

    def get(self, name: str) -> str | None:
        require_scope(self._profile)
        value = self._environ.get(name, "").strip() or self._file.values.get(name, "").strip()
        return value or None

    def names(self) -> tuple[str, ...]:
        """The names of all secrets that are set, in order."""
        found = [name for name, value in self._file.values.items() if is_secret(name) and value]
        found += [name for name, value in self._environ.items() if looks_secret(name) and value]
        return tuple(sorted(set(found)))

    def values(self) -> frozenset[str]:
        """Every value that must not be read anywhere, for the redaction."""
        require_scope(self._profile)
        held = {value for name, value in self._file.values.items() if is_secret(name)}
        return frozenset({value for value in held if value.strip()} | secret_values(self._environ))

    def set(self, name: str, value: str) -> None:
        """Write one secret into `.env`, which keeps its comments and its order."""
        with locked(self._profile.home):
            file = read_env_file(self._profile.env_file).with_value(name, value.strip())
            write_env_file(self._profile.env_file, file)
        self._read = file
        audit.record("secret.set", profile=self._profile, name=name)

    def unset(self, name: str) -> bool:
        """Take one secret out of `.env`; False when it was not there."""
        with locked(self._profile.home):
            before = read_env_file(self._profile.env_file)
            file = before.without(name)
            if file != before:
                write_env_file(self._profile.env_file, file)
                audit.record("secret.removed", profile=self._profile, name=name)
        self._read = file
        return file != before

    @contextmanager
    def restored_on_failure(self) -> Iterator[None]:
        """Put `.env` back as it was when what is done inside fails."""
        before = read_text(self._profile.env_file)
        try:
            yield
        except BaseException:
            if before is None:
                self._profile.env_file.unlink(missing_ok=True)
            elif read_text(self._profile.env_file) != before:
                replace_text(self._profile.env_file, before, private=True)
            self._read = None
            raise

    def __repr__(self) -> str:
        return f"Secrets({self._profile.name})"

    @property
    def _file(self) -> EnvFile:
        if self._read is None:
            self._read = read_env_file(self._profile.env_file)
        return self._read


def is_secret(name: str) -> bool:
    """What stands in `.env` is a secret, unless it is known to be something else."""
    if name in OPTIONAL_ENV_VARS:
        return OPTIONAL_ENV_VARS[name]["password"]
    return not name.startswith("PARLEY_") or looks_secret(name)
