"""Files inside a request: data URLs, base64, web addresses; their names and types. Pure."""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

from parley.protocol import Attachment
from parley.storage.attachments import clean_name, media_type_of, type_of_name
from parley.surfaces.api.wire.errors import BadRequest

__all__ = [
    "LARGEST_FILE",
    "File",
    "decode_file",
    "decode_picture",
    "media_type_said",
    "web_address",
]

LARGEST_FILE: Final = 20 * 1024 * 1024
_LONGEST_ADDRESS: Final = 8192
_LONGEST_HEAD: Final = 256

_HEAD = re.compile(r"data:([^,;]*)((?:;[^,;]*)*),", re.IGNORECASE)
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,62}/[a-z0-9][a-z0-9!#$&^_.+-]{0,62}")


@dataclass(frozen=True, slots=True)
class File:
    """A file that came inside a request and is not stored yet."""

    name: str
    media_type: str
    data: bytes
    detail: str | None = None


def decode_picture(url: str, *, param: str) -> File:
    """The picture in a data URL."""
    declared, data = _decode_data_url(url, param=param)
    media_type = media_type_of(data, declared)
    if not media_type.startswith("image/"):
        raise BadRequest(
            f"`{param}` is not a picture; send other files as a `file` part.",
            param=param,
            code="invalid_image",
        )
    kind = media_type.removeprefix("image/").partition("+")[0]
    return File(clean_name(f"image.{kind}", otherwise="image"), media_type, data)


def decode_file(content: str, *, name: str | None, param: str, media_type: str = "") -> File:
    """The file in a data URL or in bare base64."""
    if content[:5].lower() == "data:":
        declared, data = _decode_data_url(content, param=param)
        media_type = declared or media_type
    else:
        data = _decode_base64(content, param=param)
    name = clean_name(name or "", otherwise="file")
    return File(name, media_type_of(data, media_type or type_of_name(name)), data)


def media_type_said(text: str) -> str:
    """The media type in what was said of a file, without its parameters; empty if there is none."""
    media_type = text.partition(";")[0].strip().lower()
    return media_type if _MEDIA_TYPE.fullmatch(media_type) else ""


def web_address(url: str, *, name: str, media_type: str | None, param: str) -> Attachment:
    """A file that stays where it is: only the model's provider opens it."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        parts, host = None, None
    if parts is None or parts.scheme not in {"https", "http"}:
        raise BadRequest(f"`{param}` must be a data URL or begin with https://.", param=param)
    plain = url.isprintable() and not any(map(str.isspace, url))
    if not host or not plain or len(url) > _LONGEST_ADDRESS:
        raise BadRequest(f"`{param}` is not a web address.", param=param)
    url = parts.scheme + url[len(parts.scheme) :]  # in small letters
    name = clean_name(unquote(PurePosixPath(parts.path).name, errors="replace"), otherwise=name)
    return Attachment(name, media_type or type_of_name(name), url, 0)


def _decode_data_url(url: str, *, param: str) -> tuple[str, bytes]:
    """The media type it declares, perhaps none, and what it holds."""
    head = _HEAD.match(url, 0, _LONGEST_HEAD)
    if head is None:
        raise BadRequest(f"`{param}` is not a data URL.", param=param)
    media_type = head[1].strip().lower()
    if media_type and not _MEDIA_TYPE.fullmatch(media_type):
        raise BadRequest(f"`{param}` has a media type that cannot be read.", param=param)
    if "base64" not in head[2].lower().replace(" ", "").split(";"):
        raise BadRequest(f"`{param}` must be a data URL in base64.", param=param)
    return media_type, _decode_base64(url[head.end() :], param=param)


def _decode_base64(text: str, *, param: str) -> bytes:
    if len(text) > (LARGEST_FILE + 2) // 3 * 4:
        raise BadRequest(
            f"`{param}` is larger than {LARGEST_FILE // 1024**2} MB.",
            param=param,
            code="file_too_large",
        )
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise BadRequest(
            f"`{param}` is not valid base64.", param=param, code="invalid_base64"
        ) from None
    if not data:
        raise BadRequest(f"`{param}` is an empty file.", param=param)
    return data
