"""One account on Matrix while it is served: what it hears goes in, what is answered goes out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Final

from parley.config.surfaces import MatrixSettings
from parley.gateway.intake import FrontDoor
from parley.gateway.live import LiveEvent, TurnEnded
from parley.profiles import Profile
from parley.protocol import ParleyError, SessionSource
from parley.storage.contract import Delivery
from parley.storage.people import Chat
from parley.surfaces.base import Unreachable
from parley.surfaces.matrix.account import Account
from parley.surfaces.matrix.allowed import Allowed
from parley.surfaces.matrix.backfill import sent_at
from parley.surfaces.matrix.connection import Connection
from parley.surfaces.matrix.cross_signing import ensure_cross_signed
from parley.surfaces.matrix.errands import Errands
from parley.surfaces.matrix.hearing import Heard, Hearing, Replaced, TakenBack
from parley.surfaces.matrix.invites import Invites, read_invite
from parley.surfaces.matrix.membership import CameIn, Membership
from parley.surfaces.matrix.missed import MissedNotices, send_notice
from parley.surfaces.matrix.outgoing import Outgoing
from parley.surfaces.matrix.parked import Parked
from parley.surfaces.matrix.previews import Previews
from parley.surfaces.matrix.quoted import Quotes
from parley.surfaces.matrix.receipts import Receipts
from parley.surfaces.matrix.room_names import RoomNames
from parley.surfaces.matrix.rooms import CHAT, Rooms
from parley.surfaces.matrix.spaces import Spaces
from parley.surfaces.matrix.syncing import Batch, Syncing
from parley.surfaces.matrix.typing_notice import TypingNotice
from parley.surfaces.matrix.undecrypted import Unread
from parley.surfaces.matrix.upgrades import Moved, Upgrades

__all__ = ["Serving"]

_log = logging.getLogger("parley.matrix")

_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0


class Serving:
    """`open`, then `close`. In between it follows the homeserver, whatever becomes of that."""

    def __init__(
        self,
        account: Account,
        home: Path,
        profile: Profile,
        settings: MatrixSettings,
        *,
        allowed: Allowed,
        door: FrontDoor,
        log_in: str,
        tell: Callable[[str | None, str | None], None],
    ) -> None:
        self._home = home
        self._allowed = allowed
        self._door = door
        self._tell = tell
        self._mark = f"matrix:{account.user_id}:since"
        self._seen_mark = f"matrix:{account.user_id}:seen"
        self._seen: float | None = None
        """When the last event was sent that was taken in, as the homeserver tells."""
        self._unsigned: str | None = None
        self._task: asyncio.Task[None] | None = None
        self.is_ready = False
        connection = self._connection = Connection(account, home / "keys")
        rooms = self._rooms = Rooms(connection, door, RoomNames(door))
        self.spaces = Spaces(connection, door, rooms, settings, profile.name)
        self._syncing = Syncing(connection, log_in=log_in)
        self._syncing.on_state(lambda _fault: self._tell_fault())
        self._previews = Previews(connection, edit_seconds=settings.edit_seconds)
        self._quotes = Quotes(connection)
        self._hearing = Hearing(
            connection,
            rooms,
            self._quotes,
            allowed=allowed,
            settings=settings,
            attachments=profile.attachments,
            deleted=self._previews.deleted,
            stopped=self._tell_stopped,
        )
        self._notices = Errands("notice", at_once=1)
        self._missed = MissedNotices(connection, door, rooms)
        self._unread = Unread(
            connection, door, may_speak=allowed.may_speak, may_tell=self._is_one_persons
        )
        self._invites = Invites(connection, door, rooms, allowed)
        self._membership = Membership(connection, door, rooms)
        self._upgrades = Upgrades(connection, door, rooms, self._moved)
        self._parked = Parked(door)
        self._receipts = Receipts(connection)
        self._typing = TypingNotice(connection)
        self._outgoing = Outgoing(connection, self._previews, marks=door, thumbs=settings.thumbs)

    # ── life ──

    async def open(self) -> None:
        await self._connection.open()
        await self._rooms.load()
        self._task = asyncio.create_task(self._serve_for_ever(), name="matrix")

    async def close(self) -> None:
        self.is_ready = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        parts = (
            *(self._invites, self._upgrades, self._unread, self._syncing),
            *(self._previews, self._typing, self._receipts, self._notices, self._missed),
            self._connection,
        )
        for part in parts:
            await part.close()

    async def _serve_for_ever(self) -> None:
        """The supervisor: a fault is told, and it begins again with the batch that was not kept."""
        pause = _PAUSE
        begun = False
        while True:
            try:
                if not begun:
                    await self._begin()
                    begun = True
                async with aclosing(self._syncing.batches()) as batches:
                    async for batch in batches:
                        await self._take(batch)
                        pause = _PAUSE
            except ParleyError as error:
                _log.warning("matrix_waits", extra={"why": str(error), "again_in": pause})
            except Exception:  # noqa: BLE001 - the supervisor
                _log.exception("matrix_broke_off", extra={"again_in": pause})
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _begin(self) -> None:
        self._tell_fault()
        seen = await self._door.mark(self._seen_mark)
        self._seen = float(seen) if seen else None
        await self._syncing.bootstrap(await self._door.mark(self._mark), seen=self._seen)
        await self._unread.start()
        await self._missed.start()
        await self._invites.resume()
        await self._upgrades.resume()
        self.is_ready = True
        self._unsigned = await ensure_cross_signed(self._connection, self._home)
        self._tell_fault()

    # ── in ──

    async def _take(self, batch: Batch) -> None:
        """What a sync brought: all of it is durable before its place in the stream is."""
        await self._rooms.keep_encrypted()
        await self._follow_rooms(batch)
        found = await self._unread.take(batch)
        for room_id in {room_id for room_id, _ in batch.events}:
            await self._upgrades.settled(room_id)
        heard = await self._hearing.hear([*batch.events, *found.events])
        now = time.time() * 1000
        latest = (min(sent_at(event), now) for _, event in (*batch.events, *batch.unread))
        seen = max(latest, default=0.0 if self._seen is not None else now)
        self._seen = max(seen, self._seen or 0.0)
        missed = self._missed.marks(batch)
        place = {self._mark: batch.since, self._seen_mark: f"{self._seen:.0f}"}
        marks = {**found.marks, **missed, **place}
        plain = [each for each in heard if isinstance(each, Heard) and each.edits is None]
        changed = [each for each in heard if each not in plain]
        messages = [each.message for each in plain]
        if changed:
            # A message that was edited or deleted at once is there before it is taken back.
            await self._door.admit_all(messages, {})
            for each in changed:
                await self._change(each)
            await self._door.admit_all([], marks)
        else:
            await self._door.admit_all(messages, marks)
        self._unread.kept(found)
        self._missed.kept(missed)
        for each in heard:
            if isinstance(each, Heard):
                thread = each.message.source.thread_id
                self._receipts.read(each.room_id, each.message.event_id, thread)

    async def _change(self, heard: Heard | TakenBack | Replaced) -> None:
        match heard:
            case Replaced(room_id=room_id, by=new, sender=sender):
                await self._upgrades.take(room_id, new, sender)
            case TakenBack(source=source, event_id=event_id):
                await self._door.take_back(source, event_id)
            case Heard(message=message, edits=str(target)):
                # What was answered already stays answered.
                if await self._door.take_back(message.source, target):
                    await self._door.admit_all([message], {})

    async def _follow_rooms(self, batch: Batch) -> None:
        changes = await self._membership.take(batch.events, batch.left, first=batch.first)
        for change in changes:
            if isinstance(change, CameIn):
                await self._upgrades.came_in(change.room_id)
                await self._parked.back(self._rooms.names.origin_of(change.room_id))
        for room_id, event in batch.events:
            if event.get("type") == "m.room.power_levels":  # we may speak there again, perhaps
                await self._parked.back(self._rooms.names.origin_of(room_id))
        for room_id in batch.left:
            await self._invites.withdrawn(room_id)
        for room_id, state in batch.invites.items():
            invite = read_invite(room_id, self._connection.user_id, state)
            if invite is not None:
                await self._invites.take(invite)

    async def _moved(self, moved: Moved) -> None:
        """Replies that waited may go into the new room, and the person's space shows it."""
        for user in self._rooms.others(moved.new):
            await self._door.back(self._rooms.source(moved.new, user))
        await self._parked.back(moved.origin)
        for name, origin in (await self._door.marks(CHAT)).items():
            if origin == moved.origin:
                person, _, number = name.removeprefix(CHAT).rpartition(":")
                source = SessionSource("matrix", chat_id=origin, user_id=person)
                chat = Chat(f"matrix:{person}", int(number), None, None, None, source, False, 0.0)
                await self.spaces.moved(chat, moved.old)
        self._tell_fault()

    def _is_one_persons(self, room_id: str) -> bool:
        """In a group nobody is told that we cannot read what was not meant for us."""
        facts = self._rooms.facts(room_id)
        return facts is not None and not facts.is_crowded

    def _tell_stopped(self, room_id: str, sender: str, event_id: str) -> None:
        """Silence would look like a fault to whoever is there."""
        text = (
            f"I have answered {sender} many times in a row, so one of us may be talking to a bot. "
            "I do not answer them here until someone else writes."
        )
        _log.warning("loop_stopped", extra={"room": room_id, "sender": sender})
        self._notice(room_id, text, f"stopped {event_id}")

    def _notice(self, room_id: str, text: str, name: str) -> None:
        """Tell a room something, once for each name."""

        async def tell() -> None:
            await send_notice(self._connection, room_id, text, name)

        async def failed(error: ParleyError) -> None:
            _log.warning("notice_not_sent", extra={"room": room_id, "reason": str(error)})

        self._notices.begin(name, tell, failed)

    # ── out ──

    async def send(self, delivery: Delivery) -> str:
        try:
            return await self._deliver(delivery)
        except Unreachable:
            await self._parked.wait(delivery.source)
            raise

    async def _deliver(self, delivery: Delivery) -> str:
        room_id = self._room_of(delivery.source)
        if self._rooms.is_out(room_id):
            raise Unreachable("The agent is not in this room any more; invite it again.")
        return await self._outgoing.deliver(delivery, room_id=room_id)

    def show(self, event: LiveEvent) -> None:
        room_id = self._room_of(event.source)
        is_over = isinstance(event.event, TurnEnded)  # told, or what was begun would not end
        if not is_over and (not self.is_ready or self._rooms.is_out(room_id)):
            return
        self._typing.show(event, room_id=room_id)
        self._previews.show(event, room_id=room_id)

    def _room_of(self, source: SessionSource) -> str:
        return self._rooms.names.current_of(source.chat_id)

    # ── what is wrong ──

    def _tell_fault(self) -> None:
        notes = [self._unsigned, *self._upgrades.faults.values()]
        if self._allowed.misspelt:
            names = ", ".join(f"`{name}`" for name in self._allowed.misspelt)
            notes.append(f"`surfaces.matrix.allow` has what is no Matrix id: {names}.")
        fault = self._syncing.fault
        told = dict.fromkeys(note for note in notes if note and note != fault)
        self._tell(fault, " ".join(told) or None)
