"""A profile: an agent's identity, and the directory it lives in."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from parley.protocol import ParleyError

__all__ = ["DEFAULT_PROFILE", "Profile", "default_profile"]

DEFAULT_PROFILE = "default"


@dataclass(frozen=True, slots=True)
class Profile:
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
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def run(self) -> Path:
        """What only matters while a gateway runs: its lock, its socket."""
        return self.home / "run"


def default_profile() -> Profile:
    """The profile in `PARLEY_HOME`, else in `~/.parley`."""
    configured = os.environ.get("PARLEY_HOME", "").strip()
    try:
        home = Path(configured or "~/.parley").expanduser()
    except RuntimeError as error:
        raise ParleyError(
            "There is no home directory to keep things in; set PARLEY_HOME to a directory of yours."
        ) from error
    return Profile(DEFAULT_PROFILE, home.absolute())
