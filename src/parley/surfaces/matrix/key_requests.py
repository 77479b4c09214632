"""Asking other devices for the key of a message."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from parley.surfaces.matrix.connection import Connection, MatrixFault, part

__all__ = ["ask_for_key"]

_log = logging.getLogger("parley.matrix")


async def ask_for_key(connection: Connection, room_id: str, event: Mapping[str, Any]) -> None:
    """Ask our own other devices, and the one that sent the message. Nobody need answer."""
    await _ask_our_own(connection, room_id, event)
    await _ask_the_sender(connection, room_id, event)


async def _ask_our_own(connection: Connection, room_id: str, event: Mapping[str, Any]) -> None:
    from nio import Event, MegolmEvent

    nio = connection.nio
    try:
        sealed = Event.parse_event({**event, "room_id": room_id})
        if isinstance(sealed, MegolmEvent) and (sealed.session_id not in nio.outgoing_key_requests):
            await nio.request_room_key(sealed)
    except Exception as error:  # noqa: BLE001 - a foreign library on strangers' data
        _log.debug("key_not_asked_for", extra={"reason": type(error).__name__})


async def _ask_the_sender(connection: Connection, room_id: str, event: Mapping[str, Any]) -> None:
    content = event["content"]
    names = ("algorithm", "sender_key", "session_id")
    wanted = {name: content[name] for name in names if isinstance(content.get(name), str)}
    device, sender = content.get("device_id"), event.get("sender")
    if "session_id" not in wanted or not isinstance(sender, str):
        return
    told = f"{connection.account.device_id}:{room_id}:{wanted['session_id']}"
    request_id = hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()[:32]
    request = {
        "action": "request",
        "body": {**wanted, "room_id": room_id},
        "request_id": request_id,
        "requesting_device_id": connection.account.device_id,
    }
    device = device if isinstance(device, str) and device else "*"
    path = f"/v3/sendToDevice/m.room_key_request/{part(f'ask-{request_id}')}"
    try:
        await connection.call("PUT", path, {"messages": {sender: {device: request}}})
    except MatrixFault as fault:
        _log.debug("key_not_asked_for", extra={"reason": str(fault)})
