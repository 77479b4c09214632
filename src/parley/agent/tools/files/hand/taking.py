"""A whole file, byte for byte, to be sent to someone."""

from __future__ import annotations

import base64
import os

from .beneath import Refused, Root, open_regular, shown

__all__ = ["take"]

_LARGEST = 20 * 1024 * 1024


def take(root: Root, path: str) -> str:
    """What is in the file, in base64."""
    with root.find(path) as place:
        if place.missing or place.name is None:
            raise Refused(f"There is no file {shown(path)} in the workspace.")
        handle = open_regular(place.name, place.folder)
    with os.fdopen(handle, "rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise Refused(f"{shown(path)} is larger than {_LARGEST // 1024**2} MB: send a smaller one.")
    if not data:
        raise Refused(f"{shown(path)} is empty.")
    return base64.b64encode(data).decode()
