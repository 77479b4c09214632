"""The runtime of local models, xllamacpp: in Parley's environment, or unpacked in the cache.

Its wheel has no dependencies, so that unpacking it is installing it. Parley installed from a wheel
comes without it; it is fetched with the first model.
"""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from pathlib import Path
from typing import Final

from parley.agent.providers.local.weights import Piece, cache_directory

__all__ = ["DOWNLOAD_SIZE", "RUNTIME", "has_runtime", "runtime_directory", "unpacked_runtime"]

RUNTIME: Final = Piece("xllamacpp", "2026.10.11549", "")
DOWNLOAD_SIZE: Final = 33_800_000


def has_runtime(cache: Path | None = None) -> bool:
    """Whether a local model can be run."""
    return (
        importlib.util.find_spec(RUNTIME.package) is not None or unpacked_runtime(cache) is not None
    )


def unpacked_runtime(cache: Path | None = None) -> Path | None:
    """The directory of the cache to import it from, when it is there."""
    directory = runtime_directory(cache)
    return directory if (directory / RUNTIME.package / "__init__.py").is_file() else None


def runtime_directory(cache: Path | None = None) -> Path:
    """Where it is unpacked. Another Python or machine that shares the cache has its own."""
    system = sysconfig.get_platform().replace("/", "-")
    name = f"{RUNTIME.package}-{RUNTIME.version}-{sys.implementation.cache_tag}-{system}"
    return (cache or cache_directory()) / "runtime" / name
