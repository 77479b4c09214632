"""What may stand in an audit record: no secret, and no text of any length."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from parley.config.redact import Plain, Redactor, secret_values
from parley.profiles.profile import FOLDER

__all__ = ["Mask", "digested"]

_LONGEST: Final = 8_000
_MOST_ITEMS: Final = 200


def digested(text: str) -> dict[str, Any]:
    """A text that is known again, and not to be read: how long it is, and its SHA-256."""
    told = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    return {"characters": len(text), "sha256": told}


class Mask:
    """Strikes out the secrets of every profile of one home, as they are now."""

    def __init__(self, house: Path) -> None:
        self._house = house
        self._redactor = Redactor(secret_values(os.environ))
        self._read: dict[Path, tuple[int, int, int]] = {}

    def plain(self, fields: Mapping[str, Any], home: Path) -> dict[str, Plain]:
        """The fields as plain data that may be kept."""
        for each in {self._house, home, *self._profiles()}:
            self._learn(each / ".env")
        return {name: _bounded(self._redactor.value(value)) for name, value in fields.items()}

    def _profiles(self) -> list[Path]:
        """The homes of the named profiles: a command of one may hold the key of another."""
        try:
            return list((self._house / FOLDER).iterdir())
        except OSError:
            return []

    def _learn(self, file: Path) -> None:
        """Know the secrets in a `.env`; it is read again only when it has changed."""
        try:
            found = file.stat()
        except OSError:
            return
        mark = (found.st_mtime_ns, found.st_size, found.st_ino)
        if self._read.get(file) == mark:
            return
        from parley.config.env_file import read_env_file
        from parley.config.errors import ConfigError
        from parley.config.secrets import is_secret

        try:
            held = read_env_file(file).values
        except ConfigError:
            return
        self._redactor.learn(value for name, value in held.items() if is_secret(name))
        self._read[file] = mark


def _bounded(value: Plain) -> Plain:
    if isinstance(value, str) and len(value) > _LONGEST:
        about = digested(value)
        return f"{value[:_LONGEST]}… [{about['characters']} characters, sha256 {about['sha256']}]"
    if isinstance(value, list):
        return [_bounded(item) for item in value[:_MOST_ITEMS]]
    if isinstance(value, Mapping):
        return {name[:200]: _bounded(item) for name, item in list(value.items())[:_MOST_ITEMS]}
    return value
