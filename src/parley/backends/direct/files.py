"""Files that a remote agent sends, kept where a profile's attachments are."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from parley.backends.direct.events import BadFrame, FileSent
from parley.protocol import Attachment
from parley.storage.attachments import clean_name, keep_file, media_type_of, type_of_name

__all__ = ["keep_sent", "keep_what_can_be"]

_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9.+-]*/[a-z0-9][a-z0-9.+-]*", re.IGNORECASE)


def keep_sent(directory: Path, sent: FileSent) -> Attachment:
    """Keep one file; raises `BadFrame` when it is none. It waits for the disk."""
    try:
        content = b64decode(sent.data, validate=True)
    except (binascii.Error, ValueError):
        raise BadFrame("sent a file that is not in base64") from None
    name = clean_name(sent.name, otherwise="file")
    declared = sent.media_type.partition(";")[0].strip()
    if not _MEDIA_TYPE.fullmatch(declared):
        declared = type_of_name(name)
    return keep_file(directory, name, media_type_of(content, declared), content)


def keep_what_can_be(
    directory: Path, files: Iterable[FileSent]
) -> tuple[tuple[Attachment, ...], str]:
    """Keep those that are whole; the others are named in the note."""
    kept: list[Attachment] = []
    broken: list[str] = []
    for sent in files:
        try:
            kept.append(keep_sent(directory, sent))
        except BadFrame:
            broken.append(clean_name(sent.name, otherwise="file"))
    note = f"(These files came broken: {', '.join(broken)}.)" if broken else ""
    return tuple(kept), note
