"""The files that show what is remembered: their names, and reading and replacing them safely."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from pathlib import Path
from typing import Final, TypeAlias

from parley.config.errors import ConfigError, shown
from parley.config.files import locked, make_private_directory, replace_text
from parley.protocol import ParleyError
from parley.storage.memory import PROFILE

__all__ = ["Stamp", "ViewFiles", "slug_of"]

Stamp: TypeAlias = tuple[int, int, int] | None
"""What tells that a file was changed without reading it; None when there is none."""

_LARGEST: Final = 8 * 1024 * 1024
_AS_IT_IS = re.compile(r"([a-z0-9]{1,20}):([a-z0-9._]{0,39}[a-z0-9_])")
_UNSAFE = re.compile(r"[^a-z0-9._]+")
_ROOMS: Final = {"person": ("people", "USER.md"), "chat": ("chats", "MEMORY.md")}


def slug_of(name: str) -> str:
    """A folder's name for a person or a chat: readable, safe everywhere, and theirs alone.

    It has no capital letters, for some file systems do not tell them from small ones. A name that
    had to be changed ends with a digest behind `--`, which no other name has.
    """
    if plain := _AS_IT_IS.fullmatch(name):
        return f"{plain[1]}-{plain[2]}"
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    readable = _UNSAFE.sub("-", name.lower()).strip("-._")[:48].strip("-._")
    return f"{readable or 'x'}--{digest}"


class ViewFiles:
    """The files beneath one folder. Links in it are not followed. Every call blocks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, place: str) -> Path:
        """The file of a place."""
        if place == PROFILE:
            return self._folder / "MEMORY.md"
        room, _, name = place.partition(":")
        if room not in _ROOMS or not name:
            raise ParleyError(f"There is no file for the place `{place}`.")
        above, file = _ROOMS[room]
        return self._folder / above / slug_of(name) / file

    def stamp(self, place: str) -> Stamp:
        try:
            found = self.path(place).lstat()
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    def read(self, place: str) -> tuple[str | None, Stamp]:
        """The text of the file and the stamp it had before it was read; None without one."""
        path = self._checked(place)
        self._sweep(path)
        stamp = self.stamp(place)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return None, None
        except OSError as error:
            raise ConfigError(f"Cannot read {shown(path)}: {_reason(error)}.") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"{shown(path)} is not an ordinary file; move it away.")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(_LARGEST + 1)
        except OSError as error:
            raise ConfigError(f"Cannot read {shown(path)}: {_reason(error)}.") from error
        finally:
            os.close(descriptor)
        if len(content) > _LARGEST:
            raise ConfigError(f"{shown(path)} is larger than {_LARGEST // 1024**2} MiB.")
        try:
            return content.decode("utf-8-sig"), stamp
        except UnicodeDecodeError as error:
            raise ConfigError(f"{shown(path)} is not UTF-8 text; save it as UTF-8.") from error

    def replace(self, place: str, text: str, *, seen: Stamp) -> bool:
        """Put the text in the file's place in one step; False when it is not as it was `seen`."""
        path = self._checked(place)
        make_private_directory(path.parent)
        with locked(self._folder):
            if self.stamp(place) != seen:
                return False
            replace_text(path, text, private=True)
        return True

    def remove(self, place: str, *, seen: Stamp) -> bool:
        """Remove the file, and its folder if nothing else is in it; False as for `replace`."""
        path = self._checked(place)
        if self.stamp(place) != seen:
            return False
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"Cannot remove {shown(path)}: {_reason(error)}.") from error
        if place != PROFILE:
            with contextlib.suppress(OSError):
                path.parent.rmdir()
        return True

    def _sweep(self, path: Path) -> None:
        """Whoever was killed while a page was written left a part of it, which no one would find.

        Nobody else writes here meanwhile, so that it is not a page on its way.
        """
        pattern = f".{path.name}.????????"  # not the files that editors keep beside it
        if not any(path.parent.glob(pattern)):
            return
        with locked(self._folder):
            for left in path.parent.glob(pattern):
                with contextlib.suppress(OSError):
                    left.unlink()

    def _checked(self, place: str) -> Path:
        path = self.path(place)
        inside = path.relative_to(self._folder).parts
        for depth in range(1, len(inside) + 1):
            step = self._folder.joinpath(*inside[:depth])
            if step.is_symlink():
                raise ConfigError(f"{shown(step)} is a link, which is not followed; remove it.")
        return path


def _reason(error: OSError) -> str:
    reason = error.strerror or type(error).__name__
    return reason[:1].lower() + reason[1:]
