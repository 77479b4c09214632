"""Read a profile's archive, whoever made it: nothing lands outside, and nothing without bounds."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from parley.config.errors import shown
from parley.protocol import ParleyError
from parley.storage.archive import FORMAT, INSIDE, MANIFEST, MOST_BYTES, MOST_FILES, NEVER

__all__ = ["Archive", "open_archive"]

_PIECE: Final = 1024**2
_LARGEST_MANIFEST: Final = 64 * 1024
_ODD = (tarfile.TarError, zlib.error, EOFError, ValueError, LookupError, RecursionError)


class _Bounded(gzip.GzipFile):
    """Hands out no more at once than we ever ask for: a header cannot fill the memory."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= _PIECE:
            raise tarfile.ReadError("too much at once")
        try:
            return super().read(size)
        except gzip.BadGzipFile as error:
            raise tarfile.ReadError(str(error)) from error


@dataclass(slots=True)
class Archive:
    """An archive that is open; `name` and `secrets` are what its manifest says."""

    file: Path
    name: str
    secrets: bool
    _tar: tarfile.TarFile
    _content: _Bounded

    def unpack(self, home: Path) -> None:
        """Make `home`, for its owner alone, of what the archive holds."""
        home.mkdir(mode=0o700)
        files = size = 0
        while (member := _next(self._tar)) is not None:
            parts = self._parts(member)
            files += 1
            size += member.size
            if files > MOST_FILES or size > MOST_BYTES:
                raise ParleyError(
                    f"{shown(self.file)} holds more than {MOST_FILES:,} files or "
                    f"{MOST_BYTES // 1024**3} GiB; nothing was unpacked."
                )
            if parts and parts[0] not in NEVER:
                self._place(member, home.joinpath(*parts))
        self._read_to_the_end()

    def _parts(self, member: tarfile.TarInfo) -> list[str]:
        """Where in the home it goes. What could lead out of it ends everything."""
        first, *parts = member.name.split("/")
        ordinary = member.isdir() or member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
        if first != INSIDE or any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise self._refused("a path that leads elsewhere")
        if not ordinary or member.issparse() or (member.isdir() and member.size):
            raise self._refused("something that is neither a file nor a directory")
        if member.size < 0 or (not parts and not member.isdir()):
            raise self._refused("an entry that makes no sense")
        return parts

    def _place(self, member: tarfile.TarInfo, target: Path) -> None:
        try:
            if member.isdir():
                _make_parents(target)
                target.mkdir(mode=0o700, exist_ok=True)
                return
            _make_parents(target)
            mode = 0o700 if member.mode & 0o100 else 0o600
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except (FileExistsError, NotADirectoryError) as error:
            raise self._refused("two things of the same name") from error
        content = self._tar.extractfile(member)
        with os.fdopen(descriptor, "wb") as file:
            while content is not None and (piece := content.read(_PIECE)):
                file.write(piece)

    def _read_to_the_end(self) -> None:
        """Behind the last entry come empty blocks and a checksum: only then it was all there."""
        self._content.seek(self._tar.offset)
        for piece in range(MOST_BYTES // _PIECE):
            found = self._content.read(_PIECE)
            if any(found) or (not found and not piece):
                raise tarfile.ReadError("it does not end as it should")
            if not found:
                return

    def _refused(self, what: str) -> ParleyError:
        return ParleyError(
            f"{shown(self.file)} holds {what}; it is not safe, and was not unpacked."
        )


@contextmanager
def open_archive(file: Path) -> Iterator[Archive]:
    """Open an archive and read its manifest; all that is wrong with it is one sentence."""
    try:
        with (
            _opened(file) as raw,
            _Bounded(fileobj=raw, mode="rb") as content,
            tarfile.open(fileobj=content, mode="r:") as tar,
        ):
            name, secrets = _manifest(tar, file)
            yield Archive(file, name, secrets, tar, content)
    except _ODD as error:
        raise ParleyError(
            f"{shown(file)} is not the archive of a profile, or it is damaged."
        ) from error
    except OSError as error:
        raise ParleyError(f"{shown(file)} cannot be unpacked ({error.strerror}).") from error


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    if not file.exists():
        raise ParleyError(f"There is no file {shown(file)}.")
    if not file.is_file():
        raise ParleyError(f"{shown(file)} is not a file.")
    with file.open("rb") as raw:
        yield raw


def _manifest(tar: tarfile.TarFile, file: Path) -> tuple[str, bool]:
    member = _next(tar)
    if member is None or member.name != MANIFEST or member.type != tarfile.REGTYPE:
        raise tarfile.ReadError("no manifest")
    content = tar.extractfile(member)
    if content is None or not 0 <= member.size <= _LARGEST_MANIFEST:
        raise tarfile.ReadError("an odd manifest")
    record = json.loads(content.read(_LARGEST_MANIFEST))
    name = record.get("name") if isinstance(record, dict) else None
    if not isinstance(name, str):
        raise tarfile.ReadError("no name")
    if record.get("format") != FORMAT:
        raise ParleyError(f"{shown(file)} was made by a newer Parley; upgrade this one first.")
    return name, record.get("secrets") is True


def _next(tar: tarfile.TarFile) -> tarfile.TarInfo | None:
    member = tar.next()
    # It keeps a list of all it has seen, which nobody asks for here.
    tar.members = []  # type: ignore[attr-defined]
    return member


def _make_parents(target: Path) -> None:
    """`mkdir(parents=True)` would leave the directories between open to others."""
    missing = [folder for folder in target.parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700)
