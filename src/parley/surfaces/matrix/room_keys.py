"""Room keys: every device in an encrypted room gets the key before a message is encrypted with it.

matrix-nio keeps devices, sessions and ratchets. What is asked of the homeserver, and when a key
counts as shared, is decided here: nio forgets a change of devices that comes while it asks for
them, and counts a key as shared with devices that it could not be sent to.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from uuid import uuid4

from parley.surfaces.matrix.errors import MatrixFault

if TYPE_CHECKING:
    from nio import AsyncClient
    from nio.crypto import OutboundGroupSession

__all__ = ["RoomKeys"]

_log = logging.getLogger("parley.matrix")

_ROUNDS: Final = 8
_ASK_AGAIN: Final = 30.0
_LONGEST_PAUSE: Final = 3600.0
_TOO_FAST: Final = "The devices in this room change too fast to share a key with all of them."

_Device = tuple[str, str]
"""As (user, device)."""
_Call = Callable[..., Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class _Unreached:
    """Devices in a room that did not get its key, as they had no one-time key for us."""

    devices: frozenset[_Device]
    attempts: int
    again_at: float


class RoomKeys:
    """One for a connection. `call` is `Connection.call`."""

    def __init__(self, nio: AsyncClient, call: _Call) -> None:
        self._nio = nio
        self._call = call
        self._querying = asyncio.Lock()
        self._asked: frozenset[str] = frozenset()
        """Users whose devices are asked for just now."""
        self._unanswered: dict[str, float] = {}
        """Users whose homeserver did not tell their devices, and when to ask again."""
        self._sharing: dict[str, asyncio.Lock] = {}
        self._unreached: dict[str, _Unreached] = {}

    # ── devices ──

    def note_changes(self, users: Iterable[str]) -> None:
        """Users whose devices have changed. nio knows of those in encrypted rooms only: the others
        are asked for as soon as they are in one.
        """
        olm = self._nio.olm
        for user in users:
            self._unanswered.pop(user, None)
            if user not in olm.users_for_key_query:
                olm.tracked_users.discard(user)

    async def refresh(self, users: Collection[str] | None = None) -> None:
        """Ask for the devices of users (of all, if left out) that are not known or have changed.

        One query at a time: an older answer that came last would take new devices away.
        """
        for _ in range(_ROUNDS):
            if not self._is_stale(users):
                return
            async with self._querying:
                if due := self._due(users):
                    await self._query(due)
        raise MatrixFault(_TOO_FAST)

    def _due(self, users: Collection[str] | None) -> frozenset[str]:
        pending: set[str] = self._nio.olm.users_for_key_query
        if not pending:
            return frozenset()
        now, unanswered = time.monotonic(), self._unanswered
        wanted = pending if users is None else pending.intersection(users)
        return frozenset(user for user in wanted if unanswered.get(user, 0.0) <= now)

    def _is_stale(self, users: Collection[str] | None) -> bool:
        return bool(self._due(users)) or bool(
            self._asked if users is None else self._asked.intersection(users)
        )

    async def _query(self, users: frozenset[str]) -> None:
        pending: set[str] = self._nio.olm.users_for_key_query
        pending -= users
        self._asked = users
        try:
            body: dict[str, Any] = {"device_keys": {user: [] for user in sorted(users)}}
            told = _by_user(await self._call("POST", "/v3/keys/query", body), "device_keys")
            # Who is pending now has changed since the question: nio would forget it.
            changed = set(pending)
            await self._learn(told)
            pending |= changed
        except BaseException:
            pending |= users
            raise
        finally:
            self._asked = frozenset()
        unknown = users - told.keys()
        pending |= unknown
        self._unanswered.update(dict.fromkeys(unknown, time.monotonic() + _ASK_AGAIN))

    async def _learn(self, told: Mapping[str, Mapping[str, Any]]) -> None:
        """Hand the devices to nio. One with broken keys must not cost the others theirs."""
        from nio import KeysQueryResponse

        known = self._nio.olm.device_store
        devices: dict[str, dict[str, Any]] = {}
        for user, theirs in told.items():
            # nio would not take a device back that was gone for a while.
            for gone in [each.id for each in known[user].values() if each.deleted]:
                del known[user][gone]
            devices[user] = {
                device: keys
                for device, keys in theirs.items()
                if self._is_whole(user, device, keys)
            }
        if not await self._received(KeysQueryResponse, {"device_keys": devices}):
            raise MatrixFault("The homeserver's answer about devices cannot be understood.")

    def _is_whole(self, user: str, device: str, keys: Any) -> bool:
        """Whether nio can read a device's keys: it stumbles over those that are none."""
        from nio import KeysQueryResponse

        try:
            parsed = KeysQueryResponse.from_dict({"device_keys": {user: {device: keys}}})
            signing = keys["keys"][f"ed25519:{device}"]
            whole = (
                isinstance(parsed, KeysQueryResponse)
                and isinstance(keys["user_id"], str)
                and isinstance(keys.get("unsigned", {}), dict)
                and self._nio.olm.verify_json(keys, signing, user, device)
            )
        except Exception:  # noqa: BLE001 - a foreign library on strangers' data
            whole = False
        if not whole:
            _log.warning("device_keys_broken", extra={"user": user, "device": device})
        return bool(whole)

    # ── keys ──

    async def share(self, room_id: str) -> None:
        """See to it that every device in the room has the key that is encrypted with next.

        It does not pause between its last look at the devices and its return, so whoever encrypts
        at once does it for all that are known.
        """
        async with self._sharing.setdefault(room_id, asyncio.Lock()):
            try:
                for _ in range(_ROUNDS):
                    if await self._is_shared(room_id):
                        return
            finally:
                # What was not shared with everyone is not used.
                session = self._nio.olm.outbound_group_sessions.get(room_id)
                if session is not None and not session.shared:
                    self.forget(room_id)
            raise MatrixFault(_TOO_FAST)

    async def _is_shared(self, room_id: str) -> bool:
        """One attempt; False when it is to be made again, as something changed meanwhile."""
        await self._know_members(room_id)
        await self.refresh(self._members(room_id))
        session = self._nio.olm.outbound_group_sessions.get(room_id)
        if session is not None and session.shared and not session.expired:
            if not self._has_unreached(room_id):
                return True
            if not await self._reaches_more(room_id):
                return False
            self.forget(room_id)
        return await self._hand_out(room_id)

    def forget(self, room_id: str) -> None:
        """The next message in this room is encrypted with a new key."""
        self._nio.olm.outbound_group_sessions.pop(room_id, None)

    async def _know_members(self, room_id: str) -> None:
        """The first time; an answer that is older than what a sync told is asked for again."""
        from nio import JoinedMembersResponse

        rooms = self._nio.rooms
        while (room := rooms.get(room_id)) is not None and not room.members_synced:
            before = set(room.users)
            told = await self._call("GET", f"/v3/rooms/{quote(room_id, safe='')}/joined_members")
            if rooms.get(room_id) is room and set(room.users) == before:
                answer = JoinedMembersResponse.from_dict(told, room_id)
                if not isinstance(answer, JoinedMembersResponse):
                    raise MatrixFault("The homeserver's answer about members is not understood.")
                await self._nio.receive_response(answer)

    def _members(self, room_id: str) -> Collection[str]:
        room = self._nio.rooms.get(room_id)
        if room is None:
            raise MatrixFault("The agent is not in this room any more.")
        members: Collection[str] = room.users.keys()
        return members

    def _devices(self, room_id: str) -> set[_Device]:
        known = self._nio.olm.device_store
        return {
            (user, device.id)
            for user in self._members(room_id)
            for device in known.active_user_devices(user)
        }

    async def _hand_out(self, room_id: str) -> bool:
        """Send a key to all that are there; False when it is to be done again, as others are."""
        olm = self._nio.olm
        found = olm.outbound_group_sessions.get(room_id)
        if found is not None and (found.shared or found.expired):
            olm.outbound_group_sessions.pop(room_id)
        tried = await self._claim(olm.get_missing_sessions(list(self._members(room_id))))
        messages = olm.share_group_session_parallel(
            room_id, list(self._members(room_id)), ignore_unverified_devices=True
        )
        parts = list(messages)
        session: OutboundGroupSession = olm.outbound_group_sessions[room_id]
        sent = await asyncio.gather(
            *(self._send_key(session, *each) for each in parts), return_exceptions=True
        )
        for failure in sent:
            if failure is not None:
                raise failure
        there = self._devices(room_id)
        if session.users_shared_with - there:
            # Who left meanwhile has it, and must not read on.
            self.forget(room_id)
            return False
        missed = there - session.users_shared_with - session.users_ignored
        is_ours = olm.outbound_group_sessions.get(room_id) is session
        if not is_ours or missed - tried or self._is_stale(self._members(room_id)):
            return False
        session.mark_as_shared()
        self._note_unreached(room_id, missed)
        return True

    async def _send_key(
        self, session: OutboundGroupSession, devices: set[_Device], body: Mapping[str, Any]
    ) -> None:
        await self._call("PUT", f"/v3/sendToDevice/m.room.encrypted/{uuid4()}", body)
        session.users_shared_with.update(devices)

    # ── devices that had no one-time key ──

    async def _claim(self, wanted: Mapping[str, Collection[str]]) -> set[_Device]:
        """Begin a session with each of these devices; returns those that were tried."""
        from nio import KeysClaimResponse

        if not wanted:
            return set()
        kind, part = "signed_curve25519", "one_time_keys"
        keys = {user: dict.fromkeys(devices, kind) for user, devices in wanted.items()}
        told = _by_user(await self._call("POST", "/v3/keys/claim", {part: keys}), part)
        for user, devices in told.items():
            for device, key in devices.items():  # alone: one that is broken stops the others
                await self._received(KeysClaimResponse, {part: {user: {device: key}}})
        return {(user, device) for user, devices in wanted.items() for device in devices}

    def _note_unreached(self, room_id: str, devices: set[_Device]) -> None:
        known = self._unreached.pop(room_id, None)
        if devices:
            attempts = known.attempts + 1 if known is not None and devices <= known.devices else 0
            pause = min(_LONGEST_PAUSE, _ASK_AGAIN * 2.0 ** min(attempts, 16))
            again_at = time.monotonic() + pause
            self._unreached[room_id] = _Unreached(frozenset(devices), attempts, again_at)
            _log.info("devices_without_room_key", extra={"room": room_id, "count": len(devices)})

    def _has_unreached(self, room_id: str) -> bool:
        """Whether it is time to try the devices again that could not be given the key."""
        known = self._unreached.get(room_id)
        return known is not None and known.again_at <= time.monotonic()

    async def _reaches_more(self, room_id: str) -> bool:
        """Try the devices again that could not be given the key; whether one of them can be."""
        there = self._unreached[room_id].devices & self._devices(room_id)
        wanted: dict[str, list[str]] = {}
        for user, device in sorted(there):
            wanted.setdefault(user, []).append(device)
        try:
            await self._claim(wanted)
        except MatrixFault as fault:
            _log.info("keys_not_claimed", extra={"room": room_id, "reason": str(fault)})
        there &= self._devices(room_id)
        sessions, devices = self._nio.olm.session_store, self._nio.olm.device_store
        if any(sessions.get(devices[user][device].curve25519) for user, device in there):
            return True
        self._note_unreached(room_id, set(there))
        return False

    # ── what nio makes of an answer ──

    async def _received(self, kind: Any, answer: Mapping[str, Any]) -> bool:
        try:
            parsed = kind.from_dict(answer)
            if isinstance(parsed, kind):
                await self._nio.receive_response(parsed)
                return True
        except Exception as error:  # noqa: BLE001 - a foreign library on strangers' data
            _log.debug("keys_not_taken", extra={"reason": type(error).__name__})
        return False


def _by_user(told: Mapping[str, Any], part: str) -> dict[str, Mapping[str, Any]]:
    users = told.get(part)
    if not isinstance(users, Mapping):
        raise MatrixFault("The homeserver's answer about keys cannot be understood.")
    return {user: theirs for user, theirs in users.items() if isinstance(theirs, Mapping)}
