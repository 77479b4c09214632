"""Many real profiles in one home, each full of its own words, and one gateway that serves them."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from parley.cli._host import hosted_gateway, plan_gateway
from parley.config.homes import make_home
from parley.gateway.app import Gateway
from parley.gateway.home import socket_path
from parley.profiles import DEFAULT_PROFILE, Profile
from tests.isolation.canaries import Canary
from tests.isolation.seats import has_webhook, route_of, seats_of
from tests.isolation.spy import TOOL_NAME
from tests.waiting import until

__all__ = ["Family", "known_files"]


@dataclass(frozen=True, slots=True)
class Family:
    """`default` and its siblings. `make` writes their homes, `serve` serves them all."""

    root: Path
    names: tuple[str, ...]
    each: int

    @classmethod
    def of(cls, root: Path, profiles: int, each: int) -> Family:
        return cls(root, (DEFAULT_PROFILE, *(f"p{n:02}" for n in range(1, profiles))), each)

    @property
    def profiles(self) -> tuple[Profile, ...]:
        return tuple(self.profile(name) for name in self.names)

    def profile(self, name: str) -> Profile:
        return Profile(
            name, self.root if name == DEFAULT_PROFILE else self.root / "profiles" / name
        )

    def neighbour(self, name: str, distance: int = 1) -> str:
        return self.names[(self.names.index(name) + distance) % len(self.names)]

    def key_of(self, name: str) -> Canary:
        """What a profile shows the model's server: for the default one, the shell's goes first."""
        return Canary(name, "shellkey" if name == DEFAULT_PROFILE else "key")

    def told(self, name: str) -> set[Canary]:
        """What the model of this profile is told in every session."""
        model = "shellmodel" if name == DEFAULT_PROFILE else "model"
        kinds = ("soul", "file", "nickname", model)
        # A child process knows what `.env` says, whatever the shell says above it.
        return {Canary(name, kind) for kind in (*kinds, "model")}

    def shell(self) -> dict[str, str]:
        """The environment that the gateway is started with; all of it is the default profile's."""
        return {
            "PARLEY_HOME": str(self.root),
            "PARLEY_MODEL_NAME": Canary(DEFAULT_PROFILE, "shellmodel").word,
            "SCRIPTED_API_KEY": Canary(DEFAULT_PROFILE, "shellkey").word,
            "OPENAI_API_KEY": Canary(DEFAULT_PROFILE, "shelltoken").word,
            "THEME": Canary(DEFAULT_PROFILE, "shell").word,
        }

    # ── their homes ──

    def make(self, *, model_url: str, answers_url: str) -> None:
        """Write all that a profile has; `answers_url` is followed by the account's name."""
        (self.root / "profiles").mkdir(parents=True)
        for index, profile in enumerate(self.profiles):
            settings = self._settings(index, model_url, answers_url)
            if profile.is_default:
                settings["gateway"] = self._house()
            _make_home(profile, json.dumps(settings))
            profile.env_file.touch(mode=0o600)
            profile.env_file.write_text(_env_file(profile.name, webhook=has_webhook(index)))
            self._place_links(profile)

    def _settings(self, index: int, model_url: str, answers_url: str) -> dict[str, Any]:
        callback = f"{answers_url}/{self.names[index]}"
        return {
            "model": {"provider": "scripted"},
            "providers": {"scripted": {"base_url": model_url, "model": "unset"}},
            "agent": {"tools": ["read_file", TOOL_NAME]},
            "memory": {"idle_check_interval": 0.2, "learn": False},
            "surfaces": {"webhook": {"enabled": has_webhook(index), "callback_url": callback}},
        }

    def _house(self) -> dict[str, Any]:
        routes = {
            json.dumps(route)
            for seat in seats_of(self.names, self.each)
            if (route := route_of(seat)) is not None
        }
        return {
            "multiplex_profiles": True,
            "port": 0,
            "drain_seconds": 5,
            "routes": [json.loads(route) for route in sorted(routes)],
        }

    def _place_links(self, profile: Profile) -> None:
        """Links in the workspace that lead to another profile's home."""
        other = self.profile(self.neighbour(profile.name))
        (profile.workspace / "door").symlink_to(other.home)
        (profile.workspace / "soul.md").symlink_to(other.soul_file)
        (profile.workspace / "up").symlink_to(Path("..") / "..")

    # ── served ──

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Gateway]:
        """As `parley gateway run` does, in a process with `shell` as its environment."""
        with _kept_logging(), _environment(self.shell()):
            async with hosted_gateway(
                plan_gateway(self.profile(DEFAULT_PROFILE), alone=False)
            ) as g:
                # On a busy machine some are served a little later than the gateway starts.
                await until(lambda: all(socket_path(p).exists() for p in self.profiles))
                yield g


def _make_home(profile: Profile, settings: str) -> None:
    soul = f"You are {profile.name}. {Canary(profile.name, 'soul').word}\n"
    if profile.is_default:
        for folder in (profile.workspace, profile.memory, profile.skills):
            folder.mkdir()
        profile.soul_file.write_text(soul)
        profile.config_file.write_text(settings)
    else:
        make_home(profile.home, soul=soul, settings=settings)
    (profile.workspace / "notes.txt").write_text(Canary(profile.name, "file").word)
    (profile.memory / "MEMORY.md").write_text(Canary(profile.name, "memory").word)
    (profile.skills / "SKILL.md").write_text(Canary(profile.name, "skill").word)


def _env_file(name: str, *, webhook: bool) -> str:
    lines = {
        "SCRIPTED_API_KEY": "key",
        "DATABASE_PASSWORD": "password",
        "PARLEY_NICKNAME": "nickname",
        "PARLEY_MODEL_NAME": "model",
    }
    if webhook:
        lines["WEBHOOK_TOKEN"] = "token"
    return "".join(f"{line}={Canary(name, kind).word}\n" for line, kind in lines.items())


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("PARLEY_", "GATEWAY_"))]:
            patch.delenv(name)
        for name, value in values.items():
            patch.setenv(name, value)
        yield


@contextmanager
def _kept_logging() -> Iterator[None]:
    """A gateway takes over this process's log; afterwards it is as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    try:
        yield
    finally:
        for handler in list(root.handlers):
            root.removeHandler(handler)
            if handler not in handlers:
                handler.close()
        for handler in handlers:
            root.addHandler(handler)
        root.setLevel(level)
        logging.captureWarnings(False)
        sys.excepthook, threading.excepthook, sys.unraisablehook = hooks


def known_files(home: Path, *, without: Sequence[str] = ()) -> Iterator[Path]:
    """Every ordinary file below a home; links are not followed."""
    for folder, folders, files in os.walk(home):
        if Path(folder) == home:
            folders[:] = [name for name in folders if name not in without]
        for name in files:
            file = Path(folder) / name
            if file.is_file() and not file.is_symlink():
                yield file
