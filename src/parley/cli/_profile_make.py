"""Make a profile: new, as a copy of another, or out of an archive. Nothing half-made stays."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from parley import audit
from parley.cli._plain import one_line
from parley.config.clones import own_keys, own_settings
from parley.config.edit import HEAD
from parley.config.env_file import EnvFile, read_env_file, write_env_file
from parley.config.errors import ConfigError, shown
from parley.config.files import read_text
from parley.config.homes import copy_file, copy_tree, make_home, new_profile, settle, staging
from parley.config.load import load_settings
from parley.profiles import DEFAULT_PROFILE, Profile
from parley.protocol import ParleyError

__all__ = ["Copied", "Imported", "bring_in", "clone", "create"]


class Copied(NamedTuple):
    """A copy of a profile, and what was not copied."""

    profile: Profile
    keys: tuple[str, ...]
    settings: tuple[str, ...]


class Imported(NamedTuple):
    """A profile out of an archive; `faults` say what is wrong with it, `left_out` what is not."""

    profile: Profile
    settings: tuple[str, ...]
    secrets: bool
    faults: tuple[str, ...]
    left_out: tuple[str, ...]


def create(name: str, *, soul: str | None) -> Profile:
    """A new profile with a soul of its own and every setting at its default."""
    profile = new_profile(name)
    with _made(profile) as home:
        make_home(home, soul=_soul(name, soul), settings=HEAD)
    audit.record("profile.created", profile=profile)
    return profile


def clone(name: str, source: Profile, *, soul: str | None) -> Copied:
    """A new profile that is set up as `source` is, without its memory and what was said to it."""
    profile = new_profile(name)
    settings, left_settings = own_settings(
        read_text(source.config_file) or HEAD, source.config_file
    )
    keys, left_keys = own_keys(read_env_file(source.env_file), _provider_keys(source))
    with _made(profile) as home:
        copy = Profile(name, home)
        make_home(home, soul=_soul(name, soul), settings=settings)
        if soul is None and source.soul_file.is_file():
            copy_file(source.soul_file, copy.soul_file)
        if keys != EnvFile():
            write_env_file(copy.env_file, keys)
        if source.skills.is_dir():
            copy_tree(source.skills, copy.skills)
    audit.record("profile.cloned", profile=profile, source=source.name)
    return Copied(profile, left_keys, left_settings)


def bring_in(
    file: Path, *, name: str | None, trust: bool, most_gigabytes: int | None = None
) -> Imported:
    """The profile that an archive holds, under its own name or another.

    Unless it is trusted, what would run or open waits in its quarantine. All of this is done
    before it has its name: a gateway sees it as it is in the end, or not at all.
    """
    from parley.storage.unpack import UnpackLimits, open_archive

    limits = None if most_gigabytes is None else UnpackLimits.raised(most_gigabytes)
    with open_archive(file, limits) as archive:
        profile = new_profile(name or _name_inside(file, archive.name))
        with _made(profile) as home:
            archive.unpack(home)
            staged = Profile(profile.name, home)
            if trust and profile.name != archive.name:
                _quieten(staged)
            settings, fault = _tidied(staged)
            faults: tuple[str, ...] = () if fault is None else (fault,)
            left_out: tuple[str, ...] = ()
            if not trust:
                faults, left_out = _held_back(staged, profile)
    audit.record(
        "profile.imported", profile=profile, file=str(file), named=archive.name, trusted=trust
    )
    return Imported(profile, settings, archive.secrets, faults, left_out)


def _held_back(staged: Profile, final: Profile) -> tuple[tuple[str, ...], tuple[str, ...]]:
    from parley.storage.quarantine import quarantine_home

    report = quarantine_home(staged, final=final.home)
    staged.skills.mkdir(mode=0o700, exist_ok=True)
    left_out = []
    if report.grants:
        left_out.append(f"{len(report.grants)} grant{'s' * (len(report.grants) > 1)}")
    if report.people:
        left_out.append(f"{report.people} setting{'s' * (report.people > 1)} of people")
    return tuple(report.faults), tuple(left_out)


def _quieten(profile: Profile) -> None:
    """Under another name it is another agent: it does not go on with what the first was doing."""
    import sqlite3

    from parley.storage.sqlite.quiet import quieten

    if not profile.database_file.exists():
        return
    with (
        contextlib.suppress(sqlite3.DatabaseError),  # a damaged one is told of when it is served
        contextlib.closing(sqlite3.connect(profile.database_file)) as db,
    ):
        quieten(db)


@contextmanager
def _made(profile: Profile) -> Iterator[Path]:
    """Where to make the home; afterwards it is put in its place."""
    with staging(profile.home.parent) as stage:
        home = stage / "home"
        try:
            yield home
        except OSError as error:
            raise ParleyError(
                f"{shown(profile.home)} cannot be made ({error.strerror or error})."
            ) from error
        settle(home, profile)


def _soul(name: str, given: str | None) -> str:
    if given is None:
        return f"You are a helpful AI assistant named {name.replace('-', ' ').title()}.\n"
    if not given.strip():
        raise ParleyError("A soul needs some words; leave `--soul` out for the usual ones.")
    return given.strip() + "\n"


def _provider_keys(source: Profile) -> set[str]:
    """The variables that the providers of a profile are asked with, whatever they are called."""
    from parley.agent.providers import key_variable, provider_names

    settings = load_settings(source, {})
    return {key_variable(settings, provider) for provider in provider_names(settings)}


def _name_inside(file: Path, name: str) -> str:
    if name == DEFAULT_PROFILE:
        raise ParleyError(
            f"{shown(file)} holds a profile that was called `default`; give it a name: "
            f"parley profile import {one_line(str(file), longest=200)} --name NAME"
        )
    return one_line(name, longest=60)


def _tidied(profile: Profile) -> tuple[tuple[str, ...], str | None]:
    """Give an unpacked home what every home has; what was left out of its settings, or a fault."""
    for folder in (profile.workspace, profile.memory, profile.skills):
        folder.mkdir(mode=0o700, exist_ok=True)
    for private in (profile.env_file, profile.database_file):
        if private.is_file():
            private.chmod(0o600)
    try:
        text, left_out = own_settings(read_text(profile.config_file) or HEAD, profile.config_file)
        profile.config_file.touch(mode=0o600)
        profile.config_file.write_text(text, encoding="utf-8")
        load_settings(profile, {})
    except ConfigError:
        # It is kept as it was; whose file has the fault is told when it is in its place.
        return (), f"its settings have a fault: parley config check --profile {profile.name}"
    return left_out, None
