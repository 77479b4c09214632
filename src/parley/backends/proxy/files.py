"""Reading the files that go along to a remote agent."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from parley.backends.proxy.request import Files
from parley.protocol import Attachment

__all__ = ["read_files"]

_MOST_BYTES: Final = 20 * 1024 * 1024
"""Of all files of one turn together."""


def read_files(attachments: Iterable[Attachment], *, taken: bool) -> Files:
    """Read what goes along; a file that cannot is named, with the reason."""
    contents: dict[Attachment, bytes] = {}
    faults: dict[Attachment, str] = {}
    left = _MOST_BYTES
    for item in attachments:
        if item.is_remote or not (taken or item.media_type.startswith("image/")):
            continue
        try:
            with Path(item.path).open("rb") as file:
                content = file.read(left + 1)
        except OSError:
            faults[item] = "it can no longer be read"
            continue
        if len(content) > left:
            faults[item] = "it is too large"
        else:
            contents[item] = content
            left -= len(content)
    return Files(contents, faults, taken)
