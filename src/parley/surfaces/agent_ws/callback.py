"""What is said outside of any answer: a reply from the outbox, as a frame."""

from __future__ import annotations

import asyncio
from typing import Any

from parley.storage.contract import Delivery
from parley.surfaces.agent_ws.files import note_of, read_file

__all__ = ["callback_frame", "callback_id"]


def callback_id(delivery: Delivery) -> str:
    """The same for the same reply, however often it is sent, and for no other."""
    return f"{delivery.session}:{delivery.dedupe}"


async def callback_frame(
    delivery: Delivery, id: str, *, pending: int, takes_files: bool
) -> dict[str, Any]:
    files: list[dict[str, Any]] = []
    notes: list[str] = []
    for file in delivery.attachments:
        made = await asyncio.to_thread(read_file, file) if takes_files else note_of(file)
        if isinstance(made, str):
            notes.append(f"[{made}]")
        else:
            files.append(made)
    text = "\n\n".join([delivery.text, *(["\n".join(notes)] if notes else [])])
    frame: dict[str, Any] = {"type": "CALLBACK", "id": id, "text": text, "pending": pending}
    return frame | ({"attachments": files} if files else {})
