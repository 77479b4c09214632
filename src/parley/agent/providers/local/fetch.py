"""Fetches one file over HTTP or from disk, and goes on where an earlier attempt stopped."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import io
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias
from urllib.parse import urlsplit

from parley.agent.providers.local.errors import (
    ChecksumError,
    InstallError,
    OfflineError,
    as_disk_error,
)
from parley.agent.providers.local.locate import Wheel

__all__ = [
    "DirectFetchError",
    "Progress",
    "check_sha256",
    "fetch",
    "file_sha256",
    "open_url",
    "remove",
]

Progress: TypeAlias = Callable[[int, int, str], None]
"""Told `(done_bytes, total_bytes, label)`."""

_CHUNK = 256 * 1024
_PATIENCE = 5  # attempts in a row that bring nothing
_SILENCE = 30.0


class DirectFetchError(InstallError):
    """We cannot fetch the file ourselves, though we are online: pip may know how."""


class _BrokenOffError(Exception):
    pass


class _NothingThereError(Exception):
    """The file has no bytes where we wanted to go on."""

    def __init__(self, total: int | None) -> None:
        super().__init__(total)
        self.total = total


@dataclass(frozen=True, slots=True)
class _Stream:
    source: io.BufferedIOBase
    start: int
    total: int | None


def fetch(
    wheel: Wheel,
    part: Path,
    *,
    on_bytes: Callable[[int], None],
    pause: float = 1.0,
    token: str | None = None,
) -> None:
    """Fetch `wheel` into `part`, beginning where `part` ends; `on_bytes` is told its size.

    `token` is shown to the host of the address and to no other that it leads to.

    Raises `OfflineError` when the connection keeps failing (`part` is kept), `DirectFetchError`
    when the server refuses us, `ChecksumError` when what came is wrong (`part` is removed).
    """
    fruitless = 0
    while True:
        before = _size(part)
        try:
            _fetch_some(wheel.url, part, on_bytes, token)
            break
        except _BrokenOffError as error:
            fruitless = 0 if _size(part) > before else fruitless + 1
            if fruitless >= _PATIENCE:
                raise OfflineError(
                    "The download keeps breaking off: check the network, then run the same command "
                    "again; it goes on where it stopped."
                ) from error
            time.sleep(min(pause * 2**fruitless, 10.0))
    if wheel.sha256 is not None:
        check_sha256(part, wheel.sha256)


def check_sha256(path: Path, expected: str, on_bytes: Callable[[int], None] | None = None) -> None:
    """Compare; a file with another checksum is removed and a `ChecksumError` says so."""
    if file_sha256(path, on_bytes) != expected.lower():
        remove(path)
        raise ChecksumError(
            f"The fetched file {path.name} had a wrong checksum and was removed: "
            f"run the same command again."
        )


def file_sha256(path: Path, on_bytes: Callable[[int], None] | None = None) -> str:
    """The file's checksum; `on_bytes` is told how far the reading is."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(4 * _CHUNK):
            digest.update(chunk)
            done += len(chunk)
            if on_bytes is not None:
                on_bytes(done)
    return digest.hexdigest()


