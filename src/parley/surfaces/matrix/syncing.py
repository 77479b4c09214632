"""Following the homeserver: batch after batch of what happened, nothing twice and nothing lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from parley.surfaces.matrix.backfill import fill_gap, sent_at, since_we_came
from parley.surfaces.matrix.connection import Connection, MatrixFault
from parley.surfaces.matrix.device_keys import KeysLost, upload_keys
from parley.surfaces.matrix.receiving import hand_over, is_sealed, open_event

__all__ = ["Batch", "Syncing"]

_log = logging.getLogger("parley.matrix")

_POLL: Final = 30.0
_FIRST_WITHIN: Final = 300.0
_TELL_AFTER: Final = 5.0
_SHORTEST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
_SIGNED_OUT_PAUSE: Final = 60.0
_CLOCKS_DIFFER: Final = 60_000.0
_SIGNED_OUT: Final = frozenset({"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED"})
_FILTER: Final = json.dumps(
    {
        "presence": {"types": []},
        "account_data": {"types": []},
        "room": {
            "account_data": {"types": []},
            "ephemeral": {"types": []},
            "state": {"lazy_load_members": False},
            "timeline": {"limit": 50, "lazy_load_members": False},
        },
    },
    separators=(",", ":"),
)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one sync brought. `since` is to be kept together with what was made of it."""

    since: str
    events: Sequence[tuple[str, dict[str, Any]]] = ()
    """As (room, event), decrypted, each room's in the order they were sent."""
    unread: Sequence[tuple[str, dict[str, Any]]] = ()
    """Those that could not be decrypted."""
    invites: Mapping[str, Sequence[dict[str, Any]]] = field(default_factory=dict)
    """The `invite_state` of the rooms that we are asked into."""
    left: Mapping[str, dict[str, Any] | None] = field(default_factory=dict)
    """Rooms that we are no longer in, each with the event that says why."""
    keys_arrived: bool = False
    missed: frozenset[str] = frozenset()
    """Rooms in which more was said than was fetched: the oldest of it is not in `events`."""
    first: bool = False
    """The first one after a start."""


