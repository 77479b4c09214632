"""What a sync answers is handed to nio, which keeps rooms, devices and keys and decrypts.

One event that nio stumbles over must not cost the others: anyone may send us such a one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from parley.surfaces.matrix.connection import MatrixFault
from parley.surfaces.matrix.incoming import WAS_ENCRYPTED

if TYPE_CHECKING:
    from nio import AsyncClient, RoomInfo, SyncResponse

__all__ = ["hand_over", "has_key", "is_sealed", "open_event"]

_log = logging.getLogger("parley.matrix")

_ENCRYPTED: Final = "m.room.encrypted"
_NEVER_SEALED: Final = frozenset({_ENCRYPTED, "m.room.redaction"})
"""The server checks who may take what back, which it cannot do where it cannot read it."""


async def hand_over(
    nio: AsyncClient, answer: Mapping[str, Any]
) -> tuple[dict[str, list[dict[str, Any]]], bool]:
    """Take a sync's answer in.

    Returns the timelines of the rooms we are in, with everything decrypted that can be, and
    whether keys came with it.
    """
    from nio import ForwardedRoomKeyEvent, RoomKeyEvent

    parsed = await asyncio.to_thread(_parse, answer)
    try:
        await _receive(nio, parsed)
    except Exception as error:  # noqa: BLE001 - a foreign library on strangers' data
        _log.warning("sync_stumbled", extra={"reason": type(error).__name__})
        await _receive_in_pieces(nio, parsed)
    _count_keys(nio, answer)
    timelines: dict[str, list[dict[str, Any]]] = {}
    for room_id, room in _rooms(answer, "join").items():
        read = parsed.rooms.join[room_id].timeline.events
        raw = room.get("timeline", {}).get("events", [])
        timelines[room_id] = [
            _opened(nio, room_id, event, shown)
            for event, shown in zip(raw, read, strict=True)
            if isinstance(event, dict)
        ]
    keys = any(
        isinstance(event, RoomKeyEvent | ForwardedRoomKeyEvent) for event in parsed.to_device_events
    )
    return timelines, keys


def open_event(nio: AsyncClient, room_id: str, event: Mapping[str, Any]) -> dict[str, Any]:
    """An event that came by another way than a sync, decrypted if that can be done."""
    from nio import Event, MegolmEvent

    plain = {**event, "room_id": room_id, WAS_ENCRYPTED: False}
    if not is_sealed(plain):
        return plain
    content = dict(event["content"])
    if not content.get("sender_key"):
        content["sender_key"] = _sender_key(nio, room_id, content.get("session_id"))
    content.setdefault("device_id", "")
    try:
        sealed = Event.parse_event({**event, "room_id": room_id, "content": content})
        if not isinstance(sealed, MegolmEvent):
            return plain
        return _merged(nio, plain, nio.decrypt_event(sealed).source, content["sender_key"])
    except Exception as error:  # noqa: BLE001 - as above
        _log.debug("still_sealed", extra={"reason": type(error).__name__})
        return plain


def is_sealed(event: Mapping[str, Any]) -> bool:
    """Whether there is something in it that we cannot read."""
    content = event.get("content")
    return (
        event.get("type") == _ENCRYPTED
        and isinstance(content, Mapping)
        and bool(content.get("ciphertext"))
        and "state_key" not in event
    )


def has_key(nio: AsyncClient, room_id: str, session_id: str) -> bool:
    """Whether a session that messages were encrypted with is known to us."""
    return bool(_sender_key(nio, room_id, session_id))


# ── reading it ────────────────────────────────────────────────────────────────────────────────


def _parse(answer: Mapping[str, Any]) -> SyncResponse:
    from nio import SyncResponse

    try:
        parsed = SyncResponse.from_dict(answer)
    except Exception:  # noqa: BLE001 - as above
        parsed = None
    if not isinstance(parsed, SyncResponse):
        parsed = SyncResponse.from_dict(_without_broken(answer))
    if not isinstance(parsed, SyncResponse):
        raise MatrixFault("The homeserver's answer to a sync cannot be understood.")
    return parsed


def _without_broken(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer without the events that nio cannot even read."""
    from nio import Event, InviteEvent, ToDeviceEvent

    def fit(section: object, parse: Callable[[Any], object]) -> dict[str, Any]:
        events = section.get("events") if isinstance(section, Mapping) else None
        return {"events": [each for each in events or () if _is_readable(each, parse)]}

    def stubbed(timeline: Mapping[str, Any]) -> dict[str, Any]:
        events = [
            each if _is_readable(each, Event.parse_event) else _STUB
            for each in timeline.get("events", ())
        ]
        return {**timeline, "events": events}

    return {
        "next_batch": answer["next_batch"],
        "device_one_time_keys_count": answer.get("device_one_time_keys_count", {}),
        "device_lists": answer.get("device_lists", {}),
        "to_device": fit(answer.get("to_device"), ToDeviceEvent.parse_event),
        "rooms": {
            "join": {
                room_id: {
                    "state": fit(room.get("state"), Event.parse_event),
                    "timeline": stubbed(room.get("timeline", {})),
                    "summary": room.get("summary", {}),
                }
                for room_id, room in _rooms(answer, "join").items()
            },
            "invite": {
                room_id: {"invite_state": fit(room.get("invite_state"), InviteEvent.parse_event)}
                for room_id, room in _rooms(answer, "invite").items()
            },
        },
    }


_STUB: Final = {
    "type": "org.parley.unreadable",
    "event_id": "$unreadable",
    "sender": "@unreadable:invalid",
    "origin_server_ts": 0,
    "content": {},
}


