"""Reading and replacing a person's small files, so that nothing is lost or half-written."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from parley.config.errors import ConfigError, shown

__all__ = ["locked", "make_private_directory", "read_text", "replace_text"]

_LARGEST = 256 * 1024
_MODE = 0o600


def read_text(path: Path, *, lossy: bool = False) -> str | None:
    """The text of a file, or None when there is none; `lossy` replaces what is not UTF-8."""
    try:
        # Without O_NONBLOCK a named pipe in the file's place would hold us up for ever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(_cannot("read", path, error)) from error
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise ConfigError(f"{shown(path)} is a directory, but it must be a file.")
        if not stat.S_ISREG(kind):
            raise ConfigError(f"{shown(path)} is not an ordinary file.")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigError(_cannot("read", path, error)) from error
    finally:
        os.close(descriptor)
    if len(content) > _LARGEST:
        raise ConfigError(f"{shown(path)} is larger than {_LARGEST // 1024} KiB.")
    try:
        return content.decode("utf-8-sig", "replace" if lossy else "strict")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{shown(path)}, line {line}: not UTF-8 text; save the file as UTF-8."
        ) from error


def replace_text(path: Path, text: str, *, private: bool = False) -> None:
    """Put `text` in the file's place in one step, following a symbolic link to its target.

    The file keeps its mode and owner; a new one, or a `private` one, is for its owner alone.
    """
    target = Path(os.path.realpath(path))
    temporary: Path | None = None
    try:
        content = text.encode("utf-8")
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            _take_over(descriptor, target, private=private)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(target)
        temporary = None
        _sync_directory(target.parent)
    except OSError as error:
        raise ConfigError(_cannot("write", path, error)) from error
    except UnicodeEncodeError as error:
        raise ConfigError(f"{shown(path)} can only hold text that is valid UTF-8.") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold a directory against other writers of ours; made first if it is not there."""
    make_private_directory(directory)
    try:
        import fcntl
    except ImportError:  # a platform without it has no lock to offer
        yield
        return
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(_cannot("open", directory, error)) from error
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot lock
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def make_private_directory(directory: Path) -> None:
    """Make it, and what is missing above it, for its owner alone."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        for path in reversed(missing):
            path.mkdir(mode=0o700, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(_cannot("make", directory, error)) from error


def _take_over(descriptor: int, target: Path, *, private: bool) -> None:
    try:
        before = target.stat()
    except FileNotFoundError:
        os.fchmod(descriptor, _MODE)
        return
    with contextlib.suppress(PermissionError):
        os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, _MODE if private else stat.S_IMODE(before.st_mode))


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # not every file system can sync a directory
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot(verb: str, path: Path, error: OSError) -> str:
    reason = error.strerror or type(error).__name__
    return f"Cannot {verb} {shown(path)}: {reason[:1].lower()}{reason[1:]}."
