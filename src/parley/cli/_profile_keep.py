"""Rename a profile, keep it in a file, and take it away; never while it is served elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from parley import audit
from parley.cli._profile_house import listed, mentions
from parley.config.errors import shown
from parley.config.homes import new_profile, settle, staging
from parley.gateway.home import Holder, HomeInUse, HomeLock, holder_of
from parley.profiles import (
    DEFAULT_PROFILE,
    Profile,
    archive_folder,
    looks_like_profile,
    mark_active,
    marked_active,
)
from parley.protocol import ParleyError

if TYPE_CHECKING:
    from parley.storage.archive import Packed

__all__ = ["delete", "export", "holder_words", "refuse_to_move", "rename"]


def holder_words(holder: Holder | None) -> str:
    """Who serves a profile, for a person."""
    if holder is None:
        return "another process"
    command = "parley gateway run" if holder.kind == "gateway" else "parley chat"
    return f"`{command}` (process {holder.pid})"


def refuse_to_move(profile: Profile, what: str) -> None:
    """Raise when a profile cannot be renamed or deleted now."""
    if profile.is_default:
        raise ParleyError(f"`default` is the home of all profiles and cannot be {what}.")
    if profile.home.is_symlink():
        raise ParleyError(f"{shown(profile.home)} is a link and cannot be {what}; do it by hand.")
    holder = holder_of(profile)
    if holder is not None:
        raise _served(profile, holder)


def rename(profile: Profile, name: str) -> Profile:
    """Give a profile another name; commands that worked on it still do.

    Refused while the settings of the house name it: with a route to nobody the gateway would not
    start again, and a file that a person wrote is theirs to change.
    """
    refuse_to_move(profile, "renamed")
    renamed = new_profile(name)
    if found := mentions(profile.name):
        raise ParleyError(
            f"`{profile.name}` is named in {listed(found)}; change that to `{name}` first, "
            "or the gateway would not start any more."
        )
    with _held(profile):
        settle(profile.home, renamed)
    audit.record("profile.renamed", profile=renamed, before=profile.name)
    if marked_active() == profile.name:
        mark_active(name)
    return renamed


def delete(profile: Profile) -> tuple[Path, Packed]:
    """Keep all of a profile in an archive, and only then take it away."""
    refuse_to_move(profile, "deleted")
    with _held(profile):
        file = _archive_name(profile)
        packed = _write(profile, file, secrets=True, logs=True, force=False, copy=False)
        if marked_active() == profile.name:
            mark_active(DEFAULT_PROFILE)
        with staging(profile.home.parent) as stage:
            try:
                profile.home.rename(stage / "home")
            except OSError as error:
                raise ParleyError(
                    f"{shown(profile.home)} cannot be removed ({error.strerror}); "
                    f"its archive is {shown(file)}."
                ) from error
    audit.record("profile.deleted", profile=profile, archive=str(file))
    return file, packed


def export(profile: Profile, file: Path, *, secrets: bool, force: bool) -> Packed:
    """Write a profile into a file; it may be served meanwhile."""
    if not looks_like_profile(profile.home):
        raise ParleyError(f"There is nothing in {shown(profile.home)} to export yet.")
    if file.is_dir():
        raise ParleyError(f"{shown(file)} is a directory; name a file in it.")
    if not file.parent.is_dir():
        raise ParleyError(f"There is no directory {shown(file.parent)}.")
    if os.path.lexists(file) and not force:
        raise _there_already(file)
    packed = _write(profile, file, secrets=secrets, logs=False, force=force, copy=True)
    audit.record("profile.exported", profile=profile, file=str(file), with_secrets=secrets)
    return packed


def _archive_name(profile: Profile) -> Path:
    stem = f"{profile.name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    names = (f"{stem}{f'-{number}' if number > 1 else ''}.tar.gz" for number in count(1))
    return next(file for name in names if not os.path.lexists(file := archive_folder() / name))


def _write(
    profile: Profile, file: Path, *, secrets: bool, logs: bool, force: bool, copy: bool
) -> Packed:
    from parley.storage.archive import pack

    with staging(file.parent) as stage:
        written = stage / "archive"
        descriptor = os.open(written, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as target:
            packed = pack(profile, target, scratch=stage, secrets=secrets, logs=logs, copy=copy)
            target.flush()
            os.fsync(descriptor)
        try:
            _put(written, file, force=force)
        except FileExistsError as error:
            raise _there_already(file) from error
        except OSError as error:
            raise ParleyError(f"{shown(file)} cannot be written ({error.strerror}).") from error
    return packed


def _put(written: Path, file: Path, *, force: bool) -> None:
    """Give a finished file its name, which is not taken from another unless that is wanted."""
    if force:
        written.replace(file)
    else:
        try:
            file.hardlink_to(written)
        except FileExistsError:
            raise
        except OSError:  # not every file system knows such links
            if os.path.lexists(file):
                raise FileExistsError(file) from None
            written.rename(file)
    descriptor = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _held(profile: Profile) -> Iterator[None]:
    """Nobody serves the profile meanwhile. The lock moves along with the home."""
    try:
        with HomeLock(profile, "profile"):
            yield
    except HomeInUse as error:
        raise _served(profile, error.holder) from error


def _served(profile: Profile, holder: Holder | None) -> ParleyError:
    return ParleyError(
        f"`{profile.name}` is being served by {holder_words(holder)}; stop that first."
    )


def _there_already(file: Path) -> ParleyError:
    return ParleyError(
        f"{shown(file)} is there already; choose another name, or overwrite it with --force."
    )
