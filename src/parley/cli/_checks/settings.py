"""`config.yaml`, `.env` and what the environment says above them."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from parley.cli._checks.finding import Finding, edit, fault, ok, quoted
from parley.config.errors import ConfigError, Fault, shown
from parley.profiles import Profile

if TYPE_CHECKING:
    from parley.config.settings import Settings

__all__ = ["Ground", "read_ground"]


@dataclass(frozen=True, slots=True)
class Ground:
    """What the other checks stand on. `settings` is None while they cannot be used."""

    profile: Profile
    settings: Settings | None = None
    env_values: Mapping[str, str] = field(default_factory=dict, repr=False)

    def secret(self, name: str) -> str | None:
        """As the gateway would find it: the environment first, then `.env`."""
        value = os.environ.get(name, "").strip() or self.env_values.get(name, "").strip()
        return value or None


class _WithoutEnv(Profile):
    """The same profile, with no `.env`."""

    @property
    def env_file(self) -> Path:
        return self.run / "no.env"


def read_ground(profile: Profile) -> tuple[Ground, list[Finding]]:
    """Read `.env` and the settings; every fault of either is a finding."""
    from parley.config.load import load_settings

    values, env_findings = _read_env(profile.env_file)
    found: list[Finding] = []
    settings: Settings | None = None
    try:
        if any(finding.level == "fault" for finding in env_findings):
            # Reading it the usual way would tighten its mode, or fail for what was just found.
            held = {name: value for name, value in os.environ.items() if value.strip()}
            settings = load_settings(_WithoutEnv(profile.name, profile.home), {**values, **held})
        else:
            settings = load_settings(profile)
    except ConfigError as error:
        found += [_config_fault(profile, one, values) for one in error.faults]
    if not found:
        there = profile.config_file.exists()
        what = "is fine." if there else "is not there: every setting has its default."
        found.append(ok("config", f"{shown(profile.config_file)} {what}"))
    return Ground(profile, settings, values), [*found, *env_findings]


def _config_fault(profile: Profile, found: Fault, env_values: Mapping[str, str]) -> Finding:
    from parley.config.schema import env_name

    file = profile.config_file
    if found.line is not None:
        return fault("config", found.sentence, edit(file, found.line))
    variable = env_name(found.setting.split(".")) if found.setting else ""
    if variable and os.environ.get(variable, "").strip():
        return fault("config", found.sentence, f"unset {variable}")
    if variable and env_values.get(variable, "").strip():
        return fault("config", found.sentence, edit(profile.env_file))
    return fault("config", found.sentence, _mend_file(file))


def _read_env(file: Path) -> tuple[dict[str, str], list[Finding]]:
    from parley.config.env_file import read_env_file
    from parley.config.files import read_text

    try:
        text = read_text(file)
        if text is None:
            return {}, [ok("env", f"{shown(file)} is not there: keys come from the environment.")]
        mode = stat.S_IMODE(file.stat().st_mode)
        if mode & 0o077:
            what = f"{shown(file)} holds secrets, and others may read it (mode {mode:03o})."
            return _values(text), [fault("env", what, f"chmod 600 {quoted(file)}")]
        values = read_env_file(file).values
    except ConfigError as error:
        return {}, [
            fault("env", one.sentence, edit(file, one.line) if one.line else _mend_file(file))
            for one in error.faults
        ]
    held = "1 variable" if len(values) == 1 else f"{len(values)} variables"
    return values, [ok("env", f"{shown(file)} is private and holds {held}.")]


def _values(text: str) -> dict[str, str]:
    """The variables of a `.env`, read without touching the file."""
    from dotenv.parser import parse_stream

    bindings = parse_stream(io.StringIO(text, newline=""))
    return {one.key: one.value for one in bindings if one.key and one.value is not None}


def _mend_file(file: Path) -> str:
    """For a file that cannot even be read as text."""
    if file.is_file() and not os.access(file, os.R_OK):
        return f"chmod 600 {quoted(file)}"
    if file.exists() and not file.is_file():
        return f"mv {quoted(file)} {quoted(file.with_name(file.name + '.old'))}"
    return edit(file)
