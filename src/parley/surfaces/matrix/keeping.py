"""Files of a device or a user that are no longer in use: they are kept, out of the way."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from parley.config.errors import ConfigError, shown
from parley.config.files import make_private_directory

__all__ = ["DEVICE_FILES", "USER_FILES", "set_aside"]

DEVICE_FILES: Final = ("account.json", "keys")
USER_FILES: Final = ("cross_signing.json", "recovery.key")


def set_aside(home: Path, names: tuple[str, ...]) -> Path | None:
    """Move them into a directory of their own, and return it; None when none is there."""
    there = [home / name for name in names if (home / name).exists()]
    if not there:
        return None
    stamp = time.strftime("%Y%m%d-%H%M%S")
    number, target = 1, home / f"old-{stamp}"
    while target.exists():
        number, target = number + 1, home / f"old-{stamp}-{number}"
    try:
        make_private_directory(target)
        for path in there:
            path.rename(target / path.name)
    except OSError as error:
        raise ConfigError(
            f"{shown(home)} cannot be cleared for another account: {error.strerror}."
        ) from error
    return target
