"""Read a profile's archive, whoever made it: nothing lands outside, and nothing without bounds."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from parley.config.errors import shown
from parley.config.tree import DEEPEST, open_below, open_top
from parley.protocol import ParleyError
from parley.storage.archive import FORMAT, INSIDE, MANIFEST, MOST_BYTES, MOST_FILES, NEVER

__all__ = ["Archive", "UnpackLimits", "open_archive"]

_PIECE: Final = 1024**2
_UNSUSPICIOUS: Final = 64 * 1024**2
_KEPT_FREE: Final = 256 * 1024**2
_LARGEST_MANIFEST: Final = 64 * 1024
_ODD = (tarfile.TarError, zlib.error, EOFError, ValueError, LookupError, RecursionError)


@dataclass(frozen=True, slots=True)
class UnpackLimits:
    """How much an archive may unpack to."""

    total: int = MOST_BYTES
    files: int = MOST_FILES
    ratio: int | None = 100
    """Unpacked bytes for each byte of the file, past the first 64 MiB; None: any."""

    @classmethod
    def raised(cls, gigabytes: int) -> UnpackLimits:
        """What a person says they want to have unpacked."""
        total = gigabytes * 1024**3
        return cls(total, max(MOST_FILES, MOST_FILES * total // MOST_BYTES), None)

    def allows(self, unpacked: int, packed: int) -> bool:
        """Whether so much may come out of so many bytes of a file."""
        return self.ratio is None or unpacked <= _UNSUSPICIOUS + self.ratio * packed


class _Bounded(gzip.GzipFile):
    """Hands out no more at once than we ever ask for, and no more in all than it should hold."""

    def __init__(self, raw: BinaryIO, limits: UnpackLimits) -> None:
        super().__init__(fileobj=raw, mode="rb")
        self._raw = raw
        self._limits = limits

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= _PIECE:
            raise tarfile.ReadError("too much at once")
        try:
            found = super().read(size)
        except gzip.BadGzipFile as error:
            raise tarfile.ReadError(str(error)) from error
        if not self._limits.allows(self.tell(), self._raw.tell()):
            raise _Swollen
        return found


class _Swollen(Exception):
    """More comes out than the size of the file lets one expect."""


@dataclass(slots=True)
class Archive:
    """An archive that is open; `name` and `secrets` are what its manifest says."""

    file: Path
    name: str
    secrets: bool
    _tar: tarfile.TarFile
    _content: _Bounded
    _limits: UnpackLimits

    def unpack(self, home: Path) -> None:
        """Make `home`, for its owner alone, of what the archive holds."""
        free = shutil.disk_usage(home.parent).free - _KEPT_FREE
        packed = self.file.stat().st_size
        home.mkdir(mode=0o700)
        files = size = 0
        with open_top(home) as top:
            while (member := _next(self._tar)) is not None:
                parts = self._parts(member)
                files += 1
                size += member.size
                if files > self._limits.files or size > self._limits.total:
                    raise self._too_large()
                if not self._limits.allows(size, packed):
                    raise _Swollen
                if size > free:
                    raise ParleyError(
                        f"{shown(self.file)} unpacks to more than the {max(free, 0) // 1024**2:,} "
                        "MiB that may be filled on this disk; nothing was unpacked."
                    )
                if parts and parts[0] not in NEVER:
                    self._place(member, top, parts)
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
        if len(parts) > DEEPEST:
            raise self._refused("a path that lies too deep")
        return parts

    def _place(self, member: tarfile.TarInfo, top: int, parts: list[str]) -> None:
        """Name by name from the top on, and through no link."""
        try:
            if member.isdir():
                os.close(open_below(top, parts, make=True))
                return
            folder = open_below(top, parts[:-1], make=True)
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                mode = 0o700 if member.mode & 0o100 else 0o600
                descriptor = os.open(parts[-1], flags, mode, dir_fd=folder)
            finally:
                os.close(folder)
        except (FileExistsError, NotADirectoryError) as error:
            raise self._refused("two things of the same name") from error
        content = self._tar.extractfile(member)
        with os.fdopen(descriptor, "wb") as file:
            while content is not None and (piece := content.read(_PIECE)):
                file.write(piece)

    def _read_to_the_end(self) -> None:
        """Behind the last entry come empty blocks and a checksum: only then it was all there."""
        self._content.seek(self._tar.offset)
        for piece in range(self._limits.total // _PIECE):
            found = self._content.read(_PIECE)
            if any(found) or (not found and not piece):
                raise tarfile.ReadError("it does not end as it should")
            if not found:
                return

    def _too_large(self) -> ParleyError:
        return ParleyError(
            f"{shown(self.file)} holds more than {self._limits.files:,} files or "
            f"{self._limits.total // 1024**3} GiB; nothing was unpacked. If you trust it: --max-gb"
        )

    def _refused(self, what: str) -> ParleyError:
        return ParleyError(
            f"{shown(self.file)} holds {what}; it is not safe, and was not unpacked."
        )


@contextmanager
def open_archive(file: Path, limits: UnpackLimits | None = None) -> Iterator[Archive]:
    """Open an archive and read its manifest; all that is wrong with it is one sentence."""
    limits = limits or UnpackLimits()
    try:
        with (
            _opened(file) as raw,
            _Bounded(raw, limits) as content,
            tarfile.open(fileobj=content, mode="r:") as tar,
        ):
            name, secrets = _manifest(tar, file)
            yield Archive(file, name, secrets, tar, content, limits)
    except _Swollen as error:
        raise ParleyError(
            f"{shown(file)} unpacks to more than {limits.ratio} times its size; nothing was "
            "unpacked. If you trust it, say how much it may take: --max-gb"
        ) from error
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
