"""A profile in one file: a compressed tar with a manifest, and a database copied as it stood."""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import stat
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, cast

from parley.config.errors import shown
from parley.profiles import Profile
from parley.protocol import ParleyError

__all__ = ["FORMAT", "INSIDE", "MANIFEST", "MOST_BYTES", "MOST_FILES", "NEVER", "Packed", "pack"]

MANIFEST: Final = "parley-profile.json"
FORMAT: Final = 1
INSIDE: Final = "home"
MOST_BYTES: Final = 16 * 1024**3
MOST_FILES: Final = 100_000
NEVER: Final = frozenset(
    # What only matters while it is served, what SQLite keeps beside a database, the processes of
    # this machine, and, in the home of the default profile, what is not of that profile. API keys
    # open one profile in one place.
    {"run", "parley.db-wal", "parley.db-shm", "profiles", "archive", "active_profile", "processes"}
    | {"api_keys.json", "api.key"}
)
_DATABASE: Final = "parley.db"
_MAY_BE_LINKS: Final = frozenset({"config.yaml", "SOUL.md", ".env", _DATABASE})
_IN_MEMORY: Final = 4 * 1024**2


@dataclass(slots=True)
class Packed:
    """What went into an archive, and what could not."""

    files: int = 0
    size: int = 0
    links: list[str] = field(default_factory=list)
    """Links are left out: they lead elsewhere."""
    damaged: bool = False
    """The database could not be read and was taken as it is."""


def pack(
    profile: Profile, target: IO[bytes], *, scratch: Path, secrets: bool, logs: bool, copy: bool
) -> Packed:
    """Write the profile into `target`; `scratch` is a private directory with room for a copy.

    A gateway may serve it meanwhile. Files that go while this runs are left out. Of a `copy`,
    beside which the profile lives on, nothing is under way: else both would answer.
    """
    packed = Packed()
    try:
        with tarfile.open(fileobj=target, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
            _add(tar, MANIFEST, io.BytesIO(_manifest(profile, secrets=secrets)), mode=0o600)
            _add_home(tar, profile, packed, _Choice(scratch, secrets, logs, copy))
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        where = getattr(error, "filename", None) or str(profile.home)
        raise ParleyError(f"{shown(Path(os.fsdecode(where)))} cannot be kept ({why}).") from error
    return packed


@dataclass(frozen=True, slots=True)
class _Choice:
    scratch: Path
    secrets: bool
    logs: bool
    copy: bool

    def takes(self, name: str) -> bool:
        """Whether an entry of the home itself is wanted."""
        if name in NEVER or (name == "logs" and not self.logs):
            return False
        if name == "matrix" and self.copy:
            return False  # a device is used in one place: a copy signs in for itself
        # In its home an MCP server keeps what it signed in with, and Matrix its device.
        return self.secrets or not (name.startswith(".env") or name in {"mcp", "matrix"})


def _manifest(profile: Profile, *, secrets: bool) -> bytes:
    from parley import __version__

    record = {
        "format": FORMAT,
        "name": profile.name,
        "parley": __version__,
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "secrets": secrets,
    }
    return json.dumps(record, indent=2).encode() + b"\n"


def _add_home(tar: tarfile.TarFile, profile: Profile, packed: Packed, choice: _Choice) -> None:
    for relative, entry in _walk(profile.home, choice):
        name = f"{INSIDE}/{relative}"
        if entry.is_dir(follow_symlinks=False):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o700, int(time.time())
            tar.addfile(folder)
        elif entry.is_symlink() and relative not in _MAY_BE_LINKS:
            packed.links.append(relative)
            continue
        else:
            content = _content(profile, relative, packed, choice)
            if content is None:
                continue
            with content:
                packed.size += _add(tar, name, content, mode=_mode(entry))
        packed.files += 1
        if packed.files > MOST_FILES or packed.size > MOST_BYTES:
            raise ParleyError(
                f"{shown(profile.home)} holds more than an archive takes ({MOST_FILES:,} files, "
                f"{MOST_BYTES // 1024**3} GiB); move what is large out of its workspace first."
            )


def _walk(home: Path, choice: _Choice) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Every entry below the home with its path in it, a directory before what it holds."""
    ours = choice.scratch.stat()
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(home / folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except FileNotFoundError:
            continue
        for entry in entries:
            if not folder and not choice.takes(entry.name):
                continue
            if entry.inode() == ours.st_ino and entry.name == choice.scratch.name:
                continue  # the archive that is being written
            relative = f"{folder}/{entry.name}" if folder else entry.name
            yield relative, entry
            if entry.is_dir(follow_symlinks=False):
                waiting.append(relative)


def _content(profile: Profile, relative: str, packed: Packed, choice: _Choice) -> IO[bytes] | None:
    """What is in a file now; None for what is no file, or is gone."""
    if relative == _DATABASE:
        copy = _database(profile, choice)
        if copy is not None:
            return copy
        packed.damaged = True
    return _file(profile.home / relative, choice.scratch, follow=relative in _MAY_BE_LINKS)


def _file(path: Path, scratch: Path, *, follow: bool) -> IO[bytes] | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    except OSError:
        if not path.is_file():
            return None
        raise
    with os.fdopen(descriptor, "rb") as source:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        # A copy first: its length is what was read, whoever writes to the file meanwhile.
        copy = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(scratch))  # noqa: SIM115
        shutil.copyfileobj(source, copy, 1024**2)
    return cast("IO[bytes]", copy)


def _database(profile: Profile, choice: _Choice) -> IO[bytes] | None:
    """The database in one piece, also while a gateway writes to it; None when it is damaged."""
    from parley.storage.sqlite.quiet import quieten

    file = choice.scratch / "copy.db"
    uri = f"{profile.database_file.absolute().as_uri()}?mode=ro"
    try:
        with (
            closing(sqlite3.connect(uri, uri=True, timeout=30)) as source,
            closing(sqlite3.connect(file)) as target,
        ):
            source.backup(target)
            if choice.copy:
                quieten(target)
    except sqlite3.OperationalError as error:
        raise ParleyError(
            f"The database {shown(profile.database_file)} cannot be copied ({error})."
        ) from error
    except sqlite3.DatabaseError:
        return None
    content = file.open("rb")
    file.unlink()
    return content


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], *, mode: int) -> int:
    info = tarfile.TarInfo(name)
    info.size = content.seek(0, os.SEEK_END)
    info.mode, info.mtime = mode, int(time.time())
    content.seek(0)
    tar.addfile(info, content)
    return info.size


def _mode(entry: os.DirEntry[str]) -> int:
    try:
        runs = entry.stat().st_mode & 0o100
    except FileNotFoundError:
        runs = 0
    return 0o700 if runs else 0o600