def _is_readable(event: object, parse: Callable[[Any], object]) -> bool:
    try:
        parse(event)
    except Exception:  # noqa: BLE001 - as above
        return False
    return True


# ── taking it in ──────────────────────────────────────────────────────────────────────────────


async def _receive(nio: AsyncClient, parsed: SyncResponse) -> None:
    # An answer whose token it knows already is passed over by nio, even if it is the first one
    # after a start, or one that it did not get to the end of.
    nio.next_batch = ""
    await nio.receive_response(parsed)


async def _receive_in_pieces(nio: AsyncClient, parsed: SyncResponse) -> None:
    """The same, each to-device event and each room alone: what breaks is left out.

    What was taken in before is taken in again, which changes nothing.
    """
    from nio import DeviceList, DeviceOneTimeKeyCount, Rooms, SyncResponse

    def piece(
        rooms: Mapping[str, RoomInfo] | None = None, to_device: Sequence[Any] = ()
    ) -> SyncResponse:
        return SyncResponse(
            parsed.next_batch,
            Rooms({}, dict(rooms or {}), {}),
            DeviceOneTimeKeyCount(None, None),
            DeviceList([], []),
            list(to_device),
            [],
        )

    for at, event in enumerate(parsed.to_device_events):
        alone = piece(to_device=[event])
        await _receive_if_possible(nio, alone)
        parsed.to_device_events[at] = alone.to_device_events[0]
    for room_id, room in parsed.rooms.join.items():
        if not await _receive_if_possible(nio, piece({room_id: room})):
            await _receive_room_in_pieces(nio, room, partial(_in_room, piece, room_id))
    rest = piece()
    rest.rooms.invite = parsed.rooms.invite
    rest.device_key_count, rest.device_list = parsed.device_key_count, parsed.device_list
    await _receive_if_possible(nio, rest)


def _in_room(
    piece: Callable[[Mapping[str, RoomInfo]], SyncResponse], room_id: str, info: RoomInfo
) -> SyncResponse:
    return piece({room_id: info})


async def _receive_room_in_pieces(
    nio: AsyncClient, room: RoomInfo, piece: Callable[[RoomInfo], SyncResponse]
) -> None:
    from nio import RoomInfo, Timeline

    def info(state: Sequence[Any], events: list[Any]) -> RoomInfo:
        return RoomInfo(Timeline(events, False, None), list(state), [], [], room.summary)

    for event in room.state:
        await _receive_if_possible(nio, piece(info([event], [])))
    for at, event in enumerate(room.timeline.events):
        alone = info([], [event])
        await _receive_if_possible(nio, piece(alone))
        room.timeline.events[at] = alone.timeline.events[0]


async def _receive_if_possible(nio: AsyncClient, parsed: SyncResponse) -> bool:
    try:
        await _receive(nio, parsed)
    except Exception as error:  # noqa: BLE001 - as above
        _log.debug("sync_piece_left_out", extra={"reason": type(error).__name__})
        return False
    return True


def _count_keys(nio: AsyncClient, answer: Mapping[str, Any]) -> None:
    """nio takes no notice of a count of 0, and would never make new one-time keys then."""
    counts = answer.get("device_one_time_keys_count")
    if isinstance(counts, Mapping) and counts.get("signed_curve25519") == 0 and nio.olm:
        nio.olm.uploaded_key_count = 0


# ── what was decrypted ────────────────────────────────────────────────────────────────────────


def _opened(nio: AsyncClient, room_id: str, event: dict[str, Any], shown: object) -> dict[str, Any]:
    plain = {**event, "room_id": room_id, WAS_ENCRYPTED: False}
    if not is_sealed(event):
        return plain
    source = getattr(shown, "source", None)
    if isinstance(source, Mapping) and source.get("type") != _ENCRYPTED:
        return _merged(nio, plain, source, event["content"].get("sender_key"))
    if not event["content"].get("sender_key"):  # newer clients may leave it out; nio cannot
        return open_event(nio, room_id, event)
    return plain


def _merged(
    nio: AsyncClient, event: Mapping[str, Any], opened: Mapping[str, Any], sender_key: object
) -> dict[str, Any]:
    """The event with what was inside it: only that is the sender's own word."""
    kind, content = opened.get("type"), opened.get("content")
    if not isinstance(kind, str) or kind in _NEVER_SEALED or not isinstance(content, Mapping):
        kind, content = "org.parley.unreadable", {}
    if _is_anothers(nio, event.get("sender"), sender_key):
        _log.warning("sealed_by_another", extra={"sender": str(event.get("sender"))[:255]})
        kind, content = "org.parley.unreadable", {}
    return {**event, "type": kind, "content": dict(content), WAS_ENCRYPTED: True}


def _is_anothers(nio: AsyncClient, sender: object, sender_key: object) -> bool:
    """Whether a device of somebody else has sealed it: a homeserver may name any sender."""
    owners = {each.user_id for each in nio.device_store if each.curve25519 == sender_key}
    return bool(owners) and sender not in owners


def _sender_key(nio: AsyncClient, room_id: str, session_id: object) -> str:
    """Whose session it is, by its id alone."""
    if nio.olm is None:
        return ""
    for sender_key, sessions in nio.olm.inbound_group_store[room_id].items():
        if session_id in sessions:
            return str(sender_key)
    return ""


def _rooms(answer: Mapping[str, Any], which: str) -> Mapping[str, Mapping[str, Any]]:
    rooms = answer.get("rooms")
    found = rooms.get(which) if isinstance(rooms, Mapping) else None
    return found if isinstance(found, Mapping) else {}
