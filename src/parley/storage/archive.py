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
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, cast

from parley.config.errors import shown
from parley.config.load import load_settings
from parley.config.tree import TreeEntry, open_top, walk_tree
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
    # open one profile in one place, the audit log tells of one machine, and what an import held
    # back is for its owner there to confirm.
    {"run", "parley.db-wal", "parley.db-shm", "parley.db-journal", "profiles", "archive"}
    | {"active_profile", "processes", "api_keys.json", "api.key", "audit", "quarantine"}
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
    deep: list[str] = field(default_factory=list)
    """Folders that lie too deep are left out as well."""
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
        if name in NEVER or name.startswith("..") or (name == "logs" and not self.logs):
            return False  # with two dots: what a killed process left of `.env`
        if name == "matrix" and self.copy:
            return False  # a device is used in one place: a copy signs in for itself
        # In its home an MCP server keeps what it signed in with, and Matrix its device.
        return self.secrets or not (name.startswith(".") or name in {"mcp", "matrix"})


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
    ours = choice.scratch.stat()
    key = None if choice.secrets else _tls_key(profile)

    def wanted(path: str, status: os.stat_result) -> bool:
        if os.path.samestat(status, ours):
            return False  # the archive that is being written
        if key is not None and os.path.samestat(status, key):
            return False
        return "/" in path or choice.takes(path)

    with open_top(profile.home) as top:
        for entry in walk_tree(top, wanted=wanted, too_deep=packed.deep.append):
            name = f"{INSIDE}/{entry.path}"
            if entry.is_folder:
                folder = tarfile.TarInfo(name)
                folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o700, int(time.time())
                tar.addfile(folder)
            elif entry.is_link and entry.path not in _MAY_BE_LINKS:
                packed.links.append(entry.path)
                continue
            else:
                content = _content(profile, entry, packed, choice)
                if content is None:
                    continue
                with content:
                    packed.size += _add(tar, name, content, mode=entry.mode)
            packed.files += 1
            if packed.files > MOST_FILES or packed.size > MOST_BYTES:
                raise ParleyError(
                    f"{shown(profile.home)} holds more than an archive takes ({MOST_FILES:,} files,"
                    f" {MOST_BYTES // 1024**3} GiB); move what is large out of its workspace first."
                )


def _tls_key(profile: Profile) -> os.stat_result | None:
    """The file that `gateway.tls.key` names, which may lie in the home."""
    try:
        key = load_settings(profile, {}).gateway.tls.key
        return None if key is None else Path(key).expanduser().stat()
    except (ParleyError, OSError):
        return None


def _content(
    profile: Profile, entry: TreeEntry, packed: Packed, choice: _Choice
) -> IO[bytes] | None:
    """What is in a file now; None for what is no file, or is gone."""
    if entry.path == _DATABASE:
        copy = _database(profile, choice)
        if copy is not None:
            return copy
        packed.damaged = True
    if entry.path in _MAY_BE_LINKS:
        descriptor = _open_linked(profile.home / entry.path)
    else:
        descriptor = entry.open()
    return None if descriptor is None else _copied(descriptor, choice.scratch)


def _open_linked(path: Path) -> int | None:
    """A file of the home itself, which its owner may keep elsewhere."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        if not path.is_file():
            return None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def _copied(descriptor: int, scratch: Path) -> IO[bytes]:
    """A copy first: its length is what was read, whoever writes to the file meanwhile."""
    with os.fdopen(descriptor, "rb") as source:
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
