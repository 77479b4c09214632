"""Files in frames: those that come with a message, and those that go with an answer."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from parley.protocol import Attachment
from parley.storage.attachments import keep_file
from parley.surfaces.agent_ws.wire import SentFile
from parley.surfaces.api.wire.files import LARGEST_FILE, decode_file, media_type_said

__all__ = ["keep_files", "note_of", "read_file"]

_MB: Final = 1024 * 1024


def keep_files(directory: Path, sent: Sequence[SentFile]) -> tuple[Attachment, ...]:
    """Store them, none before all are found good. Not for the event loop: it writes to disk."""
    files = [
        decode_file(
            file.data,
            name=file.name,
            param=f"attachments[{index}].data",
            media_type=media_type_said(file.media_type),
        )
        for index, file in enumerate(sent)
    ]
    return tuple(keep_file(directory, file.name, file.media_type, file.data) for file in files)


def read_file(file: Attachment) -> dict[str, Any] | str:
    """The file as frames have it; or in words, where it cannot be sent. Reads the disk."""
    if file.is_remote:
        return f"{file.name}: {file.path}"
    try:
        data = Path(file.path).read_bytes()
    except OSError:
        return f"{file.name}: this file is gone."
    if len(data) > LARGEST_FILE:
        return f"{file.name}: too large to be sent, {LARGEST_FILE // _MB} MB are the most."
    return {
        "name": file.name,
        "media_type": file.media_type,
        "size": len(data),
        "data": base64.b64encode(data).decode(),
    }


def note_of(file: Attachment) -> str:
    """What a client reads that takes no files."""
    if file.is_remote:
        return f"{file.name}: {file.path}"
    return f"{file.name}: a file, which cannot be sent over this connection."
