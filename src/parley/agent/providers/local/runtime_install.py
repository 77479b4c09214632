"""Installs the runtime of local models into the cache, without touching Parley's environment."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import Final

from parley.agent.providers.local.errors import (
    ChecksumError,
    DiskFullError,
    InstallError,
    as_disk_error,
)
from parley.agent.providers.local.fetch import Progress, remove
from parley.agent.providers.local.install import fetch_wheel, locked, part_file
from parley.agent.providers.local.locate import Locate, locate_with_pip
from parley.agent.providers.local.runtime import (
    DOWNLOAD_SIZE,
    RUNTIME,
    runtime_directory,
    unpacked_runtime,
)
from parley.agent.providers.local.weights import cache_directory

__all__ = ["install_runtime"]

_SIZE: Final = 107_000_000


def install_runtime(
    *,
    cache: Path | None = None,
    locate: Locate = locate_with_pip,
    progress: Progress | None = None,
) -> None:
    """Fetch the wheel for this Python and machine, check it, and unpack it into the cache."""
    root = cache or cache_directory()

    def tell(done: int, label: str = RUNTIME.package) -> None:
        if progress is not None:
            progress(done, max(DOWNLOAD_SIZE, done), label)

    try:
        with locked(root / "downloads" / "runtime.lock", lambda: tell(0, "waiting")):
            if unpacked_runtime(root) is None:
                _check_room(root)
                part = part_file(RUNTIME, root / "downloads")
                tell(0, "finding the files")
                [wheel] = locate([RUNTIME])
                fetch_wheel(
                    RUNTIME, wheel, part, tell, by_pip=lambda: tell(0, f"{RUNTIME.package} by pip")
                )
                _unpack(part, runtime_directory(root))
                remove(part)
    except OSError as error:
        raise as_disk_error(error, root) from error


def _check_room(root: Path) -> None:
    missing = DOWNLOAD_SIZE + _SIZE - shutil.disk_usage(root).free
    if missing > 0:
        raise DiskFullError(root, missing)


def _unpack(part: Path, target: Path) -> None:
    """All of it or nothing: it is put in place by one rename."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as temporary:
        fresh = Path(temporary) / "wheel"
        try:
            with zipfile.ZipFile(part) as archive:
                for name in archive.namelist():
                    if ".." in PurePosixPath(name).parts or name.startswith("/"):
                        raise InstallError(f"The wheel of {RUNTIME.requirement} is not safe.")
                archive.extractall(fresh)
        except zipfile.BadZipFile as error:
            remove(part)
            raise ChecksumError(
                f"The fetched file {part.name} was damaged and was removed: "
                f"run the same command again."
            ) from error
        if not (fresh / RUNTIME.package / "__init__.py").is_file():
            raise InstallError(f"The wheel of {RUNTIME.requirement} does not hold what it should.")
        if target.exists():
            shutil.rmtree(target)
        fresh.replace(target)
