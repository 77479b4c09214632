"""The environment of child processes: built up from a short list, never cut down from ours.

What is not named here does not pass on, so a secret that nobody thought of stays where it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from parley.config.env_file import read_env_file
from parley.config.redact import Redactor
from parley.config.secrets import is_secret
from parley.profiles import Profile

__all__ = ["base_environment", "child_environment"]

_LOCALE: Final = (
    # By name: `LC_*` is what ssh lets through, and people send tokens along as such.
    *("LANG", "LANGUAGE", "LC_ALL", "LC_ADDRESS", "LC_COLLATE", "LC_CTYPE", "LC_IDENTIFICATION"),
    *("LC_MEASUREMENT", "LC_MESSAGES", "LC_MONETARY", "LC_NAME", "LC_NUMERIC", "LC_PAPER"),
    *("LC_TELEPHONE", "LC_TIME"),
)
_BASE: Final = frozenset(
    {
        *_LOCALE,
        "COMSPEC",
        "DYLD_LIBRARY_PATH",
        "LD_LIBRARY_PATH",
        "PATH",
        "PATHEXT",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "SYSTEMROOT",
        "TEMP",
        "TERM",
        "TMP",
        "TMPDIR",
        "TZ",
        "WINDIR",
    }
)


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What every child may know of a process: where programs are, the language, the time zone."""
    return {name: value for name, value in environ.items() if name in _BASE}


def child_environment(profile: Profile, environ: Mapping[str, str]) -> dict[str, str]:
    """What a child that works for `profile` may know.

    `HOME` holds nothing: a program finds neither the keys of the person who runs us (`~/.ssh`,
    `~/.aws`), nor settings that the agent wrote into its workspace.
    `PARLEY_HOME` and `PARLEY_PROFILE` lead a `parley` that it runs to the same profile.
    """
    return {
        **base_environment(environ),
        **_own_settings(profile),
        "HOME": os.devnull,
        "PARLEY_HOME": str(_root(profile)),
        "PARLEY_PROFILE": profile.name,
    }


def _own_settings(profile: Profile) -> dict[str, str]:
    """What the profile's `.env` says that is no secret, neither by its name nor by its value."""
    values = read_env_file(profile.env_file).values
    redactor = Redactor(value for name, value in values.items() if is_secret(name))
    return {
        name: value
        for name, value in values.items()
        if not is_secret(name) and _can_be_passed(name, value) and redactor.text(value) == value
    }


def _can_be_passed(name: str, value: str) -> bool:
    return name.isascii() and name.isidentifier() and bool(value.strip()) and "\0" not in value


def _root(profile: Profile) -> Path:
    """The home that holds all profiles."""
    return profile.home if profile.is_default else profile.home.parent.parent
