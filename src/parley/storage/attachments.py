"""Files that come with messages: what they are called, what they are, and where they are kept."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import mimetypes
import os
import re
import tempfile
import unicodedata
from pathlib import Path, PurePosixPath
from typing import Final

from parley.config.files import make_private_directory
from parley.protocol import Attachment, ParleyError

__all__ = ["clean_name", "clear_old_files", "keep_file", "media_type_of", "type_of_name"]

_LONGEST_NAME: Final = 120
_UNKNOWN: Final = "application/octet-stream"
_UNSEEN: Final = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_MAGIC: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": "application/pdf",
}
_TOLD_BY_MAGIC: Final = frozenset({*_MAGIC.values(), "image/webp"})


# ── what they are called, and what they are ───────────────────────────────────────────────────


def clean_name(name: str, *, otherwise: str) -> str:
    """A name that is only a name: it is shown to people and to models."""
    name = re.split(r"[/\\]", name[-4 * _LONGEST_NAME :])[-1]
    name = "".join(letter for letter in name if unicodedata.category(letter) not in _UNSEEN)
    name = " ".join(name.split())
    if not name.strip(". "):
        return otherwise
    if len(name) > _LONGEST_NAME:
        ending = PurePosixPath(name).suffix[:16]
        name = name[: _LONGEST_NAME - len(ending)] + ending
    return name


def media_type_of(data: bytes, declared: str) -> str:
    """What the first bytes say; what they cannot tell is taken as declared."""
    for magic, media_type in _MAGIC.items():
        if data.startswith(magic):
            return media_type
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return _UNKNOWN if not declared or declared in _TOLD_BY_MAGIC else declared


def type_of_name(name: str) -> str:
    return _types().guess_type(name)[0] or _UNKNOWN


@functools.cache
def _types() -> mimetypes.MimeTypes:
    known = mimetypes.MimeTypes()
    known.add_type("text/markdown", ".md")
    return known


# ── keeping ───────────────────────────────────────────────────────────────────────────────────


def keep_file(directory: Path, name: str, media_type: str, data: bytes) -> Attachment:
    """Keep a file in a directory of its owner's, once, under the hash of its bytes.

    It writes to disk and waits for it: not for the event loop.
    """
    path = directory / hashlib.sha256(data).hexdigest()
    try:
        _keep(path, data)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ParleyError(f"The file {name} could not be stored ({reason}).") from error
    return Attachment(name, media_type, str(path), len(data))


def _keep(path: Path, data: bytes) -> None:
    directory = path.parent
    make_private_directory(directory)
    if directory.stat().st_mode & 0o077:
        directory.chmod(0o700)
    if path.is_file() and path.stat().st_size == len(data):
        os.utime(path)  # whoever clears away old files sees that this one is wanted again
        return
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=".new-")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def clear_old_files(directory: Path, before: float) -> int:
    """Remove what nobody has sent since then; a model is told that such a file is gone."""
    cleared = 0
    with contextlib.suppress(FileNotFoundError):
        for path in directory.iterdir():
            with contextlib.suppress(OSError):
                if path.is_file() and path.stat().st_mtime < before:
                    path.unlink()
                    cleared += 1
    return cleared
