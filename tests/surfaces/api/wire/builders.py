"""Requests and files for the tests of the wire formats."""

from __future__ import annotations

import base64
from typing import Any

from parley.protocol import Attachment

__all__ = ["GIF", "HI", "JPEG", "PDF", "PNG", "WEBP", "Kept", "a_tool", "data_url", "user"]

PNG = b"\x89PNG\r\n\x1a\n and more"
JPEG = b"\xff\xd8\xff\xe0 and more"
GIF = b"GIF89a and more"
WEBP = b"RIFF\x00\x00\x00\x00WEBPVP8 "
PDF = b"%PDF-1.7 and more"


class Kept:
    """Keeps files in memory, and counts them."""

    def __init__(self) -> None:
        self.files: list[tuple[str, str, bytes]] = []

    def __call__(self, name: str, media_type: str, data: bytes) -> Attachment:
        self.files.append((name, media_type, data))
        return Attachment(name, media_type, f"/kept/{len(self.files)}", len(data))


def data_url(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


HI = user("hi")


def a_tool(name: str = "weather") -> dict[str, Any]:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    return {"name": name, "description": "The weather.", "parameters": schema}
