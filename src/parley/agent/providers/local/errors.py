"""What can go wrong while a model is installed, said in one sentence each."""

from __future__ import annotations

import errno
from pathlib import Path

from parley.protocol import ParleyError

__all__ = ["ChecksumError", "DiskFullError", "InstallError", "OfflineError", "as_disk_error"]


class InstallError(ParleyError):
    """A model could not be installed."""


class OfflineError(InstallError):
    """The package index cannot be reached, or the connection keeps breaking off."""


class ChecksumError(InstallError):
    """A file that was fetched is not the one it should be. It has been removed."""


class DiskFullError(InstallError):
    """There is no room for the model."""

    def __init__(self, directory: Path, missing: int | None = None) -> None:
        amount = f"free {missing // 1_000_000 + 1} MB there" if missing else "free some room there"
        super().__init__(
            f"There is not enough room in {directory} for the model: {amount}, or set PARLEY_CACHE "
            f"to another directory; what was fetched is kept."
        )


def as_disk_error(error: OSError, directory: Path) -> InstallError:
    """The sentence for a failed write into `directory`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(directory)
    reason = error.strerror or "unknown reason"
    return InstallError(
        f"The model cannot be written to {directory} ({reason}): "
        f"set PARLEY_CACHE to a directory you may write to."
    )
