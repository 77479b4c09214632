"""Permissions of a home: only its owner may read its secrets, or change what the agent obeys."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from parley.config.errors import shown
from parley.profiles import Profile
from parley.protocol import ParleyError

__all__ = ["PermissionFault", "find_permission_faults", "secure_home"]

_SECRET: Final = (".env", "api.key", "api_keys.json", "parley.db", "chat_history", "matrix")
_OBEYED: Final = ("config.yaml", "SOUL.md", "skills", "profiles", "run", "memory", "mcp")


@dataclass(frozen=True, slots=True)
class PermissionFault:
    """What is wrong with one path. `mode` fixes it; None is not for us to fix."""

    path: Path
    what: str
    fix: str
    mode: int | None = None


def secure_home(profile: Profile) -> list[str]:
    """Fix what is ours to fix, and return what was wrong; raises for what is not."""
    fixed: list[str] = []
    for fault in find_permission_faults(profile):
        if fault.mode is None:
            raise ParleyError(f"{fault.what} Fix it, or set PARLEY_HOME: {fault.fix}")
        with contextlib.suppress(OSError):
            fault.path.chmod(fault.mode)
        # Some file systems have no permissions of their own, and say yes to everything.
        if fault.path.stat().st_mode & 0o022:
            raise ParleyError(
                f"{fault.what} Its permissions cannot be changed: set PARLEY_HOME to a directory "
                "on another file system."
            )
        fixed.append(fault.what)
    return fixed


def find_permission_faults(profile: Profile) -> Iterator[PermissionFault]:
    """All of them, the home's own first. Nothing is changed."""
    homes = [profile.home]
    if not profile.is_default and profile.home.parent.name == "profiles":
        homes.insert(0, profile.home.parent.parent)
    for home in homes:
        yield from _faults_of(home, private=True, is_home=True)
    for name in _SECRET:
        yield from _faults_of(profile.home / name, private=True)
    for name in _OBEYED:
        yield from _faults_of(profile.home / name, private=False)


def _faults_of(path: Path, *, private: bool, is_home: bool = False) -> Iterator[PermissionFault]:
    try:
        link, found = path.lstat(), path.stat()
    except OSError:
        return  # it is not there, or whoever reads it says what is wrong
    us = os.geteuid()
    for owner in (link.st_uid, found.st_uid):
        # Root may change everything in any case; a container mounts secrets that are root's.
        if owner != us and (owner != 0 or is_home):
            yield PermissionFault(
                path,
                f"{shown(path)} belongs to {_user(owner)}, who could change what is in it.",
                f'sudo chown -R "$(id -un)" {shlex.quote(str(path))}',
            )
            return
    if stat.S_ISLNK(link.st_mode) and (folder := _open_folder(path)) is not None:
        yield PermissionFault(
            path,
            f"{shown(path)} leads into {shown(folder)}, where others could replace it.",
            f"chmod go-w {shlex.quote(str(folder))}",
        )
        return
    shared = is_home and _is_shared(path, found)
    kept = 0o7777 if found.st_uid != us else (~0o077 if private and not shared else ~0o022)
    mode = stat.S_IMODE(found.st_mode)
    if mode & kept == mode:
        return
    what = f"Others could {'change' if mode & 0o022 else 'read'} {shown(path)}."
    if shared:
        elsewhere = 'export PARLEY_HOME="$HOME/.parley"'
        yield PermissionFault(path, what, elsewhere)
        return
    fix = f"chmod {mode & kept:o} {shlex.quote(str(path))}"
    yield PermissionFault(path, what, fix, mode & kept)


def _is_shared(home: Path, found: os.stat_result) -> bool:
    """Whether it is a directory with more in it than ours, whose mode is not for us to choose."""
    return bool(found.st_mode & stat.S_ISVTX) or home.resolve() in (Path("/"), Path.home())


def _open_folder(link: Path) -> Path | None:
    """The folder of what a link leads to, when others may put something else there."""
    folder = link.resolve().parent
    found = folder.stat()
    writable = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
    return folder if writable or found.st_uid not in (os.geteuid(), 0) else None


def _user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
