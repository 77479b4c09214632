"""A profile: an agent's identity, and the directory it lives in."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from parley.protocol import ParleyError

__all__ = [
    "DEFAULT_PROFILE",
    "PROFILE_NAME",
    "RESERVED_NAMES",
    "Profile",
    "check_name",
    "default_profile",
    "named_profile",
]

DEFAULT_PROFILE: Final = "default"
PROFILE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
RESERVED_NAMES: Final = frozenset(
    # `main` is the default profile's name in session keys; the others would read as something else.
    {"main", "all", "none", "any", "parley", "gateway", "profile", "profiles", "archive", "shared"}
)
FOLDER: Final = "profiles"


class Profile(NamedTuple):
    """Who an agent is and where its things are. Travels with every message and turn."""

    name: str
    home: Path

    @property
    def config_file(self) -> Path:
        return self.home / "config.yaml"

    @property
    def env_file(self) -> Path:
        return self.home / ".env"

    @property
    def soul_file(self) -> Path:
        return self.home / "SOUL.md"

    @property
    def database_file(self) -> Path:
        return self.home / "parley.db"

    @property
    def workspace(self) -> Path:
        """Where the agent's files are: tools reach nothing outside it."""
        return self.home / "workspace"

    @property
    def attachments(self) -> Path:
        """Files that came with messages."""
        return self.home / "attachments"

    @property
    def session_files(self) -> Path:
        """Files of one conversation each, out of reach of the others."""
        return self.home / "session-files"

    @property
    def memory(self) -> Path:
        return self.home / "memory"

    @property
    def skills(self) -> Path:
        return self.home / "skills"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def run(self) -> Path:
        """What only matters while a gateway runs: its lock, its socket."""
        return self.home / "run"

    @property
    def is_default(self) -> bool:
        return self.name == DEFAULT_PROFILE


def default_profile(environ: Mapping[str, str] = os.environ) -> Profile:
    """The profile in `PARLEY_HOME`, else in `~/.parley`."""
    configured = environ.get("PARLEY_HOME", "").strip()
    try:
        home = Path(configured or "~/.parley").expanduser()
    except RuntimeError as error:
        raise ParleyError(
            "There is no home directory to keep things in; set PARLEY_HOME to a directory of yours."
        ) from error
    return Profile(DEFAULT_PROFILE, home.absolute())


def check_name(name: str) -> None:
    """Raise unless a profile may be called so."""
    if name == DEFAULT_PROFILE:
        return
    if name in RESERVED_NAMES:
        raise ParleyError(f"No profile can be called `{name}`: that word is taken.")
    if not PROFILE_NAME.fullmatch(name):
        raise ParleyError(
            f"`{name}` cannot be the name of a profile: small letters, digits and `-`, "
            "32 at most, and no `-` at the beginning."
        )


def named_profile(name: str, environ: Mapping[str, str] = os.environ) -> Profile:
    """The profile of this name, whether or not it is there yet."""
    check_name(name)
    root = default_profile(environ)
    return root if name == DEFAULT_PROFILE else Profile(name, root.home / FOLDER / name)
