"""Paths that cannot lead out of a folder, whoever swaps its links and folders meanwhile.

A path is walked one name at a time, each opened in the folder before it and never through a link;
the links in it are read and walked in the same way. A hard link looks like any other file: what
somebody linked into the workspace by one can be read there.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

__all__ = ["Place", "Refused", "Root", "open_folder", "open_regular", "shown"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OWN = ".parley"
_LONGEST_PATH = 4096
_MOST_LINKS = 40
_DEEPEST = 100


class Refused(Exception):
    """It cannot be done; the text is a sentence for the model."""


class Place(NamedTuple):
    """Where a path leads: to `name` in the open `folder`, or to that folder when it is None.

    `names` are those of the folders from the root on. What is not there has `missing` names, of
    which `name` is the last.
    """

    folder: int
    names: tuple[str, ...]
    name: str | None
    missing: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """From the root, with no link in it."""
        return "/".join((*self.names, *((self.name,) if self.name else ()))) or "."


class Root:
    """The one folder beneath which everything lies.

    But for `.parley` in it, where a request is for a conversation: that is the folder which `own`
    names beneath `private`, whatever the root holds under this name.
    """

    def __init__(self, path: str, private: str | None = None) -> None:
        self.path = path
        self.own: tuple[str, ...] = ()
        self._private = private
        self.folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._prefixes = {tuple(_parts(path)), tuple(_parts(os.path.realpath(path)))}

    def close(self) -> None:
        os.close(self.folder)

    @contextmanager
    def find(self, path: str, *, make_folders: bool = False) -> Iterator[Place]:
        """Walk to a path. What the place names is open until the end of the block."""
        walk = _Walk(self, path)
        try:
            walk.go(make_folders=make_folders)
            yield walk.place()
        finally:
            walk.close()

    def is_own(self, names: list[str], part: str) -> bool:
        """Whether this name is that of the conversation's folder."""
        return part == _OWN and not names and bool(self.own) and self._private is not None

    def open_own(self) -> int:
        """The conversation's folder, which is made when it is not there."""
        handle = os.open(self._private or "", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in self.own:
            with suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=handle)
            try:
                inner = open_folder(part, handle)
            finally:
                os.close(handle)
            handle = inner
        return handle

    def beneath(self, path: str) -> list[str] | None:
        """The names of a path from the root on; None when it begins elsewhere."""
        parts = _parts(path)
        if not path.startswith("/"):
            return parts
        for prefix in self._prefixes:
            if tuple(parts[: len(prefix)]) == prefix:
                return parts[len(prefix) :]
        return None


class _Walk:
    def __init__(self, root: Root, path: str) -> None:
        _check(path)
        self._root = root
        self._path = path
        self._folders = [root.folder]
        self._names: list[str] = []
        self._missing: list[str] = []
        self._leaf: str | None = None
        self._todo: deque[str] = deque(self._inside(_without_home(path)))

    def go(self, *, make_folders: bool) -> None:
        links = 0
        while self._todo:
            part = self._todo.popleft()
            if self._leaf is not None:
                raise Refused(f"{shown(self._leaf)} in {shown(self._path)} is not a folder.")
            if part == "..":
                self._up()
            elif self._missing:
                self._missing.append(part)
            elif (target := self._enter(part)) is not None:
                links += 1
                if links > _MOST_LINKS:
                    raise Refused(f"{shown(self._path)} leads nowhere: its links go in a circle.")
                self._follow(target)
        while make_folders and len(self._missing) > 1:
            self._make(self._missing.pop(0))

    def place(self) -> Place:
        missing = tuple(self._missing)
        name = missing[-1] if missing else self._leaf
        return Place(self._folders[-1], tuple(self._names), name, missing)

    def close(self) -> None:
        while len(self._folders) > 1:
            os.close(self._folders.pop())

    def _enter(self, part: str) -> str | None:
        """Go into a folder or up to a file; a link is not entered, and its target returned."""
        here = self._folders[-1]
        if self._root.is_own(self._names, part):
            self._folders.append(self._root.open_own())
            self._names.append(part)
            return None
        try:
            mode = os.stat(part, dir_fd=here, follow_symlinks=False).st_mode
        except FileNotFoundError:
            self._missing.append(part)
            return None
        if stat.S_ISLNK(mode):
            return os.readlink(part, dir_fd=here)
        if stat.S_ISDIR(mode):
            self._push(part)
        else:
            self._leaf = part
        return None

    def _follow(self, target: str) -> None:
        parts = self._inside(target)
        if target.startswith("/"):
            self.close()
            self._names.clear()
        self._todo.extendleft(reversed(parts))

    def _up(self) -> None:
        """Back to the folder we came from, which need not be what `..` in it says by now."""
        if self._missing:
            self._missing.pop()
        elif len(self._folders) == 1:
            raise self._outside()
        else:
            os.close(self._folders.pop())
            self._names.pop()

    def _make(self, name: str) -> None:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=self._folders[-1])
        self._push(name)

    def _push(self, name: str) -> None:
        if len(self._folders) > _DEEPEST:
            raise Refused(f"{shown(self._path)} lies too deep.")
        self._folders.append(open_folder(name, self._folders[-1]))
        self._names.append(name)

    def _inside(self, path: str) -> list[str]:
        parts = self._root.beneath(path)
        if parts is None:
            raise self._outside()
        return parts

    def _outside(self) -> Refused:
        return Refused(
            f"{shown(self._path)} is outside the workspace; only files in it can be reached."
        )


def open_folder(name: str, folder: int) -> int:
    """A folder in an open folder; a link is an `OSError`."""
    return os.open(name, _FOLDER, dir_fd=folder)


def open_regular(name: str, folder: int) -> int:
    """An ordinary file in an open folder. A pipe is not waited for, a device not woken."""
    if stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        handle = os.open(name, _FILE, dir_fd=folder)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return handle
        os.close(handle)
    raise Refused(f"{shown(name)} is not an ordinary file.")


def shown(name: str) -> str:
    """A name as it can be printed on one line and kept in any store."""
    clean = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    clean = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in clean
    )
    return clean if len(clean) <= 300 else clean[:300] + "…"


def _check(path: str) -> None:
    if "\0" in path:
        raise Refused("A path cannot hold a NUL character.")
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        raise Refused("A path cannot hold half a character.") from None
    if size > _LONGEST_PATH:
        raise Refused(f"A path cannot be longer than {_LONGEST_PATH} bytes.")


def _without_home(path: str) -> str:
    """`~` is the workspace, as it is for commands."""
    return path[2:].lstrip("/") if path == "~" or path.startswith("~/") else path


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
