"""Fetching the files of messages: never more than is allowed, opened only if they are whole."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from parley.config.files import make_private_directory
from parley.protocol import Attachment, ParleyError
from parley.storage.attachments import media_type_of
from parley.surfaces.matrix.connection import Connection, MatrixFault, part
from parley.surfaces.matrix.incoming import Said
from parley.surfaces.matrix.remote_files import RemoteFile, Seal, megabytes

if TYPE_CHECKING:
    from aiohttp import ClientResponse

__all__ = ["fetch", "take_in"]

_WAYS: Final = ("/_matrix/client/v1/media/download", "/_matrix/media/v3/download")
_CHUNK: Final = 256 * 1024


async def take_in(
    connection: Connection, said: Said, into: Path, *, most_bytes: int, within: float
) -> tuple[str, tuple[Attachment, ...]]:
    """What a message says, and its files. Of a file that cannot be had, the text tells."""
    text, kept = said.text, list[Attachment]()
    for file in said.files:
        try:
            kept.append(await fetch(connection, file, into, most_bytes=most_bytes, within=within))
        except ParleyError as error:
            text = f"{text}\n\n[{error}]" if text.strip() else f"[{error}]"
    return text, tuple(kept)


async def fetch(
    connection: Connection, file: RemoteFile, into: Path, *, most_bytes: int, within: float
) -> Attachment:
    """Fetch a file into a directory, decrypted; raises a sentence about it when it cannot be."""
    import aiohttp

    try:
        async with asyncio.timeout(within):
            return await _fetch(connection, file, into, most_bytes)
    except TimeoutError as error:
        raise _not(file, f"it did not come within {within:g} s") from error
    except (aiohttp.ClientError, OSError) as error:
        raise _not(file, "the homeserver cannot be reached") from error


async def _fetch(
    connection: Connection, file: RemoteFile, into: Path, most_bytes: int
) -> Attachment:
    for way in _WAYS:
        path = f"{way}/{part(file.server)}/{part(file.media_id)}"
        bearer = {"Authorization": f"Bearer {connection.account.access_token}"}
        # Zero: the time of the whole is measured outside.
        answer = await connection.nio.send("GET", path, None, bearer, timeout=0)
        async with answer:
            if answer.status in {400, 404, 405} and way != _WAYS[-1]:
                continue  # an older homeserver, perhaps
            if answer.status != 200:
                raise _not(file, f"the homeserver refused it ({answer.status})")
            if (answer.content_length or 0) > most_bytes:
                raise _too_large(file, most_bytes)
            return await _keep(answer, file, into, most_bytes)
    raise AssertionError("the last way returns or raises")


async def _keep(
    answer: ClientResponse, file: RemoteFile, into: Path, most_bytes: int
) -> Attachment:
    import aiohttp

    try:
        sink = await asyncio.to_thread(_Sink, into, file.seal)
        try:
            async for chunk in answer.content.iter_chunked(_CHUNK):
                if sink.size + len(chunk) > most_bytes:
                    raise _too_large(file, most_bytes)
                await asyncio.to_thread(sink.take, chunk)
            if not sink.size:
                raise _not(file, "it is empty")
            kept = await asyncio.to_thread(sink.finish)
        finally:
            sink.discard()
    except _Broken as error:
        raise _not(file, str(error)) from error
    except aiohttp.ClientError:
        raise
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise _not(file, f"it could not be stored: {reason}") from error
    return Attachment(file.name, media_type_of(sink.head, file.media_type), str(kept), sink.size)


class _Broken(ValueError):
    """It is not the file that was sent."""


class _Sink:
    """A file that is being written; it gets its name when it is known to be right.

    It waits for the disk: not for the event loop.
    """

    def __init__(self, directory: Path, seal: Seal | None) -> None:
        self._open, self._wanted = _opener(seal)
        make_private_directory(directory)
        self._directory = directory
        descriptor, name = tempfile.mkstemp(dir=directory, prefix=".new-")  # mode 0600
        self._file = os.fdopen(descriptor, "wb")
        self._path: Path | None = Path(name)
        self._came, self._hash = hashlib.sha256(), hashlib.sha256()
        self.size = 0
        self.head = b""

    def take(self, chunk: bytes) -> None:
        self._came.update(chunk)
        opened = self._open(chunk)
        self._hash.update(opened)
        self.size += len(opened)
        if len(self.head) < 32:
            self.head = (self.head + opened)[:32]
        self._file.write(opened)

    def finish(self) -> Path:
        if self._wanted is not None and self._came.digest() != self._wanted:
            raise _Broken("it is not the one that was sent")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        assert self._path is not None
        kept = self._directory / self._hash.hexdigest()
        self._path.replace(kept)
        self._path = None
        return kept

    def discard(self) -> None:
        """Nothing stays of a file that was not finished."""
        with contextlib.suppress(OSError):
            self._file.close()
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()


def _opener(seal: Seal | None) -> tuple[Callable[[bytes], bytes], bytes | None]:
    """How each piece is decrypted, and the hash that all pieces must have before that."""
    if seal is None:
        return bytes, None
    from Crypto.Cipher import AES
    from Crypto.Util import Counter

    key, iv, wanted = _decode(seal.key), _decode(seal.iv), _decode(seal.sha256)
    if (len(key), len(iv), len(wanted)) != (32, 16, 32):
        raise _Broken("its key cannot be used")
    count = Counter.new(64, prefix=iv[:8], initial_value=int.from_bytes(iv[8:], "big"))
    cipher: Any = AES.new(key, AES.MODE_CTR, counter=count)
    return cipher.decrypt, wanted


def _decode(text: str) -> bytes:
    """Base64 in either alphabet, with or without its padding."""
    plain = text.translate(str.maketrans("-_", "+/")).rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError as error:
        raise _Broken("its key cannot be used") from error


def _not(file: RemoteFile, reason: str) -> MatrixFault:
    return MatrixFault(f"The file “{file.name}” was not taken in: {reason}.")


def _too_large(file: RemoteFile, most_bytes: int) -> MatrixFault:
    return _not(file, f"it is larger than {megabytes(most_bytes)}")
