"""Models from a model hub that speaks Hugging Face's HTTP API: find a GGUF file and fetch it."""

from __future__ import annotations

import json
import os
import re
import shutil
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from parley.agent.providers.local.errors import (
    DiskFullError,
    InstallError,
    OfflineError,
    as_disk_error,
)
from parley.agent.providers.local.fetch import (
    DirectFetchError,
    Progress,
    fetch,
    open_url,
    remove,
)
from parley.agent.providers.local.gguf import GgufError, read_header
from parley.agent.providers.local.install import locked
from parley.agent.providers.local.locate import Wheel
from parley.agent.providers.local.weights import cache_directory

__all__ = [
    "RECOMMENDED",
    "HubFile",
    "HubModel",
    "HubReference",
    "find_file",
    "hub_files",
    "install_from_hub",
    "installed_hub_file",
    "parse_reference",
]

_PREFIX: Final = "hf:"
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_REFERENCE: Final = re.compile(rf"hf:({_NAME})/({_NAME})((?:/{_NAME})+\.gguf)?", re.IGNORECASE)
_LARGEST_INFO: Final = 8_000_000
_UNFIT: Final = re.compile(r"-\d{5}-of-\d{5}|mmproj", re.IGNORECASE)
_PREFERRED: Final = ("q4_k_m", "q4_k_s", "q4_0", "q5_k_m", "q8_0")


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model that we recommend for a machine with this much memory. Sizes are about right."""

    reference: str
    memory_gb: int
    size: int
    licence: str


RECOMMENDED: Final = (
    HubModel(
        "hf:bartowski/Qwen2.5-3B-Instruct-GGUF/Qwen2.5-3B-Instruct-Q4_K_M.gguf",
        memory_gb=4,
        size=1_930_000_000,
        licence="Qwen Research",
    ),
    HubModel(
        "hf:bartowski/Qwen2.5-7B-Instruct-GGUF/Qwen2.5-7B-Instruct-Q4_K_M.gguf",
        memory_gb=8,
        size=4_680_000_000,
        licence="Apache-2.0",
    ),
    HubModel(
        "hf:bartowski/Qwen2.5-14B-Instruct-GGUF/Qwen2.5-14B-Instruct-Q4_K_M.gguf",
        memory_gb=16,
        size=8_990_000_000,
        licence="Apache-2.0",
    ),
)


@dataclass(frozen=True, slots=True)
class HubReference:
    """What `hf:OWNER/REPO[/FILE.gguf]` names; `file` is empty where the hub is to be asked."""

    repository: str
    file: str = ""

    def __str__(self) -> str:
        return f"{_PREFIX}{self.repository}" + (f"/{self.file}" if self.file else "")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository, with the checksum that the hub names for it."""

    reference: HubReference
    size: int
    sha256: str


def parse_reference(text: str) -> HubReference | None:
    """Read `hf:OWNER/REPO[/FILE.gguf]`; None when the text is no such name at all."""
    if not text.lower().startswith(_PREFIX):
        return None
    found = _REFERENCE.fullmatch(text)
    if found is None or ".." in text:
        raise InstallError(
            f"{text!r} names no model of the hub: write it as hf:OWNER/REPO or "
            f"hf:OWNER/REPO/FILE.gguf."
        )
    return HubReference(f"{found[1]}/{found[2]}", (found[3] or "").lstrip("/"))


def installed_hub_file(reference: HubReference, cache: Path | None = None) -> Path:
    """Where the file is once it is installed."""
    return _folder(cache) / reference.repository / reference.file


def hub_files(cache: Path | None = None) -> list[tuple[HubReference, Path]]:
    """Every installed file of the hub."""
    folder = _folder(cache)
    return [
        (HubReference("/".join(parts[:2]), "/".join(parts[2:])), path)
        for path in sorted(folder.rglob("*.gguf"))
        if len(parts := path.relative_to(folder).parts) > 2
    ]


def find_file(reference: HubReference) -> HubFile:
    """Ask the hub which file is meant, how large it is, and its checksum."""
    repository = reference.repository
    url = f"{_endpoint()}/api/models/{quote(repository)}?blobs=true"
    info = _read_info(url, repository)
    files = {
        str(each.get("rfilename", "")): each
        for each in info.get("siblings") or ()
        if isinstance(each, dict) and _is_plain(str(each.get("rfilename", "")))
    }
    name = reference.file or _usual_file(repository, list(files))
    if name not in files:
        known = ", ".join(sorted(files)) or "none"
        raise InstallError(f"There is no file {name} in {repository}; its GGUF files: {known}.")
    lfs = files[name].get("lfs") or {}
    sha256 = str(lfs.get("sha256") or "").removeprefix("sha256:")
    size = lfs.get("size") or files[name].get("size")
    if not re.fullmatch(r"[0-9a-fA-F]{64}", sha256) or not isinstance(size, int):
        raise InstallError(f"The hub names no checksum for {name}: it cannot be trusted.")
    return HubFile(HubReference(repository, name), size, sha256)


