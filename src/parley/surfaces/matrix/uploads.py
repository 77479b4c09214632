"""Files on their way to the homeserver, sealed first where the room is encrypted."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import urlencode

from parley.protocol import Attachment, ParleyError
from parley.storage.attachments import type_of_name
from parley.surfaces.matrix.connection import Connection, MatrixFault
from parley.surfaces.matrix.pictures import HEAD, picture_size

__all__ = ["FileGone", "file_message", "upload"]

_SEALED: Final = "application/octet-stream"
_PIECE: Final = 256 * 1024
_WITHIN: Final = 600.0


class FileGone(ParleyError):
    """There is no such file any more."""


async def file_message(attachment: Attachment, where: dict[str, Any]) -> dict[str, Any]:
    """The content of a message that shows the file; `where` is what `upload` returned."""
    media_type = _type_of(attachment)
    family = media_type.split("/")[0]
    shown_alone = family in {"image", "audio", "video"} and media_type != "image/svg+xml"
    told: dict[str, Any] = {"mimetype": media_type, "size": attachment.size}
    if family == "image" and (size := await asyncio.to_thread(_size_of, attachment)):
        told["w"], told["h"] = size
    return {
        "msgtype": f"m.{family}" if shown_alone else "m.file",
        "body": attachment.name,
        "filename": attachment.name,
        "info": told,
        **where,
    }


async def upload(
    connection: Connection, attachment: Attachment, *, encrypted: bool
) -> dict[str, Any]:
    """Where the file is now: `url`, or `file` with what opens it. Raises FileGone, MatrixFault."""
    try:
        if not encrypted:
            plain = await asyncio.to_thread(_opened, attachment)
            return {"url": await _send(connection, plain, attachment)}
        sealed, keys = await asyncio.to_thread(_sealed, attachment)
    except OSError as error:
        raise FileGone(f"The file {attachment.name} is not there any more.") from error
    return {"file": {**keys, "url": await _send(connection, sealed, None)}}


async def _send(connection: Connection, file: BinaryIO, attachment: Attachment | None) -> str:
    """What is sealed tells neither its name nor its type."""
    import aiohttp

    query = "" if attachment is None else "?" + urlencode({"filename": attachment.name})
    try:
        answer = await connection.nio.send(
            "POST",
            f"/_matrix/media/v3/upload{query}",
            file,  # aiohttp reads it in a thread, piece by piece
            {
                "Authorization": f"Bearer {connection.account.access_token}",
                "Content-Type": _SEALED if attachment is None else _type_of(attachment),
            },
            timeout=_WITHIN,
        )
        async with answer:
            told = _read(await answer.text(errors="replace"))
            if answer.status < 400 and "content_uri" in told:
                return str(told["content_uri"])
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise MatrixFault("The homeserver cannot be reached; the file was not sent.") from error
    finally:
        await asyncio.to_thread(file.close)
    after = told.get("retry_after_ms")
    raise MatrixFault(
        f"The homeserver did not take the file: {told.get('error') or answer.status}",
        status=answer.status,
        code=str(told.get("errcode", "")),
        after=after / 1000 if isinstance(after, int | float) else None,
    )


def _read(text: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _opened(attachment: Attachment) -> BinaryIO:
    path = Path(attachment.path)
    if not path.is_file():
        raise FileNotFoundError(path.name)
    return path.open("rb")


def _sealed(attachment: Attachment) -> tuple[BinaryIO, dict[str, Any]]:
    from nio.crypto.attachments import encrypted_attachment_generator

    keys: dict[str, Any] = {}
    sealed = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it was sent
    try:
        with _opened(attachment) as plain:
            for piece in encrypted_attachment_generator(_pieces(plain)):
                if isinstance(piece, bytes):
                    sealed.write(piece)
                else:
                    keys = piece
        sealed.seek(0)
    except BaseException:
        sealed.close()
        raise
    return sealed, keys


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def _type_of(attachment: Attachment) -> str:
    return attachment.media_type or type_of_name(attachment.name)


def _size_of(attachment: Attachment) -> tuple[int, int] | None:
    try:
        with _opened(attachment) as file:
            return picture_size(file.read(HEAD))
    except OSError:
        return None
