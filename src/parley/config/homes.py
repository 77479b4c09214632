"""The directory of a profile: prepared out of sight, and put in its place in one step."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from parley.config.errors import shown
from parley.config.files import make_private_directory
from parley.config.tree import open_top, remove_tree, walk_tree
from parley.profiles import Profile, looks_like_profile, named_profile
from parley.protocol import ParleyError

__all__ = [
    "copy_file",
    "copy_tree",
    "make_home",
    "new_profile",
    "refuse_taken",
    "settle",
    "staging",
]

# Nothing in such a directory lies where a profile's files would: it is never taken for one.
_STAGE: Final = ".parley-"
_ABANDONED_AFTER: Final = 60.0
_TAKEN: Final = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)


def new_profile(name: str) -> Profile:
    """The profile that is to be made under this name, which must be free."""
    profile = named_profile(name)
    refuse_taken(profile)
    return profile


def refuse_taken(profile: Profile) -> None:
    """Raise when there is something under the profile's name already."""
    if profile.is_default or looks_like_profile(profile.home):
        raise ParleyError(f"There is a profile `{profile.name}` already; choose another name.")
    if os.path.lexists(profile.home):
        raise ParleyError(f"{shown(profile.home)} is in the way, and no profile; move it away.")


def make_home(home: Path, *, soul: str, settings: str) -> None:
    """Fill a directory that is not there yet with what a profile begins with."""
    profile = Profile("", home)
    for folder in (home, profile.workspace, profile.memory, profile.skills):
        folder.mkdir(mode=0o700)
    for file, text in ((profile.soul_file, soul), (profile.config_file, settings)):
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")


def copy_file(source: Path, target: Path) -> None:
    """A copy for its owner alone; a link is followed."""
    shutil.copyfile(source, target)
    target.chmod(0o600)


def copy_tree(source: Path, target: Path) -> None:
    """Add a directory's files and directories to `target`; links stay links, pipes stay away."""
    with open_top(source) as top:
        for entry in walk_tree(top, too_deep=_refuse_deep):
            copy = target / entry.path
            if entry.is_link:
                if (pointed := entry.link_target()) is not None:
                    copy.symlink_to(pointed)
            elif entry.is_folder:
                copy.mkdir(mode=0o700)
            elif (descriptor := entry.open()) is not None:
                with os.fdopen(descriptor, "rb") as content, copy.open("xb") as file:
                    copy.chmod(entry.mode)
                    shutil.copyfileobj(content, file, 1024**2)


def _refuse_deep(path: str) -> None:
    raise ParleyError(f"{shown(Path(path[:80]))}… lies too deep to be copied; move it up.")


def settle(staged: Path, profile: Profile) -> None:
    """Put a finished home where it belongs. What is there already stays, and is told of."""
    refuse_taken(profile)
    try:
        staged.rename(profile.home)
    except OSError as error:
        if error.errno in _TAKEN:
            refuse_taken(profile)
        raise ParleyError(f"{shown(profile.home)} cannot be made ({error.strerror}).") from error


@contextlib.contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A private directory in `folder` that is gone at the end, with whatever is in it then.

    What a killed process left behind is removed by the next one.
    """
    make_private_directory(folder)
    _sweep(folder)
    try:
        stage = Path(tempfile.mkdtemp(prefix=_STAGE, dir=folder))
        descriptor = os.open(stage, os.O_RDONLY)
    except OSError as error:
        raise ParleyError(f"{shown(folder)} cannot be written to ({error.strerror}).") from error
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot lock
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield stage
    finally:
        remove_tree(stage)
        os.close(descriptor)


def _sweep(folder: Path) -> None:
    """Remove what nobody works in any more: its lock is free, and it is not just being made."""
    for stage in folder.glob(f"{_STAGE}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(stage, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                made = os.fstat(descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if made.st_uid == os.getuid() and made.st_mtime < time.time() - _ABANDONED_AFTER:
                    remove_tree(stage)
            finally:
                os.close(descriptor)