def remove(path: Path) -> None:
    """Remove a file that may already be gone."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def _fetch_some(url: str, part: Path, on_bytes: Callable[[int], None], token: str | None) -> None:
    offset = _size(part)
    try:
        with _open(url, offset, token) as stream:
            done = _append(stream, part, on_bytes)
    except _NothingThereError as error:
        if error.total == offset:  # an earlier attempt was stopped after the last byte
            return
        remove(part)
        raise _BrokenOffError from error
    # A cut connection looks like the end of the file: only the announced length tells.
    if stream.total is not None and done != stream.total:
        if done > stream.total:
            remove(part)
        raise _BrokenOffError


def _append(stream: _Stream, part: Path, on_bytes: Callable[[int], None]) -> int:
    try:
        with part.open("r+b" if part.exists() else "wb") as file:
            file.truncate(stream.start)
            file.seek(stream.start)
            done = stream.start
            on_bytes(done)
            while chunk := _read(stream.source):
                file.write(chunk)
                done += len(chunk)
                on_bytes(done)
    except OSError as error:
        raise as_disk_error(error, part.parent) from error
    return done


def _read(source: io.BufferedIOBase) -> bytes:
    try:
        return source.read1(_CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenOffError from error


@contextmanager
def _open(url: str, offset: int, token: str | None) -> Iterator[_Stream]:
    scheme = urlsplit(url).scheme
    if scheme == "file":
        with _open_file(url, offset) as stream:
            yield stream
    elif scheme in ("http", "https"):
        with _open_http(url, offset, token) as stream:
            yield stream
    else:
        raise DirectFetchError("The package index names an address that cannot be fetched.")


@contextmanager
def _open_file(url: str, offset: int) -> Iterator[_Stream]:
    path = Path(urllib.request.url2pathname(urlsplit(url).path))
    try:
        file = path.open("rb")
    except OSError as error:
        raise DirectFetchError("The package index names a file that cannot be opened.") from error
    with file:
        total = os.fstat(file.fileno()).st_size
        start = offset if offset <= total else 0
        file.seek(start)
        yield _Stream(file, start, total)


@contextmanager
def _open_http(url: str, offset: int, token: str | None) -> Iterator[_Stream]:
    try:
        response = open_url(url, {"Range": f"bytes={offset}-"}, token=token)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and offset:
                raise _NothingThereError(_total_of(error.headers.get("Content-Range"))) from error
            raise DirectFetchError(
                f"The package index refused the download (HTTP {error.code})."
            ) from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise DirectFetchError("The package index's certificate is not trusted.") from error
        raise _BrokenOffError from error
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenOffError from error
    with response:
        yield _stream_of(response, offset)


class _TokenForOneHost(urllib.request.HTTPRedirectHandler):
    """Shows the token again where a redirect stays on the host, and never elsewhere."""

    def redirect_request(  # noqa: PLR0917 - as it is called
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        shown = req.unredirected_hdrs.get("Authorization")
        if following is not None and shown and _host(newurl) == _host(req.full_url):
            following.add_unredirected_header("Authorization", shown)
        return following


def _host(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()


def open_url(
    url: str, headers: Mapping[str, str], *, token: str | None = None
) -> http.client.HTTPResponse:
    """Open an HTTP address; `token` is shown to its host alone."""
    tls = urllib.request.HTTPSHandler(context=_tls())
    opener = urllib.request.build_opener(tls, _TokenForOneHost())
    opener.addheaders = [("User-Agent", "parley"), *headers.items()]
    request = urllib.request.Request(url)  # noqa: S310 - its scheme is checked by callers
    if token is not None:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    response: http.client.HTTPResponse = opener.open(request, timeout=_SILENCE)
    return response


def _stream_of(response: http.client.HTTPResponse, offset: int) -> _Stream:
    length = response.headers.get("Content-Length", "")
    announced = int(length) if length.isdigit() else None
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:
        total = _total_of(response.headers.get("Content-Range"))
        if total is None and announced is not None:
            total = offset + announced
        return _Stream(response, offset, total)
    return _Stream(response, 0, announced)  # the server knows no ranges: all of it again


def _total_of(content_range: str | None) -> int | None:
    total = (content_range or "").rpartition("/")[2].strip()
    return int(total) if total.isdigit() else None


def _tls() -> ssl.SSLContext:
    # SSL_CERT_FILE and SSL_CERT_DIR are honoured by the default; pip has a variable of its own.
    context = ssl.create_default_context()
    extra = os.environ.get("PIP_CERT", "").strip()
    if extra and Path(extra).is_file():
        with contextlib.suppress(ssl.SSLError, OSError):
            context.load_verify_locations(cafile=extra)
    return context


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
