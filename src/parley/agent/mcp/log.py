"""What a server writes to its error stream, in a small file of its own, without secrets."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Final

from parley.config.errors import ConfigError
from parley.config.files import make_private_directory
from parley.config.redact import Redactor

__all__ = ["ServerLog"]

_LONGEST_LINE: Final = 4_000
_CHUNK: Final = 64 * 1024
_BYTES_A_SECOND: Final = 512 * 1024


class ServerLog:
    """Never larger than twice `largest`: what was before is kept once, as `<file>.1`."""

    def __init__(self, file: Path, redactor: Redactor, *, largest: int) -> None:
        self._file = file
        self._redactor = redactor
        self._largest = largest

    async def follow(self, reader: asyncio.StreamReader) -> None:
        """Write down what comes, line by line; who writes too much is read slowly."""
        rest = b""
        while chunk := await reader.read(_CHUNK):
            began = time.monotonic()
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _CHUNK:
                lines, rest = [*lines, rest], b""
            if lines:
                await asyncio.to_thread(self.write, lines)
            pause = len(chunk) / _BYTES_A_SECOND - (time.monotonic() - began)
            if len(chunk) >= _CHUNK // 2 and pause > 0:
                await asyncio.sleep(pause)
        if rest:
            await asyncio.to_thread(self.write, [rest])

    def write(self, lines: list[bytes]) -> None:
        """Append these lines. A log that cannot be written is no reason to fail."""
        text = "".join(f"{self._line(line)}\n" for line in lines)
        try:
            make_private_directory(self._file.parent)
            if self._size() >= self._largest:
                self._file.replace(self._file.with_name(self._file.name + ".1"))
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW
            descriptor = os.open(self._file, flags, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode("utf-8", "backslashreplace"))
        except (OSError, ConfigError):
            return

    def _size(self) -> int:
        try:
            return self._file.stat().st_size
        except FileNotFoundError:
            return 0

    def _line(self, line: bytes) -> str:
        text = self._redactor.text(line.decode("utf-8", "replace"))
        return "".join(c if c >= " " or c == "\t" else " " for c in text[:_LONGEST_LINE])