def install_from_hub(
    file: HubFile, *, cache: Path | None = None, progress: Progress | None = None
) -> Path:
    """Fetch the file, check it, put it in place. An interrupted one goes on where it stopped."""
    root = cache or cache_directory()
    target = installed_hub_file(file.reference, root)
    part = root / "downloads" / f"hf-{file.sha256}.part"

    def tell(done: int, label: str = target.name) -> None:
        if progress is not None:
            progress(done, file.size, label)

    try:
        with locked(part.with_suffix(".lock"), lambda: tell(0, "waiting")):
            if target.is_file() and target.stat().st_size == file.size:
                return target
            done = part.stat().st_size if part.exists() else 0
            missing = file.size - done - shutil.disk_usage(root).free
            if missing > 0:
                raise DiskFullError(root, missing)
            _fetch(file, part, tell)
            target.parent.mkdir(parents=True, exist_ok=True)
            part.replace(target)
    except OSError as error:
        raise as_disk_error(error, root) from error
    return target


def _fetch(file: HubFile, part: Path, tell: Any) -> None:
    repository, name = file.reference.repository, file.reference.file
    url = f"{_endpoint()}/{quote(repository)}/resolve/main/{quote(name)}"
    try:
        fetch(Wheel(url, file.sha256), part, on_bytes=tell, token=_token())
    except DirectFetchError as error:
        cause = error.__cause__
        code = cause.code if isinstance(cause, urllib.error.HTTPError) else None
        if code in (401, 403):
            raise _gated(repository) from error
        raise InstallError(f"The hub refused the download of {name} (HTTP {code}).") from error
    try:
        read_header(part)
    except GgufError:
        remove(part)
        raise


def _read_info(url: str, repository: str) -> dict[str, Any]:
    try:
        with open_url(url, {}, token=_token()) as response:
            info = json.loads(response.read(_LARGEST_INFO))
    except urllib.error.HTTPError as error:
        with error:
            if error.code in (401, 403):
                raise _gated(repository) from error
            if error.code == 404:
                raise InstallError(f"There is no repository {repository} on the hub.") from error
            raise InstallError(f"The hub refused to answer (HTTP {error.code}).") from error
    except ValueError as error:
        raise InstallError("The hub sent no model description: check HF_ENDPOINT.") from error
    except OSError as error:
        raise OfflineError(
            "The hub cannot be reached: check the network and HF_ENDPOINT, then run the same "
            "command again."
        ) from error
    if not isinstance(info, dict):
        raise InstallError("The hub sent no model description: check HF_ENDPOINT.")
    return info


def _gated(repository: str) -> InstallError:
    return InstallError(
        f"The hub does not let you have {repository}: it does not exist, is private, or wants its "
        f"terms accepted. Accept them on its page, then set HF_TOKEN to a token of yours."
    )


def _is_plain(name: str) -> bool:
    """Whether it names a GGUF file that stays below the folder of its repository."""
    steps = name.split("/")
    return (
        name.lower().endswith(".gguf")
        and name.isprintable()
        and "\\" not in name
        and not any(step in {"", ".", ".."} for step in steps)
    )


def _usual_file(repository: str, names: list[str]) -> str:
    whole = sorted(name for name in names if not _UNFIT.search(name))
    for kind in _PREFERRED:
        for name in whole:
            if kind in name.lower():
                return name
    if not whole:
        raise InstallError(f"There is no whole GGUF file in {repository}; choose another one.")
    return whole[0]


def _endpoint() -> str:
    endpoint = os.environ.get("HF_ENDPOINT", "").strip() or "https://huggingface.co"
    if not endpoint.startswith(("https://", "http://")):
        raise InstallError("HF_ENDPOINT must be an address that begins with https:// or http://.")
    return endpoint.rstrip("/")


def _token() -> str | None:
    return os.environ.get("HF_TOKEN", "").strip() or None


def _folder(cache: Path | None) -> Path:
    return (cache or cache_directory()) / "models" / "hf"
