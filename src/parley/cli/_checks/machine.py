"""Python, SQLite, the home, its disk and its log."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import sys
from pathlib import Path

from parley.cli._checks.finding import Finding, fault, note, ok, quoted
from parley.config.errors import shown
from parley.config.home_permissions import find_permission_faults
from parley.profiles import Profile

__all__ = ["check_disk", "check_home", "check_log", "check_programs"]

_OLDEST_PYTHON = (3, 11)
_OLDEST_SQLITE = (3, 35, 0)
_MEGABYTE = 1_000_000
_FULL = 64 * _MEGABYTE
_NEARLY_FULL = 512 * _MEGABYTE


def check_programs() -> list[Finding]:
    """The versions that Parley needs."""
    python = ".".join(map(str, sys.version_info[:3]))
    found: list[Finding] = []
    if sys.version_info[:2] < _OLDEST_PYTHON:
        found.append(
            fault("python", f"Python {python} is too old: 3.11 is needed.", "./scripts/run")
        )
    else:
        found.append(ok("python", f"Python {python}"))
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        what = f"this Python brings SQLite {sqlite3.sqlite_version}; 3.35 is needed."
        found.append(
            fault("sqlite", what, "python3 -c 'import sqlite3; print(sqlite3.sqlite_version)'")
        )
    else:
        found.append(ok("sqlite", f"SQLite {sqlite3.sqlite_version}"))
    return found


def check_home(profile: Profile) -> list[Finding]:
    """That the home is there, ours and private."""
    home = profile.home
    try:
        found = home.stat()
    except FileNotFoundError:
        ground = _nearest(home)
        if ground.is_dir() and os.access(ground, os.W_OK | os.X_OK):
            return [note("home", f"{shown(home)} is made at the first start.", "parley setup")]
        return [fault("home", f"{shown(home)} cannot be made in {shown(ground)}.", _elsewhere())]
    except OSError as error:
        return [fault("home", f"{shown(home)} cannot be used: {_reason(error)}.", _elsewhere())]
    if not stat.S_ISDIR(found.st_mode):
        mend = f"mv {quoted(home)} {quoted(home.with_name(home.name + '.old'))}"
        return [fault("home", f"{shown(home)} is a file, but it must be a directory.", mend)]
    if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        mend = f"chmod u+rwx {quoted(home)}"
        if found.st_uid != os.geteuid():
            mend = f'sudo chown -R "$(id -un)" {quoted(home)}'
        return [fault("home", f"{shown(home)} cannot be read and written by you.", mend)]
    inner = [
        fault("home", each.what, each.fix)
        for each in find_permission_faults(profile)
        # Those of the home are told below, those of `.env` where it is read.
        if each.mode is None or each.path not in (home, profile.env_file)
    ]
    if inner:
        return inner
    private = f"chmod 700 {quoted(home)}"
    if found.st_mode & 0o022:
        return [fault("home", f"others may change what is in {shown(home)}.", private)]
    if found.st_mode & 0o055:
        return [note("home", f"others may look into {shown(home)}.", private)]
    return [ok("home", f"{shown(home)} is writable and private.")]


def _elsewhere() -> str:
    """A home that can be made, wherever this one cannot."""
    for place, named in (
        (Path.home() / "parley-home", '"$HOME/parley-home"'),
        (Path("/var/tmp") / f"parley-{os.getuid()}", None),  # noqa: S108 - made private by Parley
    ):
        ground = _nearest(place)
        if ground.is_dir() and os.access(ground, os.W_OK | os.X_OK):
            return f"export PARLEY_HOME={named or quoted(place)}"
    return "export PARLEY_HOME=/path/to/a/directory/of/yours"


def check_disk(profile: Profile) -> list[Finding]:
    """That there is room where the home is."""
    free = shutil.disk_usage(_nearest(profile.home)).free
    room = f"{free / 1000 / _MEGABYTE:.1f} GB" if free >= 1000 * _MEGABYTE else _megabytes(free)
    mend = f"du -ah {quoted(profile.home)} | sort -h | tail -n 15"
    if free < _FULL:
        return [fault("disk", f"only {room} are free for {shown(profile.home)}.", mend)]
    if free < _NEARLY_FULL:
        return [note("disk", f"only {room} are free for {shown(profile.home)}.", mend)]
    return [ok("disk", f"{room} are free.")]


def check_log(profile: Profile) -> list[Finding]:
    """That the log can be written."""
    from parley.config.logs import LOG_NAME

    folder, file = profile.logs, profile.logs / LOG_NAME
    if not folder.exists():
        if folder.is_symlink():
            mend = f"rm {quoted(folder)}"
            return [fault("log", f"{shown(folder)} is a link that leads nowhere.", mend)]
        return [ok("log", f"{shown(file)} is made at the first start.")]
    if not folder.is_dir():
        mend = f"mv {quoted(folder)} {quoted(folder.with_name('logs.old'))}"
        return [fault("log", f"{shown(folder)} is a file, but it must be a directory.", mend)]
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        mend = f"chmod u+rwx {quoted(folder)}"
        return [fault("log", f"{shown(folder)} cannot be written by you.", mend)]
    if file.exists() and not file.is_file():
        mend = f"mv {quoted(file)} {quoted(file.with_name(LOG_NAME + '.old'))}"
        return [fault("log", f"{shown(file)} is not an ordinary file.", mend)]
    if file.exists() and not os.access(file, os.R_OK | os.W_OK):
        mend = f"chmod 600 {quoted(file)}"
        return [fault("log", f"{shown(file)} cannot be written by you.", mend)]
    return [ok("log", f"{shown(file)} can be written.")]


def _nearest(path: Path) -> Path:
    """The path itself, or the closest directory above it that is there."""
    for candidate in (path, *path.parents):
        if os.path.lexists(candidate):
            return candidate
    return Path(path.anchor)


def _megabytes(size: int) -> str:
    return f"{size / _MEGABYTE:,.0f} MB"


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
