"""How a server is reached: what is started with which environment, or which address with what."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from parley.config.errors import shown
from parley.config.hands import McpServerSettings
from parley.config.redact import Redactor
from parley.profiles import Profile
from parley.protocol import ParleyError

__all__ = ["Plan", "make_plan", "plain_name", "plan_fault", "secrets_of"]

_UNPLAIN: Final = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is needed to reach one server. `url` is "" for one that is started by us.

    `home` is its own: a program that finds its settings in the agent's workspace would do what
    the agent writes there, outside of any sandbox.
    """

    name: str
    home: Path
    log_file: Path
    command: tuple[str, ...] = ()
    url: str = field(default="", repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    redactor: Redactor = field(default_factory=Redactor, repr=False)

    @property
    def address(self) -> str:
        """The address without anything that may be a secret."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}"


def make_plan(
    profile: Profile,
    name: str,
    settings: McpServerSettings,
    *,
    secrets: Mapping[str, str],
    environment: Mapping[str, str],
) -> Plan:
    """Raises `ParleyError` with a sentence when the server cannot be reached as it is set up."""
    wrong = plan_fault(settings, secrets)
    if wrong is not None:
        raise ParleyError(wrong)
    plain = plain_name(name)
    home = profile.home / "mcp" / plain
    log_file = profile.logs / f"mcp-{plain}.log"
    redactor = Redactor(secrets.values())
    if settings.url:
        token = secrets[settings.token_env] if settings.token_env else None
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return Plan(name, home, log_file, url=settings.url, headers=headers, redactor=redactor)
    own = {"HOME": str(home), **settings.env}
    given = {**environment, **own, **{one: secrets[one] for one in settings.secrets}}
    program = _program(settings.command or "", given)
    return Plan(
        name, home, log_file, (program, *settings.args), environment=given, redactor=redactor
    )


def plan_fault(settings: McpServerSettings, secrets: Mapping[str, str]) -> str | None:
    """What is wrong with the settings of a server, in a sentence; None when nothing is."""
    command, url = (settings.command or "").strip(), (settings.url or "").strip()
    if bool(command) == bool(url):
        return "It needs either `command` or `url` in config.yaml, and not both."
    if url and not _is_address(url):
        return "Its `url` must begin with http:// or https:// and name a host."
    if settings.token_env and command:
        return "`token_env` is for a `url`; name it under `secrets` for a `command`."
    parts = (command, *settings.args, *settings.env.values())
    if any("\0" in part for part in parts):
        return "Its settings hold a NUL character; take it out."
    wanted = [*settings.secrets, *([settings.token_env] if settings.token_env else [])]
    for one in wanted:
        if one not in secrets:
            return f"{one} is not set: `parley config set {one}`."
    return None


def secrets_of(settings: McpServerSettings, secret: Callable[[str], str | None]) -> dict[str, str]:
    """The secrets that this server is given, those that are set."""
    wanted = {*settings.secrets, *([settings.token_env] if settings.token_env else [])}
    found = {name: secret(name) for name in sorted(wanted)}
    return {name: value for name, value in found.items() if value}


def plain_name(name: str) -> str:
    """The name as it may stand in the name of a file or tool."""
    return _UNPLAIN.sub("-", name)[:40] or "-"


def _program(command: str, environment: Mapping[str, str]) -> str:
    command = str(Path(command).expanduser()) if command.startswith("~") else command
    found = shutil.which(command, path=environment.get("PATH", os.defpath))
    if found is None:
        raise ParleyError(
            f"There is no program {shown(Path(command))}: install it, or name its path."
        )
    return found


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
