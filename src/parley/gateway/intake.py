"""The front door: every message of every surface comes in here, and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

from parley.gateway.commands import Commands, looks_like_command
from parley.gateway.delivery import Deliveries
from parley.gateway.lanes import Lanes
from parley.gateway.notices import begun_anew
from parley.gateway.people import People
from parley.gateway.persist import until_stored
from parley.gateway.status import GatewayStatus, Introduction
from parley.gateway.tally import Tally
from parley.protocol import InboundMessage, ParleyError, SessionSource, person_of
from parley.sessions.key import encode_part
from parley.sessions.policy import cutoff, is_trigger
from parley.sessions.store import SessionStore
from parley.storage.contract import InboxMessage, Receipt, SessionRecord, StoreUnavailable
from parley.storage.people import Arrival

if TYPE_CHECKING:
    from parley.gateway.requests import ProfileDoor

__all__ = ["FrontDoor", "Intake", "Stopping"]

_log = logging.getLogger("parley.intake")

_LONGEST_WORD = 16


class Stopping(ParleyError):
    """The gateway takes nothing more; the next one will."""


class FrontDoor(Protocol):
    """What a surface knows of the gateway."""

    async def admit(self, message: InboundMessage) -> Receipt:
        """Accept one event. On return it is durable: the platform may be told so."""

    async def admit_all(
        self, messages: Sequence[InboundMessage], marks: Mapping[str, str | None]
    ) -> list[Receipt]:
        """Accept events and move the surface's marks, such as its place in the platform's stream.

        On return all of it is durable, and was in one transaction: after a crash either both are
        so, or neither. Commands among the messages are answered after that, in order. A message
        that may not come in (its sender is unknown, say) is refused alone, as `Receipt("refused")`.
        """

    async def take_back(self, source: SessionSource, event_id: str) -> bool:
        """Whoever sent it has deleted it: drop it if it waits, end its turn if that runs."""

    async def welcome(self, source: SessionSource, event_id: str) -> None:
        """Someone asked the agent in: as if they had said `!start`, once for each event."""

    async def mark(self, name: str) -> str | None: ...
    async def marks(self, prefix: str) -> dict[str, str]: ...
    async def put_marks(self, marks: Mapping[str, str | None]) -> None: ...

    async def back(self, source: SessionSource) -> None:
        """A conversation can be reached again: replies that waited for it may go."""

    def introduce(self, source: SessionSource) -> Introduction:
        """Who answers there."""

    async def status(self) -> GatewayStatus: ...

    def profiles(self) -> tuple[str, ...]:
        """The names of all that may be meant here, whether they can answer just now or not."""

    def to(self, profile: str) -> ProfileDoor:
        """The door of one of them, for a surface that knows itself who is meant."""


class Intake:
    """Into the inbox of one profile; a slash command is answered at once."""

    def __init__(
        self,
        *,
        sessions: SessionStore,
        lanes: Lanes,
        deliveries: Deliveries,
        commands: Commands,
        people: People,
        is_archived: Callable[[str], bool],
        greet_newcomer: Callable[[str, SessionSource], Awaitable[None]],
        asked_of: Callable[[str, str], str | None],
        arrived: Callable[[str], None],
        busy: Literal["steer", "queue", "interrupt"],
        tally: Tally,
    ) -> None:
        self._sessions = sessions
        self._lanes = lanes
        self._deliveries = deliveries
        self._commands = commands
        self._people = people
        self._is_archived = is_archived
        self._greet_newcomer = greet_newcomer
        self._asked_of = asked_of
        self._arrived = arrived
        self._busy = busy
        self._tally = tally
        self._queued: dict[str, asyncio.Task[None]] = {}

    async def admit(self, message: InboundMessage, *, lane: str | None = None) -> Receipt:
        """With `lane`: what comes by itself goes to the conversation that began it."""
        arrival = self._arrival(message, lane)
        self._arrived(arrival.lane)
        receipt = await self._lanes.submit(
            arrival.lane,
            arrival.dedupe,
            arrival.message,
            kind=arrival.kind,
            user=arrival.user,
            fresh_before=arrival.fresh_before,
            notice=arrival.notice,
        )
        await self._accepted(arrival, receipt)
        if receipt.state == "queued" and arrival.kind == "command":
            accepted = InboxMessage(receipt.inbox_id, arrival.message)
            await self._commands.run(arrival.lane, accepted)
        return receipt

    async def admit_all(
        self, messages: Sequence[InboundMessage], marks: Mapping[str, str | None]
    ) -> list[Receipt]:
        """All of them and the marks in one transaction; commands are answered after that."""
        arrivals = [self._arrival(message) for message in messages]
        for arrival in arrivals:
            self._arrived(arrival.lane)
        receipts = await self._lanes.submit_all(arrivals, marks)
        for arrival, receipt in zip(arrivals, receipts, strict=True):
            try:
                await self._accepted(arrival, receipt)
            except StoreUnavailable as error:  # it is durable, and that is what counts
                _log.warning("not_followed_up", extra={"lane": arrival.lane, "why": str(error)})
            if receipt.state == "queued" and arrival.kind == "command":
                accepted = InboxMessage(receipt.inbox_id, arrival.message)
                self._run_later(arrival.lane, accepted)
        return receipts

    def _arrival(self, message: InboundMessage, lane: str | None = None) -> Arrival:
        """Where a message goes, and as what."""
        source = message.source
        policy = self._sessions.policy(source.platform)
        lane = lane or self._sessions.key_for(source)
        # What a program asks for is meant as it stands, and it says itself which session it means.
        by_person = not message.internal and message.request is None
        # What somebody else wrote is no command, and answers no question.
        plain = by_person and not message.outside
        if plain and not message.attachments and (word := _word_of(message.text)):
            question, turn = self._asked_of(lane, person_of(source)), self._lanes.turn_of(lane)
            # One that listens asked for an answer in words.
            if question is not None and (turn is None or not turn.listens):
                # Named, so that it never answers a question that comes later.
                message = replace(message, text=f"{word} {question}")
        is_command = plain and (
            looks_like_command(message.text) or is_trigger(policy, message.text)
        )
        if message.request is None and self._is_archived(lane):
            is_command = True
            if not plain:  # what was planned there is no command, whatever it says
                message = replace(message, text="")
        # What comes by itself, such as a finished task, belongs to the conversation that began it.
        over = cutoff(policy, time.time()) if by_person and not is_command else None
        return Arrival(
            lane=lane,
            dedupe=_dedupe(message),
            message=message,
            kind="command" if is_command else "message",
            user=source.user_id,
            fresh_before=over,
            notice=begun_anew(source) if over is not None and policy.reset_notice else None,
        )

    async def _accepted(self, arrival: Arrival, receipt: Receipt) -> None:
        message, source = arrival.message, arrival.message.source
        if receipt.fresh:
            self._deliveries.look_again(source.platform)
        if receipt.state != "queued":
            return
        self._tally.accepted += 1
        if message.internal or message.request is not None:
            return
        if source.user_id:
            with contextlib.suppress(StoreUnavailable):  # they are met with their next message
                user = await self._people.get_or_create_user(
                    source.user_id, source.platform, source.user_name
                )
                if user.is_new:
                    await self._greet_newcomer(arrival.lane, source)
        if self._busy == "interrupt" and arrival.kind == "message":
            await self._interrupt(arrival.lane, receipt.inbox_id)

    def _run_later(self, lane: str, accepted: InboxMessage) -> None:
        """Run a command beside what the surface does next; those of one lane in their order."""
        before = self._queued.get(lane)

        async def run() -> None:
            if before is not None:
                await asyncio.wait([before])
            try:
                await until_stored(partial(self._commands.run, lane, accepted))
            except Exception:  # noqa: BLE001 - the supervisor: it is answered at the next start
                _log.exception("command_not_answered", extra={"lane": lane})
            finally:
                if self._queued.get(lane) is task:
                    del self._queued[lane]

        task = self._queued[lane] = asyncio.create_task(run(), name=f"command-{accepted.id}")

    async def close(self) -> None:
        """Commands under way are answered at the next start."""
        tasks = list(self._queued.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def named(self, message: InboundMessage) -> tuple[str, str]:
        """The lane that a message goes to, and the name it has there."""
        return self._sessions.key_for(message.source), _dedupe(message)

    def is_over(self, session: SessionRecord, platform: str) -> bool:
        """Whether the next message there begins a new session."""
        over = cutoff(self._sessions.policy(platform), time.time())
        return over is not None and session.updated_at < over

    async def withdraw(self, lane: str, name: str) -> bool:
        """Nobody waits for the answer to this message any more; whether that ended anything."""
        running = self._lanes.turn_of(lane)
        said = running.said_so_far if running is not None else None
        gone = await self._lanes.store.withdraw(lane, name, said=said)
        if gone.turn is not None:
            self._lanes.cancel(lane, gone.turn)
        self._lanes.look_again()
        return gone.dropped or gone.turn is not None

    async def _interrupt(self, lane: str, inbox_id: int) -> None:
        turn = self._lanes.turn_of(lane)
        if turn is None:
            return
        await turn.known.wait()
        if turn.listens:  # it asked the person, who answers
            return
        if all(taken.id != inbox_id for taken in turn.messages):
            # By its number: it may end just now, and the turn after it answers this message.
            await self._lanes.stop(lane, turn=turn.claim.turn)


def _word_of(text: str) -> str | None:
    """The command that a plain yes or no is, below a question of ours."""
    word = text.strip().rstrip(".!").casefold() if len(text) < _LONGEST_WORD else ""
    return f"!{word}" if word in ("yes", "no") else None


def _dedupe(message: InboundMessage) -> str:
    """The platform's own id, apart from the same id on another platform or account."""
    source = message.source
    if not message.event_id:
        raise ParleyError("A message without an id cannot be told from its repeats.")
    parts = (source.platform, source.account or "", message.event_id)
    return ":".join(encode_part(part) for part in parts)
