"""Which profiles there are, which ones a gateway serves, and which one a command works on."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from parley.profiles.profile import (
    DEFAULT_PROFILE,
    FOLDER,
    Profile,
    check_name,
    default_profile,
    named_profile,
)
from parley.protocol import ParleyError

__all__ = [
    "active_profile",
    "archive_folder",
    "find_profile",
    "looks_like_profile",
    "mark_active",
    "marked_active",
    "profiles_to_serve",
    "scan_profiles",
]

_log = logging.getLogger(__name__)

_ACTIVE_FILE: Final = "active_profile"


def find_profile(name: str, environ: Mapping[str, str] = os.environ) -> Profile:
    """The profile of this name; an error that helps when there is none."""
    profile = named_profile(name, environ)
    if profile.is_default or looks_like_profile(profile.home):
        return profile
    from difflib import get_close_matches

    known = [found.name for found in scan_profiles(environ, report=lambda _: None)]
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"make it with: parley profile create {name}"
    raise ParleyError(f"There is no profile `{name}`; {hint}")


def looks_like_profile(home: Path) -> bool:
    """Whether a directory is a profile's home: it holds settings, keys, a soul or a database."""
    profile = Profile("", home)
    marks = (
        profile.config_file,
        profile.env_file,
        profile.soul_file,
        profile.database_file,
    )
    try:
        return any(mark.is_file() for mark in marks)
    except OSError as error:
        raise ParleyError(f"{home} cannot be read ({error.strerror}).") from error


def scan_profiles(
    environ: Mapping[str, str] = os.environ, *, report: Callable[[str], None] = _log.warning
) -> list[Profile]:
    """`default`, then every named profile, sorted; a home with an impossible name is told of."""
    root = default_profile(environ)
    found = [root]
    try:
        folders = sorted(item for item in (root.home / FOLDER).iterdir() if item.is_dir())
    except FileNotFoundError:
        return found
    except OSError as error:
        report(f"{root.home / FOLDER} cannot be read ({error.strerror}).")
        return found
    for folder in folders:
        try:
            if not looks_like_profile(folder):
                continue
            check_name(folder.name)
        except ParleyError as error:
            report(f"{folder} is not served: {error}")
            continue
        if folder.name == DEFAULT_PROFILE:
            report(f"{folder} is not served: `default` lives in {root.home}.")
        else:
            found.append(Profile(folder.name, folder))
    return found


def profiles_to_serve(
    multiplex: bool,
    *,
    only: Sequence[str] = (),
    active: Profile | None = None,
    environ: Mapping[str, str] = os.environ,
    report: Callable[[str], None] = _log.warning,
) -> list[Profile]:
    """The one place that says which (name, home) pairs a gateway serves.

    Off: the active profile alone. On: `default`, then every named one, sorted; `only` narrows it.
    """
    if not multiplex:
        return [active or active_profile(environ)]
    found = scan_profiles(environ, report=report)
    if not only:
        return found
    there = {profile.name for profile in found}
    for name in only:
        if name not in there:
            raise ParleyError(
                f"`gateway.profiles` names `{name}`, and there is no such profile; "
                "`parley profile list` shows them."
            )
    return [profile for profile in found if profile.name in only]


def active_profile(environ: Mapping[str, str] = os.environ) -> Profile:
    """The one `PARLEY_PROFILE` names, else the one `parley profile use` chose, else `default`."""
    named = environ.get("PARLEY_PROFILE", "").strip()
    if named:
        return find_profile(named, environ)
    marked = marked_active(environ) or DEFAULT_PROFILE
    try:
        return find_profile(marked, environ)
    except ParleyError as error:
        raise ParleyError(
            f"The profile `{marked}` that you chose is not there any more: "
            "choose another with `parley profile use default`."
        ) from error


def marked_active(environ: Mapping[str, str] = os.environ) -> str | None:
    """The name that `parley profile use` left, if any."""
    file = default_profile(environ).home / _ACTIVE_FILE
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip() or None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ParleyError(f"{file} cannot be read ({error.strerror}).") from error


def mark_active(name: str, environ: Mapping[str, str] = os.environ) -> None:
    """Commands work on this profile from now on."""
    root = default_profile(environ).home
    file = root / _ACTIVE_FILE
    try:
        if name == DEFAULT_PROFILE:
            file.unlink(missing_ok=True)
            return
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = file.with_name(f"{file.name}.new")
        fresh.write_text(f"{name}\n", encoding="utf-8")
        fresh.replace(file)
    except OSError as error:
        raise ParleyError(f"{file} cannot be written ({error.strerror}).") from error


def archive_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where deleted profiles are kept."""
    return default_profile(environ).home / "archive"
