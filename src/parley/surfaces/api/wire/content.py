"""The content of a message: its text, and its files, which are kept before the turn begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from parley.protocol import Attachment
from parley.storage.attachments import keep_file
from parley.surfaces.api.wire.errors import BadRequest
from parley.surfaces.api.wire.files import File, decode_file, decode_picture, web_address
from parley.surfaces.api.wire.models import Content, Part

__all__ = ["ContentReader", "Keeper", "Said", "attachments_keeper"]

Keeper: TypeAlias = Callable[[str, str, bytes], Attachment]
"""Stores a file by its name, media type and data."""

MOST_FILES: Final = 100
LARGEST_IN_ALL: Final = 64 * 1024 * 1024

_SOUND: Final = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "flac": "audio/flac",
    "ogg": "audio/ogg",
    "opus": "audio/ogg",
    "m4a": "audio/mp4",
    "aac": "audio/aac",
    "webm": "audio/webm",
}


@dataclass(frozen=True, slots=True)
class Said:
    """What a message says: its words and its files, none of which is stored yet."""

    text: str = ""
    files: tuple[File | Attachment, ...] = ()

    def kept(self, keep: Keeper) -> tuple[Attachment, ...]:
        return tuple(
            replace(keep(file.name, file.media_type, file.data), detail=file.detail)
            if isinstance(file, File)
            else file
            for file in self.files
        )


class ContentReader:
    """Reads the contents of one request, and counts its files."""

    def __init__(self) -> None:
        self._files = 0
        self._bytes = 0

    def read(self, content: Content | None, *, param: str) -> Said:
        if content is None or isinstance(content, str):
            return Said(content or "")
        texts: list[str] = []
        files: list[File | Attachment] = []
        for index, part in enumerate(content):
            where = f"{param}[{index}]"
            match part.type:
                case "text" | "input_text" | "output_text":
                    texts.append(_given(part.text, f"{where}.text"))
                case "refusal":
                    texts.append(_given(part.refusal, f"{where}.refusal"))
                case "reasoning_text":
                    pass  # what a model thought before is not given to another
                case _:
                    files.append(self._file(part, where))
        return Said("\n".join(texts), tuple(files))

    def read_text(self, content: Content | None, *, param: str) -> str:
        """Of a message that may have no files."""
        said = self.read(content, param=param)
        if said.files:
            raise BadRequest(f"`{param}` may only hold text.", param=param)
        return said.text

    def _file(self, part: Part, where: str) -> File | Attachment:
        self._files += 1
        if self._files > MOST_FILES:
            raise BadRequest(
                f"The request holds more than {MOST_FILES} files.",
                param=where,
                code="too_many_files",
            )
        file = _file_of(part, where)
        if isinstance(file, File):
            self._bytes += len(file.data)
        if self._bytes > LARGEST_IN_ALL:
            raise BadRequest(
                f"The files of the request are larger than {LARGEST_IN_ALL // 1024**2} MB in all.",
                param=where,
                code="file_too_large",
            )
        return file


def _file_of(part: Part, where: str) -> File | Attachment:
    match part.type:
        case "input_audio":
            return _sound(part, where)
        case "image_url" | "input_image":
            return _picture(part, where)
    holder = part.file if part.type == "file" else part
    where = f"{where}.file" if part.type == "file" else where
    if holder is None:
        raise BadRequest(f"`{where}` is missing.", param=where)
    if holder.file_id is not None:
        raise _no_uploads(f"{where}.file_id")
    if isinstance(holder, Part) and holder.file_url is not None:
        address, param = holder.file_url, f"{where}.file_url"
        return web_address(address, name="file", media_type=None, param=param)
    content = _given(holder.file_data, f"{where}.file_data")
    return decode_file(content, name=holder.filename, param=f"{where}.file_data")


def _picture(part: Part, where: str) -> File | Attachment:
    if part.file_id is not None:
        raise _no_uploads(f"{where}.file_id")
    param = f"{where}.image_url"
    given, detail = part.image_url, part.detail
    if given is not None and not isinstance(given, str):
        detail, param = given.detail, f"{param}.url"
        given = given.url
    url = _given(given, param)
    if url[:5].lower() == "data:":
        return replace(decode_picture(url, param=param), detail=detail)
    picture = web_address(url, name="image", media_type="image/*", param=param)
    return replace(picture, detail=detail)


def _sound(part: Part, where: str) -> File:
    where = f"{where}.input_audio"
    if part.input_audio is None:
        raise BadRequest(f"`{where}` is missing.", param=where)
    kind = part.input_audio.format
    if kind not in _SOUND:
        raise BadRequest(
            f"`{where}.format` must be one of {', '.join(_SOUND)}.", param=f"{where}.format"
        )
    return decode_file(
        part.input_audio.data,
        name=f"audio.{kind}",
        media_type=_SOUND[kind],
        param=f"{where}.data",
    )


def _given(text: str | None, param: str) -> str:
    if text is None:
        raise BadRequest(f"`{param}` is missing.", param=param)
    return text


def _no_uploads(param: str) -> BadRequest:
    return BadRequest("There are no uploaded files; send the file itself.", param=param)


# ── keeping ───────────────────────────────────────────────────────────────────────────────────


def attachments_keeper(directory: Path) -> Keeper:
    """Keeps files in a directory of its owner's. Not for the event loop: it writes to disk."""
    return partial(keep_file, directory)