class Syncing:
    """One for a connection.

    await syncing.bootstrap(since)
    async for batch in syncing.batches():
        ...  # keep batch.since with the messages

    A batch is behind us when the next one is asked for. Whoever leaves the loop because it could
    not be kept is given the same one again.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        poll_seconds: float = _POLL,
        log_in: str = "parley matrix login",
    ) -> None:
        self._connection = connection
        self._poll = poll_seconds
        self._log_in = log_in
        self._since: str | None = None
        self._pending: Batch | None = None
        self._tending: asyncio.Task[None] | None = None
        self._tell: Callable[[str | None], None] = lambda _fault: None
        self._fault: str | None = None
        self._lost: str | None = None
        self._seen: float | None = None

    def on_state(self, callback: Callable[[str | None], None]) -> None:
        """Called with a sentence when the homeserver is away, and with None when it is back."""
        self._tell = callback

    @property
    def fault(self) -> str | None:
        """Why nothing comes just now, or nothing that is encrypted."""
        return self._fault or self._lost

    async def bootstrap(self, since: str | None, *, seen: float | None = None) -> None:
        """Learn the state of all rooms; comes back when the homeserver has answered.

        Without a token, or with one that the homeserver does not know, all that was said after
        the time `seen` is in the first batch. Without that too, what was said is history.
        """
        self._seen = seen
        # The first answer may take long, and nobody shall think that all is well meanwhile.
        loop = asyncio.get_running_loop()
        slow = loop.call_later(_TELL_AFTER, self._say, "The homeserver has not answered yet.")
        try:
            batch = await self._until_answered(since, first=True)
        finally:
            slow.cancel()
        await self._tend()
        self._pending = batch

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """One batch after another, for ever; the first is what `bootstrap` found."""
        while True:
            if self._pending is None:
                self._tend_beside()
                self._pending = await self._until_answered(self._since, first=False)
            yield self._pending
            self._since, self._pending = self._pending.since, None

    async def close(self) -> None:
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.gather(self._tending, return_exceptions=True)

    # ── asking ──

    async def _until_answered(self, since: str | None, *, first: bool) -> Batch:
        attempt = 0
        while True:
            try:
                batch = await self._sync(since, first=first, waits=attempt == 0)
            except MatrixFault as fault:
                if first and since is not None and fault.status == 400:
                    _log.warning("sync_token_unknown", extra={"reason": str(fault)})
                    since = None
                    continue
                self._say_away(fault)
                await asyncio.sleep(_pause(attempt, fault))
                attempt += 1
            else:
                self._say(None)
                return batch

    async def _sync(self, since: str | None, *, first: bool, waits: bool) -> Batch:
        """One that was away is not waited with: it is known at once that it is back."""
        query = {"filter": _FILTER}
        if since is not None:
            query["since"] = since
        if first:
            query |= {"full_state": "true", "timeout": "0"}
            within = _FIRST_WITHIN
        else:
            query["timeout"] = str(int(self._poll * 1000) if waits else 0)
            within = self._poll + 15.0
        answer = await self._connection.call("GET", "/v3/sync", query=query, timeout=within)
        if not isinstance(answer.get("next_batch"), str):
            raise MatrixFault("What answers there is no Matrix homeserver.")
        try:
            return await self._read(answer, since, first=first)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise MatrixFault("The homeserver's answer cannot be understood.") from error

    async def _read(self, answer: Mapping[str, Any], since: str | None, *, first: bool) -> Batch:
        nio = self._connection.nio
        # nio takes invitations to pieces while it reads them.
        invites = {
            room_id: tuple(deepcopy(room.get("invite_state", {}).get("events", ())))
            for room_id, room in answer.get("rooms", {}).get("invite", {}).items()
        }
        timelines, keys_arrived = await hand_over(nio, answer)
        self._note_devices(answer.get("device_lists"))
        self._note_encrypted(timelines)
        rooms = answer.get("rooms", {})
        events: list[tuple[str, dict[str, Any]]] = []
        missed = set[str]()
        is_history = since is None and self._seen is None
        for room_id, timeline in timelines.items() if not is_history else ():
            before = rooms["join"][room_id].get("timeline", {})
            whole, cut = await self._whole(room_id, timeline, before, since)
            events.extend((room_id, event) for event in whole)
            if cut:
                missed.add(room_id)
        return Batch(
            since=answer["next_batch"],
            events=tuple(each for each in events if not is_sealed(each[1])),
            unread=tuple(each for each in events if is_sealed(each[1])),
            invites=invites,
            left=self._leave(rooms.get("leave", {})),
            keys_arrived=keys_arrived,
            missed=frozenset(missed),
            first=first,
        )

    async def _whole(
        self,
        room_id: str,
        timeline: Sequence[dict[str, Any]],
        told: Mapping[str, Any],
        since: str | None,
    ) -> tuple[Sequence[dict[str, Any]], bool]:
        """The timeline with what is missing before it, and whether that is not all."""
        us, earlier, cut = self._connection.user_id, list[dict[str, Any]](), False
        after = 0.0 if since is not None else (self._seen or 0.0) - _CLOCKS_DIFFER
        before = told.get("prev_batch")
        if told.get("limited") is True and isinstance(before, str):
            came = len(since_we_came(timeline, us)) < len(timeline)
            is_old = bool(timeline) and sent_at(timeline[0]) <= after
            if not came and not is_old:
                earlier, cut = await fill_gap(
                    self._connection, room_id, since=since, before=before, newer_than=after
                )
        nio, known = self._connection.nio, {event.get("event_id") for event in timeline}
        opened = [
            open_event(nio, room_id, event)
            for event in earlier
            if event.get("event_id") not in known
        ]
        whole = since_we_came([*opened, *timeline], us)
        return [event for event in whole if since is not None or sent_at(event) > after], cut

    # ── rooms ──

    def _note_encrypted(self, rooms: Mapping[str, object]) -> None:
        for room_id in rooms:
            room = self._connection.nio.rooms.get(room_id)
            if room is not None and room.encrypted:
                self._connection.note_encrypted(room_id)

    def _leave(self, rooms: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any] | None]:
        """nio keeps rooms that we have left as if we were in them."""
        nio, us = self._connection.nio, self._connection.user_id
        left: dict[str, dict[str, Any] | None] = {}
        for room_id, room in rooms.items():
            nio.rooms.pop(room_id, None)
            nio.invited_rooms.pop(room_id, None)
            events = room.get("timeline", {}).get("events", [])
            about_us = (
                {**event, "room_id": room_id}
                for event in reversed(events)
                if event.get("type") == "m.room.member" and event.get("state_key") == us
            )
            left[room_id] = next(about_us, None)
        return left

    # ── keys ──

    def _note_devices(self, changes: object) -> None:
        if isinstance(changes, Mapping):
            users = [*(changes.get("changed") or ()), *(changes.get("left") or ())]
            self._connection.keys.note_changes(user for user in users if isinstance(user, str))

    def _tend_beside(self) -> None:
        if self._tending is None or self._tending.done():
            self._tending = asyncio.create_task(self._tend())

    async def _tend(self) -> None:
        """What has to be sent so that others can write to us, and we to them."""
        for step in (self._send_waiting, self._upload_keys, self._connection.keys.refresh):
            try:
                await step()
            except Exception as error:  # noqa: BLE001 - tried again beside the next sync
                _log.warning("keys_not_tended", extra={"reason": type(error).__name__})

    async def _send_waiting(self) -> None:
        """Key requests, and new sessions in the place of broken ones."""
        nio = self._connection.nio
        if nio.should_claim_keys:
            await nio.keys_claim(nio.get_users_for_key_claiming())
        await nio.send_to_device_messages()

    async def _upload_keys(self) -> None:
        try:
            await upload_keys(self._connection)
        except KeysLost as lost:
            self._lost = str(lost)
        else:
            self._lost = None

    # ── away and back ──

    def _say_away(self, fault: MatrixFault) -> None:
        if fault.code in _SIGNED_OUT:
            self._say(
                "The homeserver does not know this device any more; log in again with "
                f"`{self._log_in}`."
            )
        elif fault.status != 429:
            self._say(str(fault))

    def _say(self, fault: str | None) -> None:
        if fault == self._fault:
            return
        self._fault = fault
        if fault is None:
            _log.info("homeserver_back")
        else:
            _log.warning("homeserver_away", extra={"reason": fault})
        with contextlib.suppress(Exception):  # whoever listens does not stop us
            self._tell(fault)


def _pause(attempt: int, fault: MatrixFault) -> float:
    """Longer from attempt to attempt, and never shorter than the server asks for."""
    longest = min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2.0 ** min(attempt, 8))
    pause: float = longest * random.uniform(0.7, 1.0)  # noqa: S311 - jitter
    if fault.code in _SIGNED_OUT:
        pause = max(pause, _SIGNED_OUT_PAUSE)
    return max(pause, fault.after or 0.0)
