"""Walk, fill and remove directory trees by descriptors: a link that is swapped in leads nowhere.

Each name is opened in the folder before it and never through a link, so whoever renames folders
and links meanwhile (a command in the workspace, say) changes what is found and never where.
A hard link looks like any other file.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["DEEPEST", "TreeEntry", "open_below", "open_top", "remove_tree", "walk_tree"]

DEEPEST: Final = 100
"""Folders within folders; each one that is open takes a descriptor."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_ATTEMPTS: Final = 10


class TreeEntry(NamedTuple):
    """One thing in a tree; `folder` is the open folder it lies in, until the next is asked for."""

    path: str
    name: str
    folder: int
    status: os.stat_result

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)

    def link_target(self) -> str | None:
        """Where a link points; None when it is no link any more."""
        try:
            return os.readlink(self.name, dir_fd=self.folder)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    @property
    def mode(self) -> int:
        """For its owner alone, and executable if it was."""
        return 0o700 if self.is_folder or (self.is_file and self.status.st_mode & 0o100) else 0o600

    def open(self) -> int | None:
        """A descriptor of an ordinary file; None when it is none (any more)."""
        try:
            descriptor = os.open(self.name, _FILE, dir_fd=self.folder)
        except OSError:
            with suppress(FileNotFoundError):
                now = os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
                if stat.S_ISREG(now.st_mode):
                    raise
            return None
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        return None


@contextmanager
def open_top(folder: Path) -> Iterator[int]:
    """The folder that a walk begins in. It is named by a person: links to it are followed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def walk_tree(
    top: int,
    *,
    wanted: Callable[[str, os.stat_result], bool] = lambda path, status: True,
    too_deep: Callable[[str], None] = lambda path: None,
) -> Generator[TreeEntry, None, None]:
    """Every entry below an open folder, a folder before what it holds, each sorted by name.

    What goes while this runs is left out, and so is a folder that lies too deep.
    """
    waiting: list[tuple[int, str, Iterator[str]]] = [(top, "", _names(top))]
    try:
        while waiting:
            folder, prefix, names = waiting[-1]
            name = next(names, None)
            if name is None:
                waiting.pop()
                if waiting:
                    os.close(folder)
                continue
            path = prefix + name
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if not wanted(path, status):
                continue
            if not stat.S_ISDIR(status.st_mode):
                yield TreeEntry(path, name, folder, status)
            elif len(waiting) > DEEPEST:
                too_deep(path)
            elif (inner := _enter(name, folder)) is not None:
                waiting.append((inner, f"{path}/", _names(inner)))
                yield TreeEntry(path, name, folder, status)
    finally:
        for folder, _, _ in waiting[1:]:
            os.close(folder)


def open_below(top: int, parts: Sequence[str], *, make: bool = False) -> int:
    """A folder below an open one, name by name; with `make` it is made, for its owner alone."""
    folder = os.dup(top)
    try:
        for part in parts:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=folder)
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
    except OSError:
        os.close(folder)
        raise
    return folder


def remove_tree(tree: Path) -> None:
    """Remove a tree, however deep, also what its owner may not write to."""
    for _ in range(_ATTEMPTS):
        if not os.path.lexists(tree):
            return
        with suppress(OSError), open_top(tree.parent) as parent:
            top = _open_up(tree.name, parent)
            try:
                _empty(top)
            finally:
                os.close(top)
            os.rmdir(tree.name, dir_fd=parent)


def _empty(top: int) -> None:
    """Folders are moved up to `top` before they are emptied, so depth costs no descriptors."""
    left = set(os.listdir(top))
    while left:
        for name in left:
            with suppress(OSError):  # the others go all the same
                _remove(name, top)
        now = set(os.listdir(top))
        if left <= now:
            return
        left = now


def _remove(name: str, top: int) -> None:
    if not _is_folder(name, top):
        os.unlink(name, dir_fd=top)
        return
    inner = _open_up(name, top)
    try:
        for child in _names(inner):
            if _is_folder(child, inner):
                os.close(_open_up(child, inner))  # who may not write to it cannot move it
                os.rename(child, f".{secrets.token_hex(8)}", src_dir_fd=inner, dst_dir_fd=top)
            else:
                os.unlink(child, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)


def _is_folder(name: str, folder: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def _open_up(name: str, folder: int) -> int:
    """A folder of ours, open, that can be written to from here on."""
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=folder)
    except PermissionError:
        if not hasattr(os, "O_PATH"):
            os.chmod(name, 0o700, dir_fd=folder, follow_symlinks=False)
        else:
            handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            try:
                os.chmod(f"/proc/self/fd/{handle}", 0o700)  # noqa: PTH101
            finally:
                os.close(handle)
        descriptor = os.open(name, _FOLDER, dir_fd=folder)
    if os.fstat(descriptor).st_mode & 0o300 != 0o300:
        os.fchmod(descriptor, 0o700)
    return descriptor


def _enter(name: str, folder: int) -> int | None:
    """A folder in an open one; None when something else stands there by now."""
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise


def _names(folder: int) -> Iterator[str]:
    try:
        return iter(sorted(os.listdir(folder)))
    except FileNotFoundError:  # it was removed since it was opened
        return iter(())
